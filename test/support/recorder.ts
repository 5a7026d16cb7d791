/** An HTTP server that records requests and replies as the test says. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { listenOn } from './ports.ts';
import type { Owner } from './owner.ts';

export interface Received {
  readonly method: string;
  readonly target: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** A reply that is JSON, or, if it is a text, whatever it is. */
export const reply =
  (status: number, body: unknown, headers: Readonly<Record<string, string>> = {}) =>
  (response: ServerResponse): void => {
    const isText = typeof body === 'string';
    response.writeHead(status, {
      'content-type': isText ? 'text/html' : 'application/json',
      ...headers,
    });
    response.end(isText ? body : JSON.stringify(body));
  };

export async function startRecorder(owner: Owner) {
  const received: Received[] = [];
  let answer: (response: ServerResponse, request: Received) => void = reply(404, '');
  const server = createServer(async (request, response) => {
    const { method = '', url: target = '', headers } = request;
    // A client that leaves has sent nothing.
    const chunks = await request.toArray().catch(() => null);
    if (chunks === null) return;
    const one = { method, target, headers, body: Buffer.concat(chunks).toString() };
    received.push(one);
    answer(response, one);
  });
  const port = await listenOn(owner, server, '0.0.0.0');
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    /** All requests so far. */
    received: received as readonly Received[],
    /** Sets the reply to later requests. */
    answer: (next: typeof answer) => {
      answer = next;
    },
  };
}
