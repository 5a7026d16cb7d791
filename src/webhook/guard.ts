import { sha256 } from '../platform/crypto/token.ts';
import { bearerOf } from '../platform/http/credentials/guess-limit.ts';
import { findUser } from '../platform/http/credentials/trusted-user.ts';
import {
  type Call,
  type ErrorCode,
  Failure,
  type Guard,
  type RequestInfo,
  type Route,
} from '../platform/http/route/route.ts';
import type { Sender, WebhookService } from './service.ts';
import { sourceOf } from './order.ts';
import { findTokenCaller, type Role } from './store/tokens.ts';

/**
 * The bearer token takes precedence. A query with two tokens has none. Some senders append their
 * parameters with a second question mark, which no token has.
 */
export function bearerOrQuery({ headers, query }: RequestInfo) {
  const [token = '', ...others] = query.getAll('token');
  const isOnly = token !== '' && others.length === 0;
  return bearerOf(headers.authorization) ?? (isOnly ? token.replace(/\?.*/s, '') : null);
}

/** What to send, by the role that is needed. */
export const TOKEN_NEEDED = {
  operator:
    'Send an operator token as "Authorization: Bearer …"; make one with: gatehouse token create --role operator',
  sender: 'Send a valid token as "Authorization: Bearer …" or in the query as ?token=….',
} as const;

const WRONG_TOKEN = 'This operator token is not valid: it is mistyped, revoked or replaced.';
const OTHER_ROLE = {
  operator:
    'This is the token of a sender. The inbox needs the token of an operator; make one with: gatehouse token create --role operator',
  sender: 'This is the token of an operator, which sends no events.',
} as const;

const errors = ['unauthorized', 'too_many_requests', 'unavailable'] as const;

async function checkToken(
  role: Role,
  sent: Buffer,
  { network }: RequestInfo,
  { database, checkCredential, lastSeen }: WebhookService,
) {
  const caller = await checkCredential(network, {
    kind: 'token',
    key: sent.toString('hex'),
    message: role === 'operator' ? WRONG_TOKEN : TOKEN_NEEDED[role],
    find: () => findTokenCaller(database, sent),
    isAllowed: (found) => found.is_active,
  });
  if (caller instanceof Failure) return caller;
  if (caller.role !== role)
    return new Failure('unauthorized', { message: OTHER_ROLE[role], credential: 'token' });
  lastSeen.mark(caller);
  return caller;
}

/** The id of a token, or `user:` and a name, which is also the `user`. */
type Operator = Readonly<{ id: string; user?: string }>;
export type OperatorCall<Path = unknown, Body = null, Search = unknown> = Call<
  Operator,
  Path,
  Search,
  Body
>;

export const notAllowed = (name: string) =>
  `You are signed in as ${name}, who may not use the inbox. INBOX_USERS lists who may.`;

/**
 * By a token, or without one by a proxy that names them. As bearer only: a token in a query ends up
 * in access logs (ASVS 14.2.1).
 */
export const operator: Guard<WebhookService, Operator> = {
  security: ['bearer'],
  errors,
  async check(request, service) {
    const token = bearerOf(request.headers.authorization);
    if (token !== null) return checkToken('operator', sha256(token), request, service);
    const { names, source } = service.inboxUsers;
    const user = await findUser(request, source, names);
    if (user instanceof Failure) return user;
    if (user?.isAllowed) return { id: `user:${user.name}`, user: user.name };
    const message = user ? notAllowed(user.name) : TOKEN_NEEDED.operator;
    return new Failure('unauthorized', { message });
  },
  idsOf: ({ id, user }) => (user === undefined ? { token_id: id } : { user }),
};

/** How long the token of a sender is cached. */
const CACHE_MS = 5_000;

/** Of a cached sender. By network too, so that the limit of guesses learns of each network. */
const keyOf = ({ network }: RequestInfo, digest: Buffer) => `${network} ${digest.toString('hex')}`;

/** @param maxAgeMs how long ago the token may have been looked up */
async function findSender(request: RequestInfo, service: WebhookService, maxAgeMs: number) {
  const token = bearerOrQuery(request);
  if (token === null) return new Failure('unauthorized', { message: TOKEN_NEEDED.sender });
  const digest = sha256(token);
  const key = keyOf(request, digest);
  const cached = service.senders.get(key);
  if (cached && performance.now() - cached.foundAt < maxAgeMs) return cached.caller;
  const found = await checkToken('sender', digest, request, service);
  if (found instanceof Failure) {
    if (cached) service.senders.set(key, null);
    return found;
  }
  const caller = { ...found, format: sourceOf(found) };
  service.senders.set(key, { caller, foundAt: performance.now() });
  return caller;
}

export const lookUpSender = (request: RequestInfo, service: WebhookService) =>
  findSender(request, service, 0);

/** As bearer or, as specified, in the query. The token may be cached: see `receive`. */
export const sender: Guard<WebhookService, Sender> = {
  security: ['token', 'bearer'],
  errors,
  check: (request, service) => findSender(request, service, CACHE_MS),
  idsOf: ({ id }) => ({ token_id: id }),
};

/** Replies that are given before the handler runs. */
const EARLY = new Set<ErrorCode>([
  'unsupported_media_type',
  'body_too_large',
  'request_timeout',
  'overloaded',
]);

/**
 * Counts refused requests, because senders rarely show their operator what they were answered. With
 * an ended token that is still cached, an early reply would disclose more than 401, so the token is
 * looked up.
 */
export const withRefusalsCounted = (row: Route<WebhookService>): Route<WebhookService> => ({
  ...row,
  async answer(request, service, readBody) {
    const outcome = await row.answer(request, service, readBody);
    if (!(outcome instanceof Failure)) return outcome;
    const caller = EARLY.has(outcome.code) ? await lookUpSender(request, service) : null;
    const failure = caller instanceof Failure ? caller : outcome;
    const sent = sha256(bearerOrQuery(request) ?? '');
    const known = service.senders.get(keyOf(request, sent))?.caller;
    const { message = '', fields: [field] = [] } = failure.details;
    const told = field ? `${field.path} ${field.message}` : message;
    service.unstored.add(known, failure.code, told, request.address);
    return failure;
  },
});
