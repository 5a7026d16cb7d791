import { digest } from '../crypto/token.ts';
import { bearerOf, type Guard, type RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { WebhookService } from './service.ts';
import { findTokenCaller, type Role, type TokenCaller } from './store/tokens.ts';

type TokenOf = (request: RequestInfo) => string | null;

const bearer: TokenOf = ({ headers }) => bearerOf(headers.authorization);

/** The bearer token takes precedence. A query with two tokens has none. */
export const bearerOrQuery: TokenOf = (request) => {
  const [token = null, ...others] = request.query.getAll('token');
  return bearer(request) ?? (others.length === 0 ? token : null);
};

function guard(role: Role, security: string[], tokenOf: TokenOf, message: string): Guard<WebhookService, TokenCaller> {
  return {
    security,
    errors: ['unauthorized', 'too_many_requests', 'unavailable'],
    async check(request, service) {
      const token = tokenOf(request);
      const caller = token === null ? null : await findCaller(token, request.network, service);
      if (caller instanceof Failure) return caller;
      if (!caller?.is_active || caller.role !== role) return refused(token, message);
      if (caller.last_seen_is_old) service.pendingLastSeen.add(caller.id);
      return caller;
    },
    idsOf: ({ id }) => ({ token_id: id }),
  };
}

export const refused = (token: string | null, message: string) =>
  new Failure('unauthorized', { message, ...(token !== null && { credential: 'token' }) });

function findCaller(token: string, network: string, { database, limitGuesses }: WebhookService) {
  const sent = digest(token);
  return limitGuesses(network, sent.toString('hex'), () => findTokenCaller(database, sent));
}

const SEND_AN_OPERATORS =
  'Send the token of an operator as "Authorization: Bearer …"; make one with: gatehouse token create --role operator';
export const SEND_A_TOKEN = 'Send a valid token as "Authorization: Bearer …" or in the query as ?token=….';

/** As bearer only: a token in a query ends up in access logs (ASVS 14.2.1). */
export const operator = guard('operator', ['bearer'], bearer, SEND_AN_OPERATORS);
/** As bearer or, as specified, in the query. */
export const sender = guard('sender', ['token', 'bearer'], bearerOrQuery, SEND_A_TOKEN);
