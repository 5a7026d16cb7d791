import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Reply } from './call.ts';
import { type ErrorCode, ERRORS, type Failure } from './errors.ts';
import type { Envelope } from './openapi.ts';

/** ASVS 3.4, 4.1.1 and 14.3.2. Every reply of every service carries these. */
const BARE_HEADERS = {
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
} as const;
const HEADERS = { 'Content-Type': 'application/json; charset=utf-8', ...BARE_HEADERS } as const;

/** What goes on the wire. */
export interface RenderedReply {
  readonly status: number;
  /** Where it is an error. */
  readonly reason?: ErrorCode;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | AsyncIterable<string>;
}

export function renderSuccess(reply: Reply<unknown>, status: number, envelope: Envelope, requestId: string): RenderedReply {
  if ('stream' in reply) return { status, headers: { ...HEADERS, 'Content-Type': reply.contentType }, body: reply.stream };
  if ('text' in reply) return { status, headers: { ...HEADERS, ...reply.headers, 'Content-Type': reply.contentType }, body: reply.text };
  if ('items' in reply) {
    const [before, after] = envelope === 'bare' ? ['', ''] : ['{"data":', `,"_meta":${JSON.stringify({ request_id: requestId })}}`];
    return { status, headers: HEADERS, body: listText(reply.items, before, after) };
  }
  const headers = reply.headers ? { ...HEADERS, ...reply.headers } : HEADERS;
  if (envelope === 'bare') return { status, headers, body: JSON.stringify(reply.data) };
  const meta = { request_id: requestId, ...(reply.pagination ? { pagination: reply.pagination } : {}) };
  return { status, headers, body: JSON.stringify({ data: reply.data, _meta: meta, ...(reply.links ? { _links: reply.links } : {}) }) };
}

async function* listText(batches: AsyncIterable<unknown>, before: string, after: string): AsyncGenerator<string> {
  let opening = `${before}[`;
  for await (const batch of batches) {
    if (!Array.isArray(batch) || batch.length === 0) continue;
    yield opening + batch.map((item) => JSON.stringify(item)).join(',');
    opening = ',';
  }
  yield `${opening === ',' ? '' : opening}]${after}`;
}

/** The answer to OPTIONS. */
export const renderAllow = (allow: string): RenderedReply => ({ status: 204, headers: { ...BARE_HEADERS, Allow: allow }, body: '' });

/** The one shape of an error, in all services. */
export function renderFailure(failure: Failure, requestId: string): RenderedReply {
  const { status, message } = ERRORS[failure.code];
  const { details } = failure;
  // RFC 9110: 15.6.4 and RFC 6585, 4 for Retry-After; 15.5.2 for the challenge.
  const retryAfter = details.retryAfterSeconds ?? (status === 503 ? 2 : undefined);
  return {
    status,
    reason: failure.code,
    headers: {
      ...HEADERS,
      ...(retryAfter === undefined ? {} : { 'Retry-After': String(Math.max(1, Math.ceil(retryAfter))) }),
      ...(status === 401 ? { 'WWW-Authenticate': 'Bearer' } : {}),
      ...details.headers,
    },
    body: JSON.stringify({
      data: null,
      error: { code: failure.code, message: details.message ?? message, ...(details.fields ? { fields: details.fields } : {}) },
      _meta: { request_id: requestId },
    }),
  };
}

/** A whole reply as bytes, for a request that never became one: the parser refused it and there is no response object. */
export function renderRaw(failure: Failure, requestId: string): string {
  const { status, headers, body } = renderFailure(failure, requestId);
  const text = typeof body === 'string' ? body : '';
  const all = { ...headers, 'X-Request-Id': requestId, 'Content-Length': String(Buffer.byteLength(text)), Connection: 'close' };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${failure.code.replaceAll('_', ' ')}\r\n${lines.join('')}\r\n${text}`;
}

/** After a refusal: how much of an unread body is thrown away, and for how long, before the connection is cut. */
const DISCARD_BYTES = 1024 * 1024;
const DISCARD_MS = 1000;

/** Writes a reply, exactly once. Resolves when the last byte is handed to the kernel or the client is gone. */
export function writeReply(request: IncomingMessage, response: ServerResponse, requestId: string, written: RenderedReply, close: boolean): Promise<void> | void {
  if (isUnread(request) || typeof written.body !== 'string') return writeSlowly(request, response, requestId, written, close);
  const headers = headersOf(requestId, written, close);
  if (written.status !== 204) headers.push('Content-Length', String(Buffer.byteLength(written.body)));
  response.writeHead(written.status, headers);
  // As a text it leaves in one piece with the head.
  response.end(written.body);
}

/** Names and values in turn, which Node writes as they are. */
function headersOf(requestId: string, { headers }: RenderedReply, close: boolean): string[] {
  const list = ['X-Request-Id', requestId];
  for (const name in headers) list.push(name, headers[name] ?? '');
  if (close) list.push('Connection', 'close');
  return list;
}

/** A reply in pieces, or to a request whose body has not been read to its end. */
async function writeSlowly(request: IncomingMessage, response: ServerResponse, requestId: string, written: RenderedReply, close: boolean): Promise<void> {
  // A small body that came in one packet with its head is complete only a moment after the head.
  if (isUnread(request)) await new Promise((resolve) => setImmediate(resolve));
  const unread = isUnread(request);
  const headers = headersOf(requestId, written, unread || close);
  // The client is still sending. To close now would reset the connection, and the answer could be lost with it.
  const discarding = () => (unread ? discard(request) : undefined);
  if (typeof written.body !== 'string') return writePieces(request, response, written.status, headers, written.body, discarding);
  const { body } = written;
  if (written.status !== 204) headers.push('Content-Length', String(Buffer.byteLength(body)));
  response.writeHead(written.status, headers);
  response.flushHeaders();
  response.write(body);
  await discarding();
  response.end();
}

const isUnread = (request: IncomingMessage): boolean => !request.complete && hasBody(request);

function hasBody(request: IncomingMessage): boolean {
  return request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0;
}

async function writePieces(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  headers: string[],
  pieces: AsyncIterable<string>,
  discarding: () => Promise<void> | undefined,
): Promise<void> {
  const iterator = pieces[Symbol.asyncIterator]();
  try {
    // The first piece is fetched before the head goes out, so that a database that is away is still a proper error.
    let piece = await iterator.next();
    response.writeHead(status, headers);
    const discarded = discarding();
    while (!piece.done && request.method !== 'HEAD' && !response.destroyed) {
      if (!response.write(piece.value)) await drained(response);
      piece = await iterator.next();
    }
    await discarded;
    response.end();
  } finally {
    await iterator.return?.();
  }
}

/** The socket's own inactivity limit ends the wait for a client that has stopped reading. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done).off('close', done);
      resolve();
    };
    response.on('drain', done).on('close', done);
  });
}

function discard(request: IncomingMessage): Promise<void> {
  return new Promise((resolve) => {
    let size = 0;
    const done = () => {
      clearTimeout(timer);
      request.off('data', onData).off('end', done).off('close', done).off('error', done);
      resolve();
    };
    const timer = setTimeout(done, DISCARD_MS);
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      if (size > DISCARD_BYTES) done();
    };
    request.on('data', onData).on('end', done).on('close', done).on('error', done);
    request.resume();
  });
}
