import { randomToken } from '../../platform/crypto/token.ts';
import type { Database } from '../../platform/db/pool.ts';
import { type Call, Failure } from '../../platform/http/route/route.ts';
import {
  boolean,
  dateTime,
  type Infer,
  object,
  text,
  withDefault,
} from '../../platform/http/route/schema.ts';
import { type Caller, refusalOf, unknown } from '../policy.ts';
import type { PortalService } from '../service.ts';
import type { Portal } from '../settings.ts';
import { type Actor, actorOf } from '../store/audit.ts';
import { changing } from '../store/rights.ts';
import { insertLink, revokeLink } from '../store/signin/links.ts';
import { OWN_PASSWORD } from '../users.ts';

/** Links with which users set a password: invitations and resets. */

export const linkBody = object({ remove_factors: withDefault(boolean(), false) }, 'rejected');
export const linkSchema = object({
  link: text({ description: 'Shown only here. Give it to the user, who opens it in a browser' }),
  expires_at: dateTime('Until then, or until it is used, or until another is made'),
});

/**
 * The token stands in the fragment, which browsers send neither to a server nor as a referrer: so
 * it gets into no log of a proxy.
 */
export function createLink({ origin, linkSeconds }: Portal, removesFactors = false) {
  const token = randomToken();
  return {
    link: `${origin}/link#${token}`,
    insert: insertLink(token, removesFactors, linkSeconds),
  };
}

/** For how many hours a new link is open. */
export const hoursOf = ({ linkSeconds }: Portal) => Math.floor(linkSeconds / 3_600);

const DISABLED = new Failure('conflict', {
  message: 'The user is disabled. Enable the user first.',
});

/** @returns a new link of the user, which replaces the earlier one, and when it ends */
export async function makeLink(
  database: Database,
  portal: Portal,
  actor: Actor,
  userId: string,
  removesFactors: boolean,
) {
  const { link, insert } = createLink(portal, removesFactors);
  const expires_at = await changing(database, actor, userId, (sql) => insert(sql, actor, userId));
  if (!expires_at) return unknown('user');
  return expires_at === 'disabled' ? DISABLED : { link, expires_at };
}

/** A link sets a password, so it needs the same right. */
type LinkCall<Body> = Call<Caller, { user_id: string }, unknown, Body>;

export async function make(
  { caller, path, body, request }: LinkCall<Infer<typeof linkBody>>,
  { database, portal }: PortalService,
) {
  const action = body.remove_factors ? 'remove factors of a user' : 'make or end a link';
  const refused = refusalOf(caller, action);
  if (refused) return refused;
  if (path.user_id === caller.user?.id) return OWN_PASSWORD;
  const actor = actorOf(caller, request);
  const made = await makeLink(database, portal, actor, path.user_id, body.remove_factors);
  return made instanceof Failure ? made : { data: made };
}

export async function revoke(
  { caller, path, request }: LinkCall<unknown>,
  { database }: PortalService,
) {
  const refused = refusalOf(caller, 'make or end a link');
  if (refused) return refused;
  const count = await revokeLink(database, actorOf(caller, request), path.user_id);
  if (count === null) return unknown('user');
  const message = count === 1 ? 'Link revoked.' : 'The user has no open link.';
  return { data: { message, status: 'REVOKED' as const } };
}
