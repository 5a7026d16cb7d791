import { sha256, equalDigests } from '../platform/crypto/token.ts';
import { bearerOf } from '../platform/http/credentials/guess-limit.ts';
import { findUser } from '../platform/http/credentials/trusted-user.ts';
import { Failure, type Guard, type RequestInfo } from '../platform/http/route/route.ts';
import type { SecretsService } from './service.ts';
import { findToken, PREFIX } from './store/tokens.ts';

const RANKS = { anyone: 0, sender: 1, operator: 2 } as const;
type Role = keyof typeof RANKS;
/**
 * `creator` is recorded with a secret: `token:ID`, `id:ID` of a user, `user:NAME` of one whose id a
 * proxy does not say, or `anyone`; null for AUTH_TOKEN.
 */
export type Caller = Readonly<{ role: Role; creator: string | null; user?: string }>;

/** The creator whose secrets the caller may see; null for all secrets. */
export const ownOnly = ({ role, creator }: Caller) => (role === 'operator' ? null : creator);

const message =
  'Send AUTH_TOKEN or a token of "gatehouse secret token create" as "Authorization: Bearer …".';
const forbidden =
  'Only an operator can do this: send AUTH_TOKEN or a token with the role operator.';

const errors = ['unauthorized', 'too_many_requests', 'unavailable'] as const;

/** @param least the role that the route needs; `anyone` needs SHARE_ANYONE */
export const allow = (least: Role): Guard<SecretsService, Caller> => ({
  security: ['bearer'],
  errors: least === 'operator' ? [...errors, 'forbidden'] : errors,
  isAnonymous: ({ role }) => role === 'anyone',
  idsOf: ({ creator, user }) => ({ ...(creator && { creator }), ...(user && { user }) }),
  async check(request, service) {
    const token = bearerOf(request.headers.authorization);
    const caller =
      token === null
        ? await findVisitor(request, service)
        : await checkToken(token, request, service);
    if (caller instanceof Failure) return caller;
    if (caller === null || (caller.role === 'anyone' && least !== 'anyone')) {
      return new Failure('unauthorized', { message });
    }
    if (RANKS[caller.role] < RANKS[least]) return new Failure('forbidden', { message: forbidden });
    return caller;
  },
});

const ANYONE: Caller = { role: 'anyone', creator: 'anyone' };

/** Who sends a request without a token; a failure or null if this is not allowed. */
async function findVisitor(request: RequestInfo, { userSource, users, anyone }: SecretsService) {
  const user = await findUser(request, userSource, users);
  if (user instanceof Failure) return anyone ? ANYONE : user;
  if (!user?.isAllowed) return anyone ? ANYONE : null;
  const creator = user.id ? `id:${user.id}` : `user:${user.name}`;
  const caller: Caller = { role: 'sender', creator, user: user.name };
  return caller;
}

/** AUTH_TOKEN or one of AUTH_TOKEN_PREVIOUS, compared in constant time, or a named token. */
function checkToken(token: string, { network }: RequestInfo, service: SecretsService) {
  const sent = sha256(token);
  return service.checkCredential(network, {
    kind: 'token',
    key: sent.toString('hex'),
    message,
    async find(): Promise<Caller | null> {
      const found = service.tokens.find(({ digest }) => equalDigests(digest, sent));
      if (found) {
        service.countToken([found.name]);
        return { role: 'operator', creator: null };
      }
      const row = token.startsWith(PREFIX) ? await findToken(service.database, sent) : null;
      return row && { role: row.role, creator: `token:${row.id}` };
    },
  });
}
