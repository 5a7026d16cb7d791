import { digest, sameDigest } from '../crypto/token.ts';
import { bearerOf, type Guard } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { SecretsService } from './service.ts';

const message = 'Send the value of AUTH_TOKEN as "Authorization: Bearer …".';

/** AUTH_TOKEN or one of AUTH_TOKEN_PREVIOUS, compared in constant time. Needs no database. */
export const bearer: Guard<SecretsService, null> = {
  security: ['bearer'],
  errors: ['unauthorized', 'too_many_requests'],
  async check({ headers, network }, { tokens, limitGuesses, countToken }) {
    const token = bearerOf(headers.authorization);
    if (token === null) return new Failure('unauthorized', { message });
    const sent = digest(token);
    const find = async () => tokens.find((one) => sameDigest(one.digest, sent)) ?? null;
    const found = await limitGuesses(network, sent.toString('hex'), find);
    if (found === null) return new Failure('unauthorized', { message, credential: 'token' });
    if (found instanceof Failure) return found;
    countToken([found.name]);
    return null;
  },
};
