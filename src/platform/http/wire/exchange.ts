import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { BlockList } from 'node:net';
import { describeError, Overloaded, TooSlow, Unavailable } from '../../runtime/errors.ts';
import type { Log } from '../../runtime/log.ts';
import type { Metrics } from '../../runtime/metrics.ts';
import type { BodyReader } from './body-reader.ts';
import type { HeldBody } from './held-bodies.ts';
import type { ReceivedRequest } from './received.ts';
import { renderEmpty, renderSuccess } from './reply.ts';
import { Failure, type FailurePage } from '../route/errors.ts';
import type { ResponseStyle, RouteMatcher } from '../route/route.ts';
import { hostOf, parseTarget } from '../route/router.ts';

export type ListenerOptions = Readonly<{
  name: string;
  host: string;
  port: number;
  routes: RouteMatcher;
  style: ResponseStyle;
  maxBodyBytes: number;
  /** One for all listeners of a process. */
  bodies: BodyReader;
  trustedProxies: BlockList;
  logProbes: boolean; // at level info; otherwise at debug, because they are frequent
  logRequests: (typeof LOG_REQUESTS)[number]; // at level info; the others at debug
  log: Log;
  metrics: Metrics;
  /** Whether clients should go to another replica. */
  isLeaving: () => boolean;
  /** Shows a person that an address does not exist. */
  failurePage?: FailurePage;
  answerMs?: number; // how long a request may wait for its reply
}>;

/** For routes without a credential, unless the body itself needs more. */
const MAX_ANONYMOUS_BODY = 8 * 1024;

const ALL_METHODS = 'DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT';

const INVALID_HOST = new Failure('invalid_request', {
  message: 'Send exactly one valid Host header.',
});
/** Its body would be read as if it were not encoded (RFC 9112, 6.1). */
const UNKNOWN_CODING = new Failure('invalid_request', {
  message: 'The only supported transfer coding is chunked.',
  headers: { Connection: 'close' },
});

/**
 * @param held what has arrived of the body
 * @param sendContinue is called before a byte of the body is read
 * @returns what the request gets; throws what a handler throws
 */
export async function answer(
  { routes, style, maxBodyBytes, bodies, failurePage }: ListenerOptions,
  received: ReceivedRequest,
  request: IncomingMessage,
  held: HeldBody,
  sendContinue: () => void,
) {
  const { method, headers, network, isFromProxy, progress } = received;
  if (headers.accept?.includes('text/html')) progress.failurePage = failurePage;
  const target = parseTarget(request.url ?? '');
  const host = hostOf(request, target?.authority ?? null);
  if (host === null) return INVALID_HOST;
  // Asks what the server supports (RFC 9110, 9.3.7).
  const isAboutServer = method === 'OPTIONS' && request.url === '*';
  if (isAboutServer) return renderEmpty(204, { Allow: ALL_METHODS });
  if (!target) return new Failure('invalid_target');
  const { path, query, segments } = target;
  if (!/^(chunked)?$/i.test(headers['transfer-encoding'] ?? '')) return UNKNOWN_CODING;

  const match = routes(method, segments);
  if (match instanceof Failure) return withoutRoute(match, received, path, routes);
  const { route: row, parameters } = match;
  const route = `${row.method} ${row.pattern}`;
  progress.route = route;
  progress.errors = row.errors;
  progress.failurePage = row.failurePage;

  // The cross-site check comes before the credential check, and before the request counts as an
  // attempt.
  const forwarded = isFromProxy ? String(headers['x-forwarded-host'] ?? '').split(',') : [];
  const page = pageOf(headers, [host, ...forwarded]);
  const isAllowed = row.method === 'GET' || row.anySite === true;
  if (!isAllowed && page === 'foreign') return new Failure('cross_site');
  if (held.failure) return held.failure;

  // The copy comes last, because V8 is slow to add members to one.
  const info = {
    isFromOwnPage: page === 'own',
    path,
    query,
    parameters,
    route,
    ...received,
  };
  const outcome = await row.answer(info, (isAnonymous, maxBytes, leastBytes = 0) => {
    const most = isAnonymous ? Math.min(maxBodyBytes, MAX_ANONYMOUS_BODY) : maxBodyBytes;
    // Only a body that says that it is larger counts with more while it is received.
    const isLarger = Number(headers['content-length']) > most;
    const limit = maxBytes ?? (isLarger ? Math.max(most, leastBytes) : most);
    return bodies.read(request, limit, network, isAnonymous, () => {
      held.release();
      sendContinue();
    });
  });
  if (outcome instanceof Failure) return outcome;
  if ('ids' in outcome) progress.callerIds = Object.assign({}, progress.callerIds, outcome.ids);
  return renderSuccess(outcome, row.success, style.wrapping, received.requestId);
}

