import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { BlockList, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { describeError, Overloaded, Unavailable } from '../runtime/errors.ts';
import { clientAddress, isTrusted, canonicalAddress } from './address.ts';
import { ClientGone, readBody } from './body.ts';
import type { RouteMatcher } from './call.ts';
import { type ErrorCode, Failure } from './errors.ts';
import type { Envelope } from './openapi.ts';
import { EARLY_ROUTES } from './probes.ts';
import { renderFailure, renderAllow, renderRaw, renderSuccess, writeReply, type RenderedReply } from './reply.ts';
import { parseTarget } from './router.ts';

/**
 * Limits at the door. Node's defaults let a silent client hold a connection for minutes, so each is set by name.
 * `connectionsCheckingInterval` is how often the first two are looked at: with its default of 30 s they mean little.
 */
const LIMITS = {
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
  /** Longer than the 60 s of the usual load balancers, so that they and not we end an idle connection. */
  keepAliveTimeout: 65_000,
  /** A connection on which nothing moves at all, such as a client that stopped reading its reply. */
  inactivityTimeout: 30_000,
  maxHeaderSize: 16 * 1024,
  maxConnections: 4_096,
  maxRequestsPerSocket: 100_000,
  /** Bodies that are still arriving. Requests without one, such as the probes, are not kept waiting by those with. */
  maxBodies: 1_024,
} as const;

/** How a service wraps its successes, and which error it gives for a dependency that failed. */
export interface ResponseStyle {
  readonly envelope: Envelope;
  /** The specification wants 500 from identity; the others give 503. */
  readonly unavailable: Extract<ErrorCode, 'service_failed' | 'unavailable'>;
}

export interface ListenerOptions {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  /** Asked for once there is a request for more than whether the process lives. */
  readonly routes: () => Promise<RouteMatcher>;
  readonly style: ResponseStyle;
  readonly maxBodyBytes: number;
  readonly trustedProxies: BlockList;
  readonly log: Log;
  readonly metrics: Metrics;
}

export interface Listener {
  /** Resolves with the port once connections are accepted; rejects when it is taken. */
  listen(): Promise<number>;
  /** Accepts no more, lets requests in flight finish for at most `graceMs`, then cuts what is left. */
  close(graceMs: number): Promise<void>;
}

interface Visit {
  readonly requestId: string;
  readonly address: string;
  readonly startedAt: number;
  /** Method and pattern once a row is found. Never the path itself, which may hold what was meant for the query. */
  route: string;
}

/** A connection: who is at its other end, how many of its requests are being worked on, and the last one that was begun. */
interface Line {
  readonly address: string;
  readonly isProxy: boolean;
  running: number;
  request: IncomingMessage;
  response: ServerResponse;
}

/** The only place that sees a socket: limits, request id, one try/catch, one write. */
export function createListener(options: ListenerOptions): Listener {
  const { name, log, metrics } = options;
  const state: { rows: RouteMatcher | null; inFlight: number; bodies: number; closing: boolean } = { rows: null, inFlight: 0, bodies: 0, closing: false };
  const lines = new WeakMap<Duplex, Line>();
  const sockets = new Set<Socket>();
  metrics.gauge('gatehouse_requests_in_flight', 'Requests being worked on.', { service: name }, () => state.inFlight);
  const countRequest = metrics.counter('gatehouse_requests_total', 'Requests answered, by service, route pattern and status.', ['service', 'route', 'status']);
  const countRejection = metrics.counter('gatehouse_requests_refused_total', 'Requests answered with an error, by service, route pattern and error code.', ['service', 'route', 'reason']);
  const observeDuration = metrics.histogram('gatehouse_request_duration_seconds', 'From the last byte of the head to the end of the reply.', ['service', 'route']);

  function answer(request: IncomingMessage, response: ServerResponse, visit: Visit, expectsContinue: boolean): RenderedReply | Promise<RenderedReply> {
    const fail = (failure: Failure) => renderFailure(failure, visit.requestId);
    if (request.httpVersion === '1.1' && request.headers.host === undefined) return fail(new Failure('invalid_request'));
    const target = parseTarget(request.url ?? '');
    if (!target) return fail(new Failure('invalid_target'));
    const { method = '' } = request;
    const match = (state.rows ?? EARLY_ROUTES)(method, target.segments);
    if (!state.rows && match.kind !== 'found') {
      return options.routes().then((rows) => {
        state.rows = rows;
        return answer(request, response, visit, expectsContinue);
      });
    }
    if (match.kind === 'no_such_path') return fail(new Failure('no_such_path'));
    if (match.kind === 'method_not_allowed') {
      if (request.method === 'OPTIONS') return renderAllow(match.allow);
      return fail(new Failure('method_not_allowed', { headers: { Allow: match.allow } }));
    }
    visit.route = match.route.name;
    const readLimited = async () => {
      if (state.bodies >= LIMITS.maxBodies) return new Failure('overloaded');
      if (expectsContinue && Number(request.headers['content-length'] ?? 0) <= options.maxBodyBytes) response.writeContinue();
      state.bodies += 1;
      return readBody(request, options.maxBodyBytes).finally(() => (state.bodies -= 1));
    };
    const info = {
      requestId: visit.requestId,
      path: target.path,
      parameters: match.parameters,
      query: target.query,
      headers: request.headers,
      address: visit.address,
    };
    const { route } = match;
    return route.answer(info, readLimited).then((outcome) => (outcome instanceof Failure ? fail(outcome) : renderSuccess(outcome, route.success, options.style.envelope, visit.requestId)));
  }

  /** Three kinds of errors: rejected work, a dependency's fault, our own bug. A foreign message never reaches the client. */
  function failureFor(error: unknown, visit: Visit): Failure {
    const fields = { request_id: visit.requestId, route: visit.route };
    if (error instanceof Overloaded) {
      log.warn('refused to protect the process', { ...fields, ...describeError(error) });
      return new Failure('overloaded');
    }
    if (error instanceof Unavailable) {
      log.error('dependency failed', { ...fields, ...describeError(error) });
      return new Failure(options.style.unavailable);
    }
    log.error('internal error', { ...fields, ...describeError(error) });
    return new Failure('internal');
  }

  async function handle(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void> {
    const line = lines.get(request.socket) ?? openLine(request, response);
    line.running += 1;
    line.request = request;
    line.response = response;
    const visit = greet(request, line, options.trustedProxies);
    state.inFlight += 1;
    let written: RenderedReply | null = null;
    try {
      try {
        written = await answer(request, response, visit, expectsContinue);
      } catch (error) {
        if (error instanceof ClientGone) return;
        written = renderFailure(failureFor(error, visit), visit.requestId);
      }
      await writeReply(request, response, visit.requestId, written, state.closing);
    } catch (error) {
      const failure = failureFor(error, visit);
      // Once the head is out the only honest sign of a failure is a connection that breaks off.
      if (response.headersSent) return void response.destroy();
      written = renderFailure(failure, visit.requestId);
      await writeReply(request, response, visit.requestId, written, true);
    } finally {
      state.inFlight -= 1;
      line.running -= 1;
      // A reply that was begun before the shutdown has not told its client to close.
      if (state.closing) setImmediate(() => server.closeIdleConnections());
      record(visit, request.method ?? '', written);
    }
  }

  function openLine(request: IncomingMessage, response: ServerResponse): Line {
    const address = canonicalAddress(request.socket.remoteAddress ?? '');
    const line = { address, isProxy: isTrusted(address, options.trustedProxies), running: 0, request, response };
    lines.set(request.socket, line);
    return line;
  }

  /** One line and one set of numbers end the visit. @param written null, which is status 0: the client left before there was an answer */
  function record(visit: Visit, method: string, written: RenderedReply | null): void {
    const seconds = (performance.now() - visit.startedAt) / 1000;
    const status = written?.status ?? 0;
    if (written?.reason) countRejection([name, visit.route, written.reason]);
    countRequest([name, visit.route, String(status)]);
    observeDuration([name, visit.route], seconds);
    log.info('request', {
      request_id: visit.requestId,
      method,
      route: visit.route,
      status,
      duration_ms: Math.round(seconds * 1e5) / 100,
      ip: visit.address,
    });
  }

  const server = createServer({
    headersTimeout: LIMITS.headersTimeout,
    requestTimeout: LIMITS.requestTimeout,
    connectionsCheckingInterval: LIMITS.connectionsCheckingInterval,
    keepAliveTimeout: LIMITS.keepAliveTimeout,
    maxHeaderSize: LIMITS.maxHeaderSize,
    noDelay: true,
    // Node would answer a missing Host header without the house's shape; `answer` sees to it.
    requireHostHeader: false,
  });
  server.timeout = LIMITS.inactivityTimeout;
  server.maxRequestsPerSocket = LIMITS.maxRequestsPerSocket;
  server.on('connection', (socket: Socket) => {
    // Not by `server.maxConnections`: with several workers the surplus would be handed round among them for ever.
    if (sockets.size >= LIMITS.maxConnections) return void socket.destroy();
    sockets.add(socket.on('close', () => sockets.delete(socket)));
  });
  server.on('request', (request, response) => void handle(request, response, false));
  // Without this, Node invites the body in before anybody has looked at the credential.
  server.on('checkContinue', (request, response) => void handle(request, response, true));
  // Any other expectation is ignored, as RFC 9110, 10.1.1, allows.
  server.on('checkExpectation', (request, response) => void handle(request, response, false));
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    // A broken connection reports itself more than once. And an answer of ours in the place of another one's, or in the
    // middle of it, would be taken for that one.
    if (error.code === 'ECONNRESET' || !socket.writable || !isFreeToAnswer(lines.get(socket))) return void socket.destroy();
    const visit = { requestId: randomUUID(), address: addressOf(socket), startedAt: performance.now(), route: '(unreadable)' };
    const failure = parserFailure(error.code);
    socket.end(renderRaw(failure, visit.requestId));
    record(visit, '', renderFailure(failure, visit.requestId));
  });
  // A proxy is what we are not; without a listener Node would close without a word.
  server.on('connect', (_request, socket: Duplex) => {
    // From here on nobody else listens: a client that resets the connection would end the process, one that stays would be kept.
    socket.on('error', () => {}).end(renderRaw(new Failure('invalid_request'), randomUUID()), () => socket.destroy());
  });

  return {
    listen: () => listen(server, options.port, options.host),
    async close(graceMs) {
      state.closing = true;
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      // Node counts a connection as idle only after its first request.
      for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy();
      const timer = setTimeout(() => server.closeAllConnections(), graceMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

function listen(server: Server, port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      const bound = server.address();
      resolve(typeof bound === 'object' && bound !== null ? bound.port : port);
    });
  });
}

function greet(request: IncomingMessage, { address, isProxy }: Line, trustedProxies: BlockList): Visit {
  const given = request.headers['x-request-id'];
  const forwarded = request.headers['x-forwarded-for'];
  return {
    requestId: typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID(),
    address: isProxy ? clientAddress(address, Array.isArray(forwarded) ? forwarded.join(',') : forwarded, trustedProxies) : address,
    startedAt: performance.now(),
    route: '(none)',
  };
}

/** Whether what the parser refused is the connection's next request, or the rest of one that has no answer yet. */
function isFreeToAnswer(line: Line | undefined): boolean {
  if (!line) return true;
  const { running, request, response } = line;
  if (running > 1) return false;
  return request.complete ? response.writableFinished : !response.headersSent;
}

const addressOf = (socket: Duplex | Socket) => canonicalAddress('remoteAddress' in socket ? (socket.remoteAddress ?? '') : '');

function parserFailure(code: string | undefined): Failure {
  if (code === 'HPE_HEADER_OVERFLOW') return new Failure('headers_too_large');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new Failure('request_timeout');
  return new Failure('invalid_request');
}
