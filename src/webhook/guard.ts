import { bearerOf, type Guard, type RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { WebhookService } from './service.ts';
import type { Sender } from './store/tokens.ts';

/** An operator's token, as bearer only: what it opens is more than an address in a log file should. */
export const operator: Guard<WebhookService, Sender> = {
  security: ['bearer'],
  errors: ['unauthorized', 'unavailable'],
  async check(request, service) {
    const sender = await service.admit(bearerOf(request.headers.authorization));
    if (sender?.role === 'operator') return sender;
    return new Failure('unauthorized', { message: 'Send the token of an operator as "Authorization: Bearer …"; make one with: gatehouse token create --role operator' });
  },
};

function fromQuery({ query }: RequestInfo): string | null {
  const given = query.get('token') ?? [];
  return (given.length === 1 ? given[0] : null) ?? null;
}

/** The token in the query, as the specification has it, or as bearer, which no access log writes down (ASVS 14.2.1). */
export const token: Guard<WebhookService, Sender> = {
  security: ['token', 'bearer'],
  errors: ['unauthorized', 'unavailable'],
  async check(request, service) {
    const sender = await service.admit(bearerOf(request.headers.authorization) ?? fromQuery(request));
    if (sender?.role === 'sender') return sender;
    return new Failure('unauthorized', { message: 'Send a valid token as "Authorization: Bearer …" or in the query as ?token=….' });
  },
};
