import { sha256 } from '../../platform/crypto/token.ts';
import { bearerOf } from '../../platform/http/credentials/guess-limit.ts';
import { anonymous, type Call, Failure } from '../../platform/http/route/route.ts';
import { findAccess } from '../store/oidc/grants.ts';
import { claimsOf, idsOf } from './claims.ts';
import { jsonReply, type OidcService } from './service.ts';

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
    key: /^[\w-]{43}$/.test(token) ? sha256(token).toString('hex') : null,
    message: 'The access token is unknown or has ended. Sign in again at the program.',
    headers: challenge('invalid_token'),
    find: (digest) => findAccess(service, digest),
    isAllowed: ({ is_live, is_over }) => is_live === true && !is_over,
  });
  if (access instanceof Failure) return access;
  return { ...jsonReply(claimsOf(access)), ...idsOf(access) };
}
