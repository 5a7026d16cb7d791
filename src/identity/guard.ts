import { bearerOf, type Guard, type RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Caller } from './policy.ts';
import { isActive, isUsable } from './rules.ts';
import type { IdentityService } from './service.ts';
import type { Actor } from './store/audit.ts';
import { findKeyByDigest } from './store/keys.ts';
import { findCallerByToken } from './store/sessions.ts';
import { KEY_PREFIX, parseApiKey, parseSessionToken } from './token.ts';

type Credential = { readonly kind: 'session' | 'key'; readonly value: string };
type Headers = RequestInfo['headers'];

/** A session token or an API key. A stranger costs one parse, and a well-formed guess one digest and one indexed query. */
export const bearer: Guard<IdentityService, Caller> = {
  security: ['bearer', 'api_key'],
  errors: ['unauthorized', 'service_failed'],
  check: ({ headers }, service) => recognise(headerCredential(headers), service),
};

/** The same or a cookie, as a browser sends it to a proxy. Only for reading: a cookie alone must never change anything. */
export const bearerOrCookie: Guard<IdentityService, Caller> = {
  security: [...bearer.security, 'cookie'],
  errors: bearer.errors,
  check: ({ headers }, service) => recognise(headerCredential(headers) ?? cookieCredential(headers), service),
};

/** The first credential that is there counts, and no other is tried when it opens nothing. */
function headerCredential(headers: Headers): Credential | null {
  // A malformed one is there, too; another scheme is somebody else's affair.
  const token = bearerOf(headers.authorization) ?? (/^bearer\b/i.test(headers.authorization ?? '') ? '' : null);
  if (token !== null) return { kind: token.startsWith(KEY_PREFIX) ? 'key' : 'session', value: token };
  const key = headers['x-api-key'];
  return key === undefined ? null : { kind: 'key', value: String(key) };
}

/** Of two cookies of this name one may have been planted by a neighbouring host (RFC 6265, 8.6), so then there is none. */
function cookieCredential(headers: Headers): Credential | null {
  const named = (headers.cookie ?? '').split(';').map((pair) => pair.trim()).filter((pair) => pair.startsWith('session='));
  // Some frameworks percent-encode the colon.
  return named.length === 1 ? { kind: 'session', value: (named[0] ?? '').slice('session='.length).replace(/%3a/i, ':') } : null;
}

async function recognise(credential: Credential | null, service: IdentityService): Promise<Caller | Failure> {
  const caller = credential && (credential.kind === 'key' ? await byKey(credential.value, service) : await bySession(credential.value, service));
  return caller ?? new Failure('unauthorized', { message: 'Log in, and send the session token as "Authorization: Bearer session:…", or an API key as "Authorization: Bearer key:…".' });
}

async function bySession(value: string, service: IdentityService): Promise<Caller | null> {
  const token = parseSessionToken(value);
  const session = token && (await findCallerByToken(service, token));
  if (!session || !isActive(session)) return null;
  if (session.last_seen_is_old) markSeen(service.pendingLastSeen.sessions, session.id);
  return { session, key: null, user: session.user };
}

async function byKey(value: string, { database, pendingLastSeen }: IdentityService): Promise<Caller | null> {
  const digest = parseApiKey(value);
  const key = digest && (await findKeyByDigest(database, digest));
  if (!key || !isUsable(key)) return null;
  if (key.last_seen_is_old) markSeen(pendingLastSeen.keys, key.id);
  return { session: null, key, user: key.user };
}

/** More than are noted in five seconds wait for their next use. */
const MAX_SIGHTINGS = 10_000;
const markSeen = (seen: Set<string>, id: string) => (seen.size < MAX_SIGHTINGS ? seen.add(id) : seen);

/** For the trail. @param caller null for a request without a credential */
export function actorOf(caller: Caller | null, { address, requestId }: RequestInfo): Actor {
  const via = caller?.key ? 'key' : caller?.session ? 'session' : 'nobody';
  return { via, userId: caller?.user?.id ?? null, keyId: caller?.key?.id ?? null, ip: address, requestId };
}
