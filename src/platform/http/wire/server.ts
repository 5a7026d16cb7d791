import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type ServerResponse,
  setMaxIdleHTTPParsers,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { codeOf, StartupError, Unavailable } from '../../runtime/errors.ts';
import { ClientGone } from './body-reader.ts';
import { createConnections, isFree } from './connections.ts';
import { answer, createRequestLog, failureFor, type ListenerOptions } from './exchange.ts';
import { renderFailure, renderRaw, type RenderedReply, writeReply } from './reply.ts';
import { type ErrorCode, Failure } from '../route/errors.ts';
import { type ReceivedRequest, receive } from './received.ts';

/** Node's defaults let a silent client hold a connection for minutes. */
const SERVER_OPTIONS = {
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  /** How often the two timeouts above are checked. */
  connectionsCheckingInterval: 400,
  /** Longer than the 60 s of common load balancers, so that they close an idle connection first. */
  keepAliveTimeout: 65_000,
  maxHeaderSize: 16 * 1024,
  /** `answer` checks it instead: Node's own reply has no error body. */
  requireHostHeader: false,
};
const SERVER_LIMITS = {
  /** For a connection without traffic, for example because the client stopped reading its reply. */
  timeout: 30_000,
  maxRequestsPerSocket: 100_000,
  /** `maxHeaderSize` bounds them. Node would drop those after a count, X-Forwarded-For too. */
  maxHeadersCount: 0,
};
/** How long the client of rejected input may read the reply: a reset would discard it. */
const LINGER_MS = 100;
/**
 * Node keeps up to 1,000 parsers for later connections, each with the last head that it has read:
 * after an attack with many large heads, 15 MB. They belong to the process, not to a server.
 */
const MAX_IDLE_PARSERS = 32;
const PARSER_ERRORS: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

export type Listener = ReturnType<typeof createListener>;

export function createListener(options: ListenerOptions) {
  setMaxIdleHTTPParsers(MAX_IDLE_PARSERS);
  const server = Object.assign(createServer(SERVER_OPTIONS), SERVER_LIMITS);
  const listener = {
    ...options,
    server,
    connections: createConnections(options),
    logRequest: createRequestLog(options),
    inFlight: new Set<ReceivedRequest>(),
  };
  const onRequest = (request: IncomingMessage, response: ServerResponse) =>
    handle(listener, request, response);
  options.metrics.gauge(
    'gatehouse_requests_in_flight',
    'Requests being processed.',
    () => listener.inFlight.size,
    { service: options.name },
  );

  server.on('connection', listener.connections.open);
  server.on('request', onRequest);
  // Without this listener, Node sends 100 before the credential is checked.
  server.on('checkContinue', (request, response) =>
    handle(listener, request, response, () => response.writeContinue()),
  );
  // Any other expectation may be ignored (RFC 9110, 10.1.1).
  server.on('checkExpectation', onRequest);
  server.on('clientError', ({ code = '' }: NodeJS.ErrnoException, socket: Duplex) => {
    const latest = listener.connections.all.get(socket)?.latest;
    if (code === 'ECONNRESET') socket.destroy();
    // What follows a complete request does not take its reply away (RFC 9112, 9.6).
    else if (latest?.req.complete && !latest.writableFinished) endAfter(latest, socket);
    else rejectInput(listener, socket, PARSER_ERRORS[code] ?? 'invalid_request');
  });
  // Not a proxy. Without this listener, Node closes the connection without a reply.
  server.on('connect', (_request, socket: Duplex) => {
    // Node no longer handles this socket: a reset would end the process.
    socket.on('error', () => {});
    rejectInput(listener, socket, 'invalid_request');
  });

  return listener;
}

function adviceFor(code: string, service: string) {
  if (code === 'EADDRINUSE') return `the port is in use; set ${service}_PORT to another one`;
  if (code === 'EACCES') return `set ${service}_PORT to a port above 1023`;
  return `set ${service}_HOST to an address of this machine`;
}

/**
 * Resolves with the port once connections are accepted.
 * @throws StartupError with what the operator can do
 */
