import type { Database, Fragment, Sql } from '../../platform/db/pool.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import type { Data } from '../../platform/runtime/errors.ts';
import { type Caller, isProvisioning } from '../policy.ts';
import { type Actor, audited, type AuditEntry } from './audit.ts';
import { isActiveSql } from './rows.ts';

/** The actor has lost rights since the guard's check: nothing was changed. */
export class RightsLost extends Error {}

/** The actor may not make an administrator: nothing was changed. */
export class PromotionRefused extends Error {}

/** A key would do more than it may: nothing was changed. */
export class BeyondKey extends Error {
  readonly failure: Failure<'forbidden'>;
  constructor(details: Failure['details']) {
    super();
    this.failure = new Failure('forbidden', details);
  }
}

const SUPER_ADMINISTRATOR = {
  message: 'A key with the right "provision" changes nothing of a super administrator.',
};

/** A provisioning key gives and takes only groups that it names. @throws BeyondKey */
export function checkGroups(
  { caller }: Actor,
  before: readonly string[],
  after: readonly string[],
) {
  if (!caller?.key || !isProvisioning(caller)) return;
  const named = caller.key.provision_groups;
  const isOther = (others: readonly string[]) => (name: string) =>
    !others.includes(name) && !named.includes(name);
  if (!after.some(isOther(before)) && !before.some(isOther(after))) return;
  const message = `must add and remove only groups of the key: ${named.join(', ')}`;
  throw new BeyondKey({ fields: [{ path: '/groups', message }] });
}

/** As the target of a change: the sessions of all users. */
export const EVERYONE = 'everyone';

/**
 * Locks the target of a change, and what the actor's rights depend on, to the end of the
 * transaction, and checks these rights as they are after any wait (ASVS 8.3.2). All changes lock in
 * one order, so that they cannot deadlock: users by id, what ends all sessions, the session or key,
 * then what they change. A session or key that has a user changes only under the lock of that user,
 * except by statements that lock nothing after it, such as a logout.
 * @param target the id of the user whom the change is about, or null
 * @returns whether there is such a user
 * @throws RightsLost  @throws BeyondKey
 */
export async function lockAndCheckRights(sql: Sql, { caller }: Actor, target: string | null) {
  const targetId = target === EVERYONE ? null : target;
  // The user on whom the session or key depends.
  const ownerId = caller?.user?.id ?? caller?.key?.created_by ?? null;
  const wasAdministrator = caller?.user?.super_admin ?? false;
  const users = await sql<Array<{ id: string; super_admin: boolean; has_rights: boolean }>>`
    select id, super_admin, enabled and (super_admin or not ${wasAdministrator}) as has_rights
      from identity.users
    where id in (${ownerId}, ${targetId})
      and deleted_at is null
    order by id for no key update`;
  const strength = target === EVERYONE ? sql`update` : sql`share`;
  await sql`select from identity.global_revocation for ${strength}`;
  if (caller && !(await lockCredential(sql, caller))) throw new RightsLost();
  if (ownerId !== null && !users.some((user) => user.id === ownerId && user.has_rights)) {
    throw new RightsLost();
  }
  const found = users.find(({ id }) => id === targetId);
  if (caller && isProvisioning(caller) && (target === EVERYONE || found?.super_admin)) {
    throw new BeyondKey(SUPER_ADMINISTRATOR);
  }
  return targetId === null || found !== undefined;
}

/**
 * @returns whether the session or key is still valid. The user may have got the first factor while
 * the request waited: a session by the password alone, which may be a thief's, is proven no more.
 */
async function lockCredential(sql: Sql, { session, key, user }: Caller) {
  const { count } = key
    ? await sql`
      select from identity.api_keys
      where id = ${key.id}
        and coalesce(expires_at > now(), true)
        and not revoked
        and deleted_at is null
      for share`
    : await sql`
      select from identity.sessions x
      where id = ${session?.id ?? null}
        and ${isActiveSql(sql, user?.id ?? null, 0)}
        and (methods <> 'password' or not ${session?.isProven ?? false}
          or not (select second_factor from identity.users where id = x.user_id))
      for share`;
  return count > 0;
}

/**
 * Waits for the lock and keeps it to the end of the transaction: for work that only one replica may
 * do at a time.
 */
export const takeNamedLock = (sql: Sql, name: string) => sql`
  insert into identity.locks (name, taken_at) values (${name}, now())
  on conflict (name) do update set taken_at = excluded.taken_at`;

/**
 * A change with the actor's rights, in one transaction.
 * @returns null without the target
 * @throws RightsLost
 */
export function changing<T extends Data>(
  database: Database,
  actor: Actor,
  target: string | null,
  work: (sql: Sql) => Promise<T>,
) {
  return database.transaction(async (sql) => {
    const isFound = await lockAndCheckRights(sql, actor, target);
    return isFound ? work(sql) : null;
  });
}

/**
 * One audited statement with the actor's rights.
 * @returns how many rows it changed; null without the target
 */
export const changeRows = (
  database: Database,
  entry: AuditEntry,
  target: string | null,
  change: (sql: Sql) => Fragment,
) =>
  changing(
    database,
    entry.actor,
    target,
    async (sql) => (await audited(sql, entry, change(sql))).length,
  );
