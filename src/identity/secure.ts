import type { Database } from '../platform/db/pool.ts';
import { Failure, routeDefaults } from '../platform/http/route/route.ts';
import { dateTime, object, oneOf, optional, text, uuid } from '../platform/http/route/schema.ts';
import { bearer } from './guard.ts';
import { type IdentityCall, refusalOf, unknown } from './policy.ts';
import type { IdentityService } from './service.ts';
import { endedText } from './sessions.ts';
import { type Actor, actorOf } from './store/audit.ts';
import { secureUser } from './store/secure.ts';
import { type Invitation, OWN_PASSWORD } from './users.ts';

/** What is done for an account that may have been stolen. */

const securedSchema = object({
  message: text(),
  status: oneOf('SECURED'),
  link: optional(text()),
  expires_at: optional(dateTime('Of the link, with which the user sets a password')),
});

/** With the sign-in pages, the reply has a link. */
export const secureRow = {
  ...routeDefaults,
  method: 'POST',
  pattern: '/api/user/{user_id}/secure',
  summary:
    'After a theft: end the sessions, keys, second factors, link and password of a user at once',
  guard: bearer,
  path: object({ user_id: uuid() }),
  reply: securedSchema,
  errors: ['signin_too_old', 'forbidden', 'not_found'],
} as const;

/**
 * @param invitation the link with which the user gets in again, if there can be one
 * @returns the reply, and how many second factors were removed
 */
export async function secureAccount(
  database: Database,
  actor: Actor,
  id: string,
  invitation: Invitation | null,
) {
  const secured = await secureUser(database, actor, id, invitation?.insert);
  if (!secured) return unknown('user');
  const { sessions, keys, factors, linkEnd } = secured;
  const message = `${endedText(sessions)} ended. Keys revoked: ${keys}. Second factors removed: ${factors}. The account has no password now.`;
  const expires_at = linkEnd === 'disabled' ? undefined : linkEnd;
  const link = expires_at && invitation?.link;
  return { factors, data: { message, status: 'SECURED' as const, link, expires_at } };
}

/** @param invitation as above */
export async function secure(
  { caller, path, request }: IdentityCall<{ user_id: string }>,
  service: IdentityService,
  invitation: Invitation | null = null,
) {
  const refused = refusalOf(caller, 'secure the account of a user');
  if (refused) return refused;
  const { user_id: id } = path;
  if (id === caller.user?.id) return OWN_PASSWORD;
  const secured = await secureAccount(service.database, actorOf(caller, request), id, invitation);
  if (secured instanceof Failure) return secured;
  if (secured.factors > 0) service.reportFactor('all', 'removed', id);
  return { data: secured.data };
}
