import { sha256 } from '../../platform/crypto/token.ts';
import { bearerOf } from '../../platform/http/credentials/guess-limit.ts';
import { type Call, Failure, type Guard } from '../../platform/http/route/route.ts';
import { findAccess } from '../store/oidc/grants.ts';
import { claimsOf } from './claims.ts';
import { jsonReply, type OidcService } from './service.ts';

type Access = NonNullable<Awaited<ReturnType<typeof findAccess>>>;

/** RFC 6750, 3: with an error code only if there was a credential. */
const challenge = (error = '') => ({
  'WWW-Authenticate': `Bearer realm="gatehouse"${error && `, error="${error}"`}`,
});

/** An access token of a program: it dies with its session, user, program or group. */
export const accessToken: Guard<OidcService, Access> = {
  security: ['access_token'],
  errors: ['unauthorized', 'too_many_requests', 'service_failed'],
  idsOf: ({ id, client_id, user_id }) => ({ grant_id: id, client_id, user_id }),
  async check({ headers, network }, service) {
    const token = bearerOf(headers.authorization);
    if (token === null) return new Failure('unauthorized', { headers: challenge() });
    const access = await service.checkCredential(network, {
      kind: 'access token',
      key: /^[\w-]{43}$/.test(token) ? sha256(token).toString('hex') : null,
      message: 'The access token is unknown or has ended. Sign in again at the program.',
      find: (digest) => findAccess(service, digest),
      isAllowed: ({ is_live }) => is_live,
    });
    if (!(access instanceof Failure)) return access;
    const isWrong = access.code === 'unauthorized';
    const details = isWrong ? { headers: challenge('invalid_token') } : {};
    return new Failure(access.code, { ...access.details, ...details });
  },
};

/** What the program may know of the user, as it is now (OpenID Connect Core, 5.3). */
export const userinfo = async ({ caller }: Call<Access, unknown, unknown, unknown>) =>
  jsonReply(claimsOf(caller));
