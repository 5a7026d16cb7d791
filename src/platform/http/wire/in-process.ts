import type { IncomingHttpHeaders } from 'node:http';
import { createRecentMap } from '../../runtime/rate-limit.ts';
import { canonicalAddress, isIn, networkOf } from './address.ts';
import { failureFor } from './exchange.ts';
import { receive, type Sender } from './received.ts';
import { renderFailure, renderSuccess } from './reply.ts';
import type { Listener } from './server.ts';
import { Failure } from '../route/errors.ts';
import { parseTarget } from '../route/router.ts';

const NEVER = new AbortController().signal;

/**
 * Of how many clients the network is remembered at least, as it is of a connection: a look-up in
 * the trusted proxies is 6 % of the processor time of a call.
 */
const MAX_SENDERS = 1_000;

/**
 * @param path of a route that answers GET
 * @returns answers GETs of a program in this process as the listener would, with its limits,
 * metrics and log, and without a connection
 */
export function createInProcess(listener: Listener, path: string) {
  const { routes, logRequest, style } = listener;
  const match = routes('GET', parseTarget(path)?.segments ?? []);
  if (match instanceof Failure) throw new Error(`internal error: ${path} has no route`);
  const { route: row, parameters } = match;
  const route = `GET ${row.pattern}`;
  const senders = createRecentMap<Sender>(MAX_SENDERS);

  /** @param address of the client of the program */
  return async (query: string, headers: IncomingHttpHeaders, address: string) => {
    const sender = senders.get(address) ?? senderAt(address, listener);
    senders.set(address, sender);
    const received = receive({ method: 'GET', headers }, sender, listener);
    const { progress, requestId } = received;
    const answer = async () => {
      const target = parseTarget(`${path}?${query}`);
      if (!target) return new Failure('invalid_target');
      progress.route = route;
      // The copy comes last, because V8 is slow to add members to one.
      const info = {
        isFromOwnPage: false,
        path,
        query: target.query,
        parameters,
        route,
        ...received,
      };
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
  };
}

function senderAt(address: string, { trustedProxies }: Listener) {
  const client = canonicalAddress(address);
  const network = isIn(trustedProxies, client) ? null : networkOf(client);
  return { address: client, network, gone: NEVER };
}
