import type { IncomingHttpHeaders } from 'node:http';
import { canonicalAddress, isIn, networkOf } from './address.ts';
import { failureFor } from './exchange.ts';
import { receive } from './received.ts';
import { renderFailure, renderSuccess } from './reply.ts';
import type { Listener } from './server.ts';
import { Failure } from '../route/errors.ts';
import { parseTarget } from '../route/router.ts';

const NEVER = new AbortController().signal;

/**
 * Answers a GET of a program in this process as the listener would, with its limits, metrics and
 * log, and without a connection.
 * @param target path and query
 * @param address of the client of the program
 */
export async function answerInProcess(
  listener: Listener,
  target: string,
  headers: IncomingHttpHeaders,
  address: string,
) {
  const { routes, logRequest, style, trustedProxies } = listener;
  const client = canonicalAddress(address);
  const network = isIn(trustedProxies, client) ? null : networkOf(client);
  const connection = { address: client, network, gone: NEVER };
  const received = receive({ method: 'GET', headers }, connection, listener);
  const { progress, requestId } = received;
  const answer = async () => {
    const parsed = parseTarget(target);
    if (!parsed) return new Failure('invalid_target');
    const match = routes('GET', parsed.segments);
    if (match instanceof Failure) return match;
    const { route: row, parameters } = match;
    progress.route = `GET ${row.pattern}`;
    const { path, query } = parsed;
    const { route } = progress;
    // The copy comes last, because V8 is slow to add members to one.
    const info = { isFromOwnPage: false, path, query, parameters, route, ...received };
    const outcome = await row.answer(info, async () => Buffer.alloc(0));
    if (outcome instanceof Failure) return outcome;
    return renderSuccess(outcome, row.success, style.wrapping, requestId);
  };
  const outcome = await answer().catch((error: unknown) => failureFor(error, received, listener));
  if (outcome instanceof Failure) progress.credential = outcome.details.credential;
  const reply = outcome instanceof Failure ? renderFailure(outcome, requestId) : outcome;
  progress.reply = reply;
  logRequest(received);
  return reply;
}