export async function listen(listener: Listener) {
  const { server, name, host, port } = listener;
  try {
    await once(server.listen(port, host), 'listening');
  } catch (error) {
    const code = codeOf(error);
    const advice = adviceFor(code, name.toUpperCase());
    throw new StartupError(`${name} cannot listen on ${host}:${port} (${code}): ${advice}.`);
  }
  // A connection could not be accepted, because files or memory are used up. Without this listener,
  // the process would end.
  server.on('error', (error) => {
    listener.log.error('a connection was not accepted', { route: '(none)', code: codeOf(error) });
  });
  const bound = server.address();
  return typeof bound === 'object' && bound !== null ? bound.port : port;
}

/**
 * Accepts no more requests, waits at most `graceMs` for those in flight, then closes all
 * connections.
 */
export async function close(listener: Listener, graceMs: number) {
  const { server, connections } = listener;
  const closed = once(server.close(), 'close');
  // Node counts a connection as idle only after its first request.
  for (const { socket } of connections.all.values()) {
    if (socket.bytesRead === 0) socket.destroy();
  }
  const timer = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearTimeout(timer);
}

/** Handles a request, from its head to the last byte of the reply. */
async function handle(
  listener: Listener,
  request: IncomingMessage,
  response: ServerResponse,
  sendContinue = () => {},
) {
  const { connections, logRequest } = listener;
  const connection = connections.all.get(request.socket);
  if (!connection) {
    response.destroy();
    return;
  }
  const received = receive(request, connection, listener);
  const { network, requestId, progress } = received;
  connections.begin(connection, response);
  listener.inFlight.add(received);
  const send = (outcome: RenderedReply | Failure) => {
    const isFailure = outcome instanceof Failure;
    if (isFailure) progress.credential = outcome.details.credential;
    const reply = isFailure ? renderFailure(outcome, requestId, progress.failurePage) : outcome;
    // Before a shutdown, closes the connection: the client reconnects, through a load balancer to
    // another replica.
    return writeReply(response, received, reply, listener.isLeaving(), () =>
      connections.sending.add(connection),
    );
  };
  const holding = connections.hold(request, network, connection.network);
  try {
    const isEarly = response.socket === null;
    if (isEarly && !(await connections.turn(connection, network, response))) return;
    const held = await holding;
    const work = answer(listener, received, request, held, sendContinue).then(send);
    await inTime(received, response, work);
  } catch (error) {
    if (error instanceof ClientGone) return;
    const failure = failureFor(error, received, listener);
    // After the head, only a broken connection can show the failure.
    if (response.headersSent) response.destroy();
    else await send(failure);
  } finally {
    (await holding).release();
    listener.inFlight.delete(received);
    connections.finish(connection, response);
    // A reply that was started before the shutdown has no `Connection: close`.
    if (!listener.server.listening) setImmediate(() => listener.server.closeIdleConnections());
    logRequest(received);
  }
}

/**
 * Bounds the time to the head of the reply, over all statements, retries and waits of a request.
 * The work completes or rolls back, within its own limits.
 */
function inTime({ endsAt }: ReceivedRequest, response: ServerResponse, work: Promise<void>) {
  return new Promise<void>((resolve, reject) => {
    const end = () => {
      if (!response.headersSent) reject(new Unavailable('the request took too long'));
    };
    const timer = setTimeout(end, endsAt - performance.now());
    void work.then(resolve, reject).then(() => clearTimeout(timer));
  });
}

/** Reads nothing more, and closes the connection after its last reply. */
function endAfter(latest: ServerResponse, socket: Duplex) {
  socket.pause();
  latest.once('finish', () => setTimeout(() => socket.destroy(), LINGER_MS));
}

/** Replies to input that is not a request: there is no response object. */
function rejectInput(listener: Listener, socket: Duplex, code: ErrorCode) {
  const connection = listener.connections.all.get(socket);
  // The client would take an error sent before or inside another reply for that reply.
  if (!socket.writable || !connection || !isFree(connection)) {
    socket.destroy();
    return;
  }
  const received = receive({ headers: {} }, connection, listener);
  const { requestId, progress } = received;
  const reply = renderFailure(new Failure(code), requestId);
  progress.route = '(unreadable)';
  progress.reply = reply;
  socket.end(renderRaw(reply, requestId));
  // Half-closed, the client could send on, and an unfinished body would keep its place.
  setTimeout(() => socket.destroy(), LINGER_MS);
  listener.logRequest(received);
}