/** Mail programs and chats encode the "#" of links, some of them twice. */
const ENCODED_FRAGMENT = /^(.+?)%(?:25)*23(.+)$/;

function withoutRoute(
  failure: Failure,
  { method, progress }: ReceivedRequest,
  path: string,
  routes: RouteMatcher,
) {
  const [, page = '', fragment] = ENCODED_FRAGMENT.exec(path) ?? [];
  const isPage = !(routes(method, parseTarget(page)?.segments ?? []) instanceof Failure);
  if (isPage && progress.failurePage) return renderEmpty(303, { Location: `${page}#${fragment}` });
  const { Allow = '' } = failure.details.headers ?? {};
  return method === 'OPTIONS' && Allow.includes(method) ? renderEmpty(204, { Allow }) : failure;
}

/**
 * Which page sent the request, by the headers of browsers. Other clients send neither header.
 * @param hosts under which this listener is known to the browser
 */
function pageOf(headers: IncomingHttpHeaders, hosts: readonly string[]) {
  const { 'sec-fetch-site': site, origin } = headers;
  if (site === 'same-origin') return 'own';
  if (site !== undefined) return site === 'none' ? 'none' : 'foreign';
  if (origin === undefined) return 'none';
  // A proxy that terminates TLS changes the scheme, but the origin's scheme determines the default
  // port.
  const hostIn = (url: string) => (URL.canParse(url) ? new URL(url).host : null);
  const sender = hostIn(origin);
  const scheme = origin.split('//', 1)[0];
  const known = hosts.map((host) => hostIn(`${scheme}//${host.trim()}`));
  return sender !== null && known.includes(sender) ? 'own' : 'foreign';
}

/** @returns the reply for what a handler has thrown: never a message that is not ours */
export function failureFor(
  error: unknown,
  { ids, progress: { route, errors } }: ReceivedRequest,
  { log, style }: ListenerOptions,
) {
  const fields = {
    ...ids,
    route,
    ...describeError(error),
  };
  if (error instanceof Overloaded) {
    log.limited('request rejected: overloaded', fields);
    return new Failure('overloaded');
  }
  if (error instanceof TooSlow && errors?.includes('too_slow')) {
    log.limited('list took too long', fields);
    return new Failure('too_slow');
  }
  if (error instanceof Unavailable) {
    log.error('dependency failed', fields);
    return new Failure(style.unavailable);
  }
  log.error('internal error', fields);
  return new Failure('internal');
}

/** Balancers, container platforms and Prometheus ask every few seconds. */
const PROBES: ReadonlySet<string> = new Set(['GET /livez', 'GET /readyz', 'GET /metrics']);

export const LOG_REQUESTS = ['all', 'errors', 'none'] as const;
/** The lowest status whose requests are logged. */
const LEAST_STATUS = {
  all: 0,
  errors: 400,
  none: Infinity,
};

/** @returns counts and logs a request of one listener, once it is over */
export function createRequestLog(options: ListenerOptions) {
  const { name, logProbes, logRequests, log, metrics } = options;
  const { counter, histogram } = metrics;
  const labels = ['service', 'route'];
  const count = counter('gatehouse_requests_total', 'Requests answered.', [...labels, 'status']);
  const countRejection = counter('gatehouse_requests_refused_total', 'Error replies.', [
    ...labels,
    'reason',
  ]);
  const countCredential = counter(
    'gatehouse_credentials_refused_total',
    'Credentials refused, by kind.',
    ['service', 'credential'],
  );
  const observe = histogram('gatehouse_request_duration_seconds', 'From head to reply.', labels);
  return ({ ids, method, address: ip, startedAt, progress }: ReceivedRequest) => {
    const { route, callerIds, reply, credential } = progress;
    const seconds = (performance.now() - startedAt) / 1000;
    const status = reply?.status ?? 0;
    if (reply?.reason) countRejection([name, route, reply.reason]);
    if (credential !== undefined) {
      countCredential([name, credential]);
      log.limited('credential refused', {
        ...ids,
        route,
        ip,
        credential,
      });
    }
    count([name, route, String(status)]);
    observe([name, route], seconds);
    const duration_ms = Math.round(seconds * 1e5) / 100;
    const isLogged = PROBES.has(route) ? logProbes : status >= LEAST_STATUS[logRequests];
    const write = isLogged ? log.info : log.debug;
    // By name: V8 takes microseconds for each member that follows a spread.
    const { request_id, trace_id } = ids;
    write(
      'request',
      {
        request_id,
        trace_id,
        method,
        route,
        status,
        duration_ms,
        ip,
      },
      callerIds,
    );
  };
}
