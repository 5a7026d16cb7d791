import type { Database, Fragment, Sql } from '../../platform/db/pool.ts';
import type { Data } from '../../platform/runtime/errors.ts';
import type { Caller } from '../policy.ts';
import { type Actor, audited, type AuditEntry } from './audit.ts';
import { isActiveSql } from './rows.ts';

/** The actor has lost rights since the guard's check: nothing was changed. */
export class RightsLost extends Error {}

/** The actor may not make an administrator: nothing was changed. */
export class PromotionRefused extends Error {}

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
 * @throws RightsLost
 */
export async function lockAndCheckRights(sql: Sql, { caller }: Actor, target: string | null) {
  const targetId = target === EVERYONE ? null : target;
  // The user on whom the session or key depends.
  const ownerId = caller?.user?.id ?? caller?.key?.created_by ?? null;
  const wasAdministrator = caller?.user?.super_admin ?? false;
  const users = await sql<Array<{ id: string; has_rights: boolean }>>`
    select id, enabled and (super_admin or not ${wasAdministrator}) as has_rights
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
  return targetId === null || users.some(({ id }) => id === targetId);
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
