import { bearerOf } from '../platform/http/credentials/guess-limit.ts';
import { Failure, type Guard, type RequestInfo, type Route } from '../platform/http/route/route.ts';
import { trimBlanks } from '../platform/runtime/text.ts';
import { type CallerSession, isUsable, mayLogIn } from './model.ts';
import type { Caller } from './policy.ts';
import type { IdentityService } from './service.ts';
import { BeyondKey, RightsLost } from './store/rights.ts';
import { findKeyByDigest } from './store/keys.ts';
import { findCallerByToken } from './store/sessions.ts';
import {
  isOwnCredential,
  KEY_PREFIX,
  parseApiKey,
  parseSessionToken,
  plainToken,
} from './token.ts';

type Headers = RequestInfo['headers'];

const message =
  'Log in and send "Authorization: Bearer session:…", or send an API key as "Authorization: Bearer key:…".';

/** Ids of a caller, for the log. */
export const idsOf = ({ user, key, session }: Caller) => ({
  user_id: user?.id,
  key_id: key?.id,
  session_id: session?.id,
});

/**
 * A session token or an API key. An unauthenticated client costs two digests and one indexed
 * query at most.
 */
export const bearer = createGuard(findCallerByToken);
/**
 * Or the cookie of a browser behind a proxy. For reading only: a cookie alone must never change
 * anything.
 */
export const bearerOrCookie = createGuard(findCallerByToken, { readsCookie: true });

/** Finds a session by the hexadecimal digest of a token. */
type Find<Session> = (service: IdentityService, digest: string) => Promise<Session | null>;

/** @param options `readsCookie`: whether the session token may be in a cookie */
export function createGuard<Session extends CallerSession>(
  find: Find<Session>,
  { readsCookie = false } = {},
): Guard<IdentityService, Caller & { readonly session: Session | null }> {
  return {
    security: ['bearer', 'api_key', ...(readsCookie ? ['cookie'] : [])],
    errors: ['unauthorized', 'too_many_requests', 'service_failed'],
    idsOf,
    // Only the first credential present is checked; there is no fallback to the others.
    async check({ headers, network }, service) {
      const credential = ownCredential(headers);
      if (credential?.startsWith(KEY_PREFIX)) return checkKey(credential, network, service);
      const token = credential ?? (readsCookie ? sessionCookie(headers) : null);
      if (token === null) return new Failure('unauthorized', { message });
      return checkSession(parseSessionToken(token), network, service, find);
    },
  };
}

/**
 * The session token or API key of `Authorization` or `X-API-Key`, even a malformed one. Any other
 * credential, such as a JWT, is for the program behind a proxy and counts as missing.
 */
export function ownCredential({ authorization, 'x-api-key': key }: Headers) {
  const bearer = bearerOf(authorization);
  if (bearer !== null && isOwnCredential(bearer)) return bearer;
  return typeof key === 'string' && key.startsWith(KEY_PREFIX) ? key : null;
}

/** @param digest of a session token; null if it is malformed */
export async function checkSession<Session extends CallerSession>(
  digest: string | null,
  network: string,
  service: IdentityService,
  find: Find<Session>,
) {
  const session = await service.checkCredential(network, {
    kind: 'session',
    key: digest,
    message,
    find: (valid) => find(service, valid),
    // No guess: a browser may send a cookie long after its session has ended.
    isAllowed: ({ ended, user }) => !ended && mayLogIn(user),
  });
  if (session instanceof Failure) return session;
  service.lastSeen.mark(session);
  return { session, key: null, user: session.user };
}

async function checkKey(value: string, network: string, service: IdentityService) {
  const key = await service.checkCredential(network, {
    kind: 'key',
    key: parseApiKey(value),
    message,
    find: (digest) => findKeyByDigest(service, digest),
    isAllowed: isUsable,
  });
  if (key instanceof Failure) return key;
  service.lastSeen.mark(key);
  return { session: null, key, user: key.user };
}

/**
 * A change by a caller who loses the rights to it after the check gets what the next request would
 * get.
 */
export const withRightsLost = (row: Route<IdentityService>): Route<IdentityService> => ({
  ...row,
  answer: (request, service, readBody) =>
    row.answer(request, service, readBody).catch(async (error: unknown) => {
      if (error instanceof BeyondKey) return error.failure;
      if (!(error instanceof RightsLost)) throw error;
      if (row.failurePage) return new Failure('signin_needed', { headers: { Location: '/login' } });
      const caller = await bearer.check(request, service);
      const message =
        'Your rights changed while the request was waiting. Nothing was done. Check them, then retry.';
      return caller instanceof Failure ? caller : new Failure('forbidden', { message });
    }),
});

/**
 * The values of the cookies of this name. Only spaces and tabs are trimmed: `trim` would also take
 * a byte such as 0xa0, with which a neighboring host could plant a cookie that for the browser has
 * no `__Host-` prefix.
 */
export const cookiesOf = ({ cookie = '' }: Headers, name: string) =>
  cookie
    .split(';')
    .map(trimBlanks)
    .filter((pair) => pair.startsWith(`${name}=`))
    .map((pair) => pair.slice(name.length + 1));

/**
 * A neighboring host may have set one of two cookies of this name (RFC 6265, 8.6), so neither is
 * returned.
 */
export function cookieOf(headers: Headers, name: string) {
  const values = cookiesOf(headers, name);
  const value = values.length === 1 ? values[0] : undefined;
  // Some frameworks percent-encode the colon.
  return value?.replace(/%3a/i, ':') ?? null;
}

/**
 * Other programs use this name, too. Their cookies count as missing, because a wrong one would
 * count as a guess.
 */
function sessionCookie(headers: Headers) {
  const value = cookieOf(headers, 'session');
  return value !== null && plainToken(value) !== null ? value : null;
}
