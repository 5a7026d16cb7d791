import { digest, sameDigest } from '../crypto/token.ts';
import { bearerOf, type Guard } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { SecretsService } from './service.ts';

/** The bearer token of AUTH_TOKEN, compared in constant time. Needs no database. */
export const bearer: Guard<SecretsService, null> = {
  security: ['bearer'],
  errors: ['unauthorized'],
  async check(request, service) {
    const token = bearerOf(request.headers.authorization);
    if (token !== null && sameDigest(digest(token), service.authDigest)) return null;
    return new Failure('unauthorized', { message: 'Send the value of AUTH_TOKEN as "Authorization: Bearer …".' });
  },
};
