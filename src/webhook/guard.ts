import { digest } from '../crypto/token.ts';
import { bearerOf, type Guard, type RequestInfo, type Route } from '../http/call.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import type { WebhookService } from './service.ts';
import { findTokenCaller, type KnownToken, type Role, type TokenCaller } from './store/tokens.ts';

type TokenOf = (request: RequestInfo) => string | null;

const bearer: TokenOf = ({ headers }) => bearerOf(headers.authorization);

/** The bearer token takes precedence. A query with two tokens has none. */
export const bearerOrQuery: TokenOf = (request) => {
  const [token = null, ...others] = request.query.getAll('token');
  return bearer(request) ?? (others.length === 0 ? token : null);
};

/** How long the token of a sender is kept in memory. */
const KEEP_MS = 5_000;

const keyOf = ({ network }: RequestInfo, sent: Buffer): string =>
  `${network} ${sent.toString('hex')}`;

function guard(role: Role, security: string[], tokenOf: TokenOf, message: string) {
  return {
    security,
    errors: ['unauthorized', 'too_many_requests', 'unavailable'],
    async check(
      request: RequestInfo,
      { database, limitGuesses, pendingLastSeen, senders }: WebhookService,
    ) {
      const token = tokenOf(request);
      if (token === null) return refused(null, message);
      const sent = digest(token);
      // Kept by network, so that each network that sends a right token is known to the limit of guesses.
      const key = keyOf(request, sent);
      const kept = role === 'sender' ? senders.get(key) : null;
      if (kept && kept.until > performance.now()) return kept.caller;
      const caller = await limitGuesses(request.network, sent.toString('hex'), () =>
        findTokenCaller(database, sent),
      );
      if (caller instanceof Failure) return caller;
      if (!caller?.is_active || caller.role !== role) return refused(token, message);
      if (caller.last_seen_is_old) pendingLastSeen.add(caller.id);
      const found = { ...caller, digest: sent, isKept: false };
      const until = performance.now() + KEEP_MS;
      if (role === 'sender') senders.set(key, { caller: { ...found, isKept: true }, until });
      return found;
    },
    idsOf: ({ id }: TokenCaller) => ({ token_id: id }),
  } satisfies Guard<WebhookService, KnownToken>;
}

export const refused = (token: string | null, message: string) =>
  new Failure('unauthorized', { message, ...(token !== null && { credential: 'token' }) });

const SEND_AN_OPERATORS =
  'Send the token of an operator as "Authorization: Bearer …"; make one with: gatehouse token create --role operator';
export const SEND_A_TOKEN =
  'Send a valid token as "Authorization: Bearer …" or in the query as ?token=….';

/** As bearer only: a token in a query ends up in access logs (ASVS 14.2.1). */
const operatorToken = guard('operator', ['bearer'], bearer, SEND_AN_OPERATORS);

/** The id of a token, or `user:` and a name. */
export type Operator = Pick<TokenCaller, 'id'>;

/** By a token, or without one by a proxy that names them. */
export const operator: Guard<WebhookService, Operator> = {
  ...operatorToken,
  async check(request, service) {
    const user = bearer(request) === null ? service.namedOperator(request) : null;
    return user === null ? operatorToken.check(request, service) : { id: `user:${user}` };
  },
  idsOf: ({ id }) => (id.startsWith('user:') ? { user: id.slice(5) } : { token_id: id }),
};
/** As bearer or, as specified, in the query. */
export const sender = guard('sender', ['token', 'bearer'], bearerOrQuery, SEND_A_TOKEN);

/** Looks the token up, even if it is kept. */
export function checkAgain(request: RequestInfo, service: WebhookService) {
  service.senders.set(keyOf(request, digest(bearerOrQuery(request) ?? '')), null);
  return sender.check(request, service);
}

/** Replies that are given before the handler runs. */
const EARLY = new Set<ErrorCode>([
  'unsupported_media_type',
  'body_too_large',
  'request_timeout',
  'overloaded',
]);

/** With an ended token that is still kept, such a reply would disclose more than 401. */
export const withTokenChecked = (row: Route<WebhookService>): Route<WebhookService> => ({
  ...row,
  async answer(request, service, hooks) {
    const outcome = await row.answer(request, service, hooks);
    if (!(outcome instanceof Failure) || !EARLY.has(outcome.code)) return outcome;
    const caller = await checkAgain(request, service);
    return caller instanceof Failure ? caller : outcome;
  },
});
