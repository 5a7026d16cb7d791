import { bearerOf, type Guard, type RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { isActive, isUsable } from './model.ts';
import type { Caller } from './policy.ts';
import type { IdentityService } from './service.ts';
import { findKeyByDigest } from './store/keys.ts';
import { findCallerByToken } from './store/sessions.ts';
import { KEY_PREFIX, parseApiKey, parseSessionToken } from './token.ts';

type Headers = RequestInfo['headers'];

const UNAUTHORIZED = new Failure('unauthorized', {
  message: 'Log in and send "Authorization: Bearer session:…", or send an API key as "Authorization: Bearer key:…".',
});

/** A session token or an API key. An unauthenticated client costs one digest and one indexed query at most. */
export const bearer = createGuard(['bearer', 'api_key'], () => null);
/** Also the cookie of a browser behind a proxy. For reading only: a cookie alone must never change anything. */
export const bearerOrCookie = createGuard(['bearer', 'api_key', 'cookie'], sessionCookie);

function createGuard(
  security: readonly string[], cookieOf: (headers: Headers) => string | null,
): Guard<IdentityService, Caller> {
  return {
    security,
    errors: ['unauthorized', 'service_failed'],
    // Only the first credential present is checked; there is no fallback to the others.
    async check({ headers }, service) {
      const { authorization, 'x-api-key': header } = headers;
      // A malformed bearer credential is present too; another scheme is not ours.
      const token = bearerOf(authorization) ?? (/^bearer\b/i.test(authorization ?? '') ? '' : null);
      const key = token?.startsWith(KEY_PREFIX) ? token : token === null ? header : undefined;
      const caller = key === undefined
        ? await callerBySession(token ?? cookieOf(headers) ?? '', service)
        : await callerByKey(String(key), service);
      return caller ?? UNAUTHORIZED;
    },
  };
}

/** With two cookies of this name, a neighboring host may have planted one (RFC 6265, 8.6): then there is none. */
function sessionCookie(headers: Headers): string | null {
  const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim());
  const [found, duplicate] = pairs.filter((pair) => pair.startsWith('session='));
  // Some frameworks percent-encode the colon.
  return found && duplicate === undefined ? found.slice('session='.length).replace(/%3a/i, ':') : null;
}

async function callerBySession(value: string, service: IdentityService): Promise<Caller | null> {
  const token = parseSessionToken(value);
  const session = token && (await findCallerByToken(service, token));
  if (!session || !isActive(session)) return null;
  if (session.last_seen_is_old) markSeen(service.pendingLastSeen.sessions, session.id);
  return { session, key: null, user: session.user };
}

async function callerByKey(value: string, { database, pendingLastSeen }: IdentityService): Promise<Caller | null> {
  const digest = parseApiKey(value);
  const key = digest && (await findKeyByDigest(database, digest));
  if (!key || !isUsable(key)) return null;
  if (key.last_seen_is_old) markSeen(pendingLastSeen.keys, key.id);
  return { session: null, key, user: key.user };
}

/** Beyond this number, the use is recorded with the next request. */
const MAX_PENDING = 10_000;
const markSeen = (pending: Set<string>, id: string) => (pending.size < MAX_PENDING ? pending.add(id) : pending);
