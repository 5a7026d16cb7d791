/**
 * A service as a function of a request: its routes, schemas, guards, handlers, log and metrics,
 * without a port, a socket or the parser of Node. What only these show needs `ask`.
 */
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { isIn, networkOf } from '../../src/platform/http/wire/address.ts';
import { answer, failureFor } from '../../src/platform/http/wire/exchange.ts';
import { receive } from '../../src/platform/http/wire/received.ts';
import { renderFailure } from '../../src/platform/http/wire/reply.ts';
import type { Listener } from '../../src/platform/http/wire/server.ts';
import { Failure } from '../../src/platform/http/route/errors.ts';
import { type Answer, type AskOptions, encode, parse } from './gatehouse.ts';

const ADDRESS = '127.0.0.1';
const NEVER = new AbortController().signal;
/** Nothing of the body waits for its turn: all of it is there. */
const NOT_HELD = { failure: null, release: () => {} };

export type Call = (method: string, path: string, options?: AskOptions) => Promise<Answer>;

/** @returns as `ask`, for a path of the service */
export function callsOf(listener: Listener): Call {
  const network = isIn(listener.trustedProxies, ADDRESS) ? null : networkOf(ADDRESS);
  return async (method, path, options = {}) => {
    const request = requestOf(method, path, options);
    const received = receive(request, { address: ADDRESS, network, gone: NEVER }, listener);
    const { requestId, progress } = received;
    const outcome = await answer(listener, received, request, NOT_HELD, () => {}).catch(
      (error: unknown) => failureFor(error, received, listener),
    );
    if (outcome instanceof Failure) progress.credential = outcome.details.credential;
    const reply =
      outcome instanceof Failure
        ? renderFailure(outcome, requestId, progress.failurePage)
        : outcome;
    progress.reply = reply;
    listener.logRequest(received);
    const headers = new Headers({ 'x-request-id': requestId });
    for (const [name, values] of Object.entries(reply.headers))
      for (const value of [values].flat()) headers.append(name, value);
    const isStream = !(typeof reply.body === 'string' || reply.body instanceof Uint8Array);
    const text = isStream ? await readText(Readable.from(reply.body)) : String(reply.body);
    return { status: reply.status, headers, ...parse(text) };
  };
}

/** As Node's parser makes it of a head and a body that arrive together. */
function requestOf(method: string, url: string, options: AskOptions): IncomingMessage {
  const { headers, content } = encode(options);
  const all = Object.entries({ host: 'localhost', ...headers });
  const request = Object.assign(new IncomingMessage(new Socket()), {
    method,
    url,
    headers: Object.fromEntries(all.map(([name, value]) => [name.toLowerCase(), String(value)])),
    rawHeaders: all.flatMap(([name, value]) => [name, String(value)]),
    complete: true,
  });
  if (content !== undefined) request.push(content);
  request.push(null);
  return request;
}
