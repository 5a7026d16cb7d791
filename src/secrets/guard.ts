import { digest, sameDigest } from '../crypto/token.ts';
import { bearerOf, type CallerIds, type Guard } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { type Caller, PREFIX, RANKS, type Role } from './caller.ts';
import type { SecretsService } from './service.ts';

const MESSAGE =
  'Send AUTH_TOKEN or a token of "gatehouse secret token create" as "Authorization: Bearer …".';
const FORBIDDEN =
  'Only an operator may do this: send AUTH_TOKEN or a token with the role operator.';

/** AUTH_TOKEN or one of AUTH_TOKEN_PREVIOUS, compared in constant time, or a named token. */
async function findCaller(
  token: string,
  { tokens, countToken, database }: SecretsService,
): Promise<Caller | null> {
  const sent = digest(token);
  const found = tokens.find((one) => sameDigest(one.digest, sent));
  if (found) countToken([found.name]);
  if (found) return { role: 'operator', creator: null };
  return token.startsWith(PREFIX)
    ? (await import('./store/tokens.ts')).findToken(database, sent)
    : null;
}

/** @param least the role that the route needs; `anyone` needs SHARE_ANYONE */
export const allow = (least: Role): Guard<SecretsService, Caller> => ({
  security: ['bearer'],
  errors: ['unauthorized', 'forbidden', 'too_many_requests', 'unavailable'],
  idsOf: ({ creator }: Caller): CallerIds => (creator === null ? {} : { creator }),
  async check(request, service) {
    const token = bearerOf(request.headers.authorization);
    const caller =
      token === null
        ? (service.visitor?.(request) ?? null)
        : await service.limitGuesses(request.network, digest(token).toString('hex'), () =>
            findCaller(token, service),
          );
    if (caller instanceof Failure) return caller;
    if (caller === null || (caller.role === 'anyone' && least !== 'anyone')) {
      return new Failure('unauthorized', {
        message: MESSAGE,
        ...(token !== null && { credential: 'token' }),
      });
    }
    return RANKS[caller.role] >= RANKS[least]
      ? caller
      : new Failure('forbidden', { message: FORBIDDEN });
  },
});
