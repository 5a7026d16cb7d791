import { bearerOf } from '../../platform/http/credentials/guess-limit.ts';
import { anonymous, type Call, Failure } from '../../platform/http/route/route.ts';
import { tokenDigest } from '../signin/browser.ts';
import { findAccess, type Grant } from '../store/oidc/grants.ts';
import { jsonReply, type OidcService } from './service.ts';

/** How a user proved to be one, by the names of RFC 8176. */
const METHODS: Readonly<Record<string, readonly string[]>> = {
  password: ['pwd'],
  'password, totp': ['pwd', 'otp', 'mfa'],
  'password, recovery': ['pwd', 'otp', 'mfa'],
  'password, passkey': ['pwd', 'pop', 'mfa'],
  passkey: ['pop', 'user', 'mfa'],
};

/** In log lines. */
export const idsOf = ({ id, client_id, user }: Pick<Grant, 'id' | 'client_id' | 'user'>) => ({
  ids: { grant_id: id, client_id, user_id: user.id },
});

/** When and how the user signed in. */
export const proofOf = ({ at, methods }: Grant) => ({
  auth_time: Math.floor(at.getTime() / 1000),
  amr: METHODS[methods] ?? ['pwd'],
});

/**
 * What a program learns of the user, by the scopes (OpenID Connect Core, 5.4). Groups are always an
 * array: some programs fail without one.
 */
export function claimsOf({ scopes, user }: Pick<Grant, 'scopes' | 'user'>) {
  const { id, first_name, last_name, username, email, verified, groups, updated_at } = user;
  const name = [first_name, last_name].filter(Boolean).join(' ') || username;
  const profile = {
    name,
    given_name: first_name || undefined,
    family_name: last_name || undefined,
    preferred_username: username,
    updated_at: Math.floor(updated_at.getTime() / 1000),
  };
  return {
    sub: id,
    ...(scopes.includes('profile') && profile),
    ...(scopes.includes('email') && { email, email_verified: verified }),
    ...(scopes.includes('groups') && { groups: [...groups].sort() }),
  };
}

// --- The endpoint

/** Checked by the handler, because the token may be in the body. */
export const accessToken = {
  ...anonymous,
  security: ['access_token'],
  isAnonymous: () => true,
};

/** RFC 6750, 3: with an error code only if there was a credential. */
const challenge = (error = '') => ({
  'WWW-Authenticate': `Bearer realm="gatehouse"${error && `, error="${error}"`}`,
});

/**
 * What the program may know of the user, as it is now (OpenID Connect Core, 5.3). The token dies
 * with its session, user, program or group. It is in the header or in a form (RFC 6750, 2).
 */
export async function userinfo(
  { request, body }: Call<null, unknown, unknown, URLSearchParams | null>,
  service: OidcService,
) {
  const tokens = [bearerOf(request.headers.authorization), body?.get('access_token') ?? null];
  const [token, another] = tokens.filter((given) => given !== null);
  if (token === undefined) return new Failure('unauthorized', { headers: challenge() });
  if (another !== undefined) {
    const message = 'Send the access token in one way only.';
    return new Failure('invalid_request', { message, headers: challenge('invalid_request') });
  }
  const access = await service.checkCredential(request.network, {
    kind: 'access token',
    key: tokenDigest(token),
    message: 'The access token is unknown or has ended. Sign in again at the program.',
    headers: challenge('invalid_token'),
    find: (digest) => findAccess(service, digest),
    isAllowed: ({ is_live, is_over }) => is_live === true && !is_over,
  });
  if (access instanceof Failure) return access;
  return { ...jsonReply(claimsOf(access)), ...idsOf(access) };
}
