import { bearerOf, type Guard, type RequestInfo, type Route } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { type CallerSession, isUsable, mayLogIn } from './model.ts';
import type { Caller } from './policy.ts';
import type { IdentityService } from './service.ts';
import { RightsLost } from './store/audit.ts';
import { findKeyByDigest } from './store/keys.ts';
import { findCallerByToken } from './store/sessions.ts';
import { KEY_PREFIX, parseApiKey, parseSessionToken, plainToken } from './token.ts';

type Headers = RequestInfo['headers'];

const message =
  'Log in and send "Authorization: Bearer session:…", or send an API key as "Authorization: Bearer key:…".';
const refused = (credential: 'session' | 'key') =>
  new Failure('unauthorized', { message, credential });

/** A session token or an API key. An unauthenticated client costs one digest and one indexed query at most. */
export const bearer = createGuard(['bearer', 'api_key'], () => null, findCallerByToken);
/** Also the cookie of a browser behind a proxy. For reading only: a cookie alone must never change anything. */
export const bearerOrCookie = createGuard(
  ['bearer', 'api_key', 'cookie'],
  sessionCookie,
  findCallerByToken,
);

/** Finds a session by the hexadecimal digest of a token. */
type Find<Session> = (service: IdentityService, digest: string) => Promise<Session | null>;

export function createGuard<Session extends CallerSession>(
  security: readonly string[],
  cookie: (headers: Headers) => string | null,
  find: Find<Session>,
): Guard<IdentityService, Caller & { readonly session: Session | null }> {
  return {
    security,
    errors: ['unauthorized', 'too_many_requests', 'service_failed'],
    // Only the first credential present is checked; there is no fallback to the others.
    async check({ headers, network }, service) {
      const { authorization, 'x-api-key': header } = headers;
      // A malformed bearer credential is present too; another scheme is not ours.
      const token = bearerOf(authorization) ?? (/^bearer\b/i.test(authorization ?? '') ? '' : null);
      const key = token?.startsWith(KEY_PREFIX) ? token : token === null ? header : undefined;
      if (key !== undefined) return callerByKey(String(key), network, service);
      const value = token ?? cookie(headers) ?? '';
      if (value === '') return new Failure('unauthorized', { message });
      const session = await activeSession(parseSessionToken(value), network, service, find);
      return session instanceof Failure ? session : { session, key: null, user: session.user };
    },
    idsOf: ({ user, key, session }) => ({
      user_id: user?.id,
      key_id: key?.id,
      session_id: session?.id,
    }),
  };
}

/** A change by a caller who loses the rights to it after the check gets what the next request would get. */
export const withRightsLost = (row: Route<IdentityService>): Route<IdentityService> => ({
  ...row,
  answer: (request, service, readBody) =>
    row.answer(request, service, readBody).catch(async (error: unknown) => {
      if (!(error instanceof RightsLost)) throw error;
      if (row.failurePage) return new Failure('signin_needed', { headers: { Location: '/login' } });
      const caller = await bearer.check(request, service);
      const message =
        'Your rights changed while the request was waiting. Nothing was done. Check them, then retry.';
      return caller instanceof Failure ? caller : new Failure('forbidden', { message });
    }),
});

/** Of two cookies of this name, a neighboring host may have set one (RFC 6265, 8.6), so neither is returned. */
export function cookieOf(headers: Headers, name: string): string | null {
  const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim());
  const [found, duplicate] = pairs.filter((pair) => pair.startsWith(`${name}=`));
  // Some frameworks percent-encode the colon.
  return found && duplicate === undefined
    ? found.slice(name.length + 1).replace(/%3a/i, ':')
    : null;
}

/** Other programs use this name, too. Their cookies count as missing, because a wrong one would count as a guess. */
export function sessionCookie(headers: Headers): string | null {
  const value = cookieOf(headers, 'session');
  return value !== null && plainToken(value) !== null ? value : null;
}

/** A session that has ended does not count as a guess: a browser may send its cookie for any time. */
export async function activeSession<Session extends CallerSession>(
  digest: string | null,
  network: string,
  service: IdentityService,
  find: Find<Session>,
) {
  const session = await service.limitGuesses(network, digest, (known) => find(service, known));
  if (session instanceof Failure) return session;
  if (!session || session.ended || !mayLogIn(session.user)) return refused('session');
  markSeen(service, session);
  return session;
}

async function callerByKey(value: string, network: string, service: IdentityService) {
  const { database, limitGuesses } = service;
  const key = await limitGuesses(network, parseApiKey(value), (digest) =>
    findKeyByDigest(database, digest),
  );
  if (key instanceof Failure) return key;
  if (!key || !isUsable(key)) return refused('key');
  markSeen(service, key);
  return { session: null, key, user: key.user };
}

/** Beyond this number, the use is recorded with the next request. */
const MAX_PENDING = 10_000;
export function markSeen(
  { pendingLastSeen }: IdentityService,
  row: Pick<CallerSession, 'id' | 'last_seen_is_old'>,
) {
  if (row.last_seen_is_old && pendingLastSeen.size < MAX_PENDING) pendingLastSeen.add(row.id);
}
