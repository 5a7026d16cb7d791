import { bearerOf } from '../crypto/token.ts';
import type { Guard } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { WebhookService } from './service.ts';

/**
 * The token in the query, as the specification has it, or as bearer, which no access log writes down (ASVS 14.2.1).
 * The caller is the sender's token id.
 */
export const token: Guard<WebhookService, string> = {
  security: ['token', 'bearer'],
  errors: ['unauthorized', 'unavailable'],
  async check(visitor, service) {
    const given = visitor.query.get('token') ?? [];
    const presented = bearerOf(visitor.headers.authorization) ?? (given.length === 1 ? given[0] : null) ?? null;
    const sender = await service.admit(presented);
    return sender ?? new Failure('unauthorized', { message: 'Send a valid token as "Authorization: Bearer …" or in the query as ?token=….' });
  },
};
