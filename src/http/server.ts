import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { BlockList } from 'node:net';
import type { Duplex } from 'node:stream';
import { describeError, Overloaded, Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { clientAddress, networkOf } from './address.ts';
import type { CallerIds, Envelope, RouteMatcher } from './call.ts';
import { type Connection, createConnections, isFree } from './connections.ts';
import { type ErrorCode, Failure, type TextReply } from './errors.ts';
import { hostOf, isCrossSite } from './host.ts';
import { EARLY_ROUTES, PROBES } from './probes.ts';
import { type BodyReader, ClientGone } from './receive.ts';
import {
  renderAllow,
  renderFailure,
  renderRaw,
  renderSuccess,
  type RenderedReply,
  writeReply,
} from './reply.ts';
import { parseTarget } from './router.ts';

/** Node's defaults let a silent client hold a connection for minutes. */
const SERVER_OPTIONS = {
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  /** How often the two timeouts above are checked. */
  connectionsCheckingInterval: 1_000,
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
};
/** For routes without a credential. Their largest valid body is a login with a password of 4,096 characters. */
const MAX_ANONYMOUS_BODY = 8 * 1024;

/** How a service wraps its successes, and the error it returns if a dependency fails. */
export interface ResponseStyle {
  readonly envelope: Envelope;
  /** The specification requires 500 from identity; the others return 503. */
  readonly unavailable: Extract<ErrorCode, 'service_failed' | 'unavailable'>;
}

interface ListenerOptions {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  /** Called for the first requests that are not for `/livez`. */
  readonly routes: () => Promise<RouteMatcher>;
  readonly style: ResponseStyle;
  readonly maxBodyBytes: number;
  /** One for all listeners of a process. */
  readonly readBody: BodyReader;
  readonly trustedProxies: BlockList;
  readonly logProbes: boolean; // at the level info, which they would fill
  readonly log: Log;
  readonly metrics: Metrics;
}

/** One request and its reply. */
interface Exchange {
  readonly requestId: string;
  /** Of the log lines about the request. */
  readonly ids: Readonly<{ request_id: string; trace_id: string | undefined }>;
  readonly method: string;
  readonly address: string;
  readonly network: string;
  readonly isFromProxy: boolean;
  readonly startedAt: number;
  /** Method and pattern of the route. Never the path, which may contain a credential. */
  route: string;
  /** For the route of a page. */
  failurePage?: (failure: Failure) => TextReply;
  caller?: CallerIds;
  /** Missing, logged as status 0, if the client left before there was a reply. */
  rendered?: RenderedReply;
}

/** The only code that sees a socket. */
export function createListener({
  name,
  log,
  metrics,
  style,
  trustedProxies,
  ...options
}: ListenerOptions) {
  let inFlight = 0;
  let isClosing = false;
  let routes: RouteMatcher | null = null; // until the service is loaded
  metrics.gauge(
    'gatehouse_requests_in_flight',
    'Requests being processed.',
    { service: name },
    () => inFlight,
  );
  const labels = ['service', 'route'];
  const countRequest = metrics.counter('gatehouse_requests_total', 'Requests answered.', [
    ...labels,
    'status',
  ]);
  const countRejection = metrics.counter('gatehouse_requests_refused_total', 'Error replies.', [
    ...labels,
    'reason',
  ]);
  const refused = 'Credentials refused, by kind.';
  const countCredential = metrics.counter('gatehouse_credentials_refused_total', refused, [
    'service',
    'credential',
  ]);
  const closed =
    'Connections closed because of a limit on all connections, on a network, or on waiting requests.';
  const countClosed = metrics.counter('gatehouse_connections_closed_total', closed, [
    'service',
    'limit',
  ]);
  const connections = createConnections(trustedProxies, (limit) => countClosed([name, limit]));
  const observeDuration = metrics.histogram(
    'gatehouse_request_duration_seconds',
    'From head to reply.',
    labels,
  );

  async function answer(exchange: Exchange, request: IncomingMessage, begin: () => void) {
    const { headers, url = '' } = request;
    const { requestId, method, address, network, isFromProxy } = exchange;
    const target = parseTarget(url);
    if (!target) return new Failure('invalid_target');
    const host = hostOf(request, target.authority);
    if (host === null)
      return new Failure('invalid_request', { message: 'Send exactly one valid Host header.' });
    let match = (routes ?? EARLY_ROUTES)(method, target.segments);
    if (match instanceof Failure && !routes)
      match = (routes = await options.routes())(method, target.segments);
    if (match instanceof Failure) {
      return method === 'OPTIONS' && match.code === 'method_not_allowed'
        ? renderAllow(match.details.headers)
        : match;
    }
    const { route, parameters } = match;
    exchange.route = `${route.method} ${route.pattern}`;
    if (route.failurePage) exchange.failurePage = route.failurePage;
    const hosts = [
      host,
      ...(isFromProxy ? String(headers['x-forwarded-host'] ?? '').split(',') : []),
    ];
    // Before the credential is checked and before the request counts as an attempt.
    if (route.method !== 'GET' && isCrossSite(headers, hosts)) return new Failure('cross_site');
    const limit =
      route.security.length > 0
        ? options.maxBodyBytes
        : Math.min(options.maxBodyBytes, MAX_ANONYMOUS_BODY);
    const { path, query } = target;
    const info = { requestId, path, parameters, query, headers, address, network, isFromProxy };
    const outcome = await route.answer(info, {
      readBody: (own = limit) => options.readBody(request, own, network, begin),
      identified: (ids) => (exchange.caller = ids),
    });
    if (!(outcome instanceof Failure))
      return renderSuccess(outcome, route.success, style.envelope, requestId);
    const { credential } = outcome.details;
    if (credential !== undefined) {
      countCredential([name, credential]);
      log.limited('credential refused', {
        ...exchange.ids,
        route: exchange.route,
        ip: address,
        credential,
      });
    }
    return outcome;
  }

  /** The message of a foreign error never reaches the client. */
  function failureFor(error: unknown, exchange: Exchange): Failure {
    const fields = { ...exchange.ids, route: exchange.route, ...describeError(error) };
    if (error instanceof Overloaded) {
      log.limited('request rejected: overloaded', fields);
      return new Failure('overloaded');
    }
    log.error(error instanceof Unavailable ? 'dependency failed' : 'internal error', fields);
    return new Failure(error instanceof Unavailable ? style.unavailable : 'internal');
  }

  async function handle(
    request: IncomingMessage,
    response: ServerResponse,
    begin = () => {},
  ): Promise<void> {
    const connection = connections.all.get(request.socket);
    if (!connection) return void response.destroy();
    const exchange = startExchange(request, connection, trustedProxies);
    connections.begin(connection, { request, response });
    inFlight += 1;
    const reply = (outcome: RenderedReply | Failure) => {
      const isFailure = outcome instanceof Failure;
      exchange.rendered = isFailure
        ? renderFailure(outcome, exchange.requestId, exchange.failurePage)
        : outcome;
      const onSend = () => void connections.sending.add(connection);
      return writeReply(
        request,
        response,
        exchange.requestId,
        exchange.rendered,
        isClosing,
        onSend,
      );
    };
    try {
      if (response.socket === null && !(await connections.turn(connection, response))) return;
      await reply(await answer(exchange, request, begin));
    } catch (error) {
      if (error instanceof ClientGone) return;
      const failure = failureFor(error, exchange);
      // After the head, only a broken connection can show the failure.
      if (response.headersSent) return void response.destroy();
      await reply(failure);
    } finally {
      inFlight -= 1;
      connections.finish(connection);
      // A reply that was started before the shutdown has no `Connection: close`.
      if (isClosing) setImmediate(() => server.closeIdleConnections());
      finishExchange(exchange);
    }
  }

  function finishExchange({
    ids,
    method,
    route,
    address,
    startedAt,
    caller,
    rendered,
  }: Exchange): void {
    const seconds = (performance.now() - startedAt) / 1000;
    const status = rendered?.status ?? 0;
    if (rendered?.reason) countRejection([name, route, rendered.reason]);
    countRequest([name, route, String(status)]);
    observeDuration([name, route], seconds);
    const duration_ms = Math.round(seconds * 1e5) / 100;
    const write = PROBES.has(route) && !options.logProbes ? log.debug : log.info;
    const { request_id, trace_id } = ids; // by name: V8 takes microseconds for each member that follows a spread
    write('request', {
      request_id,
      trace_id,
      method,
      route,
      status,
      duration_ms,
      ip: address,
      ...caller,
    });
  }

  /** Replies to input that is not a request: there is no response object. */
  function refuse(socket: Duplex, code: ErrorCode): void {
    const connection = connections.all.get(socket);
    // The client would mistake an error instead of another reply, or within one, for that reply.
    if (!socket.writable || !connection || !isFree(connection)) return void socket.destroy();
    const exchange = startExchange({ headers: {} }, connection, trustedProxies);
    const rendered = renderFailure(new Failure(code), exchange.requestId);
    socket.end(renderRaw(rendered, exchange.requestId));
    finishExchange({ ...exchange, route: '(unreadable)', rendered });
  }

  const server = Object.assign(createServer(SERVER_OPTIONS), SERVER_LIMITS);
  server.on('connection', connections.open);
  server.on('request', handle);
  // Without this listener, Node sends 100 before the credential is checked.
  server.on('checkContinue', (request, response) =>
    handle(request, response, () => response.writeContinue()),
  );
  // Any other expectation may be ignored (RFC 9110, 10.1.1).
  server.on('checkExpectation', handle);
  server.on('clientError', ({ code = '' }: NodeJS.ErrnoException, socket: Duplex) => {
    if (code === 'ECONNRESET') socket.destroy();
    else refuse(socket, PARSER_ERRORS[code] ?? 'invalid_request');
  });
  // Not a proxy. Without this listener, Node closes the connection without a reply.
  server.on('connect', (_request, socket: Duplex) => {
    // Node no longer handles this socket: a reset would end the process, and an open one would outlive the shutdown.
    socket.on('error', () => {}).on('finish', () => socket.destroy());
    refuse(socket, 'invalid_request');
  });

  return {
    /** Resolves with the port once connections are accepted. Rejects if the port is in use. */
    async listen(): Promise<number> {
      await once(server.listen(options.port, options.host), 'listening');
      const bound = server.address();
      return typeof bound === 'object' && bound !== null ? bound.port : options.port;
    },
    /** Accepts no more requests, waits at most `graceMs` for those in flight, then closes all connections. */
    async close(graceMs: number): Promise<void> {
      isClosing = true;
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // Node counts a connection as idle only after its first request.
      for (const { socket } of connections.all.values())
        if (socket.bytesRead === 0) socket.destroy();
      const timer = setTimeout(() => server.closeAllConnections(), graceMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

type Head = Pick<IncomingMessage, 'headers' | 'method'>;

function startExchange(
  { headers, method = '' }: Head,
  { address, network }: Connection,
  proxies: BlockList,
): Exchange {
  const { 'x-request-id': given, 'x-forwarded-for': forwarded } = headers;
  const requestId =
    typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID();
  const [, trace_id] = TRACEPARENT.exec(String(headers.traceparent ?? '')) ?? [];
  const client =
    network === null ? clientAddress(address, String(forwarded ?? ''), proxies) : address;
  return {
    method,
    requestId,
    ids: { request_id: requestId, trace_id },
    address: client,
    network: network ?? networkOf(client),
    isFromProxy: network === null,
    startedAt: performance.now(),
    route: '(none)',
  };
}

/** W3C Trace Context, 3.2: version 00 has exactly these members, later ones may have more, and ff is invalid. */
const TRACEPARENT =
  /^(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;
const PARSER_ERRORS: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};
