import { randomUUID } from 'node:crypto';
import type { Database, Fragment, Sql } from '../../platform/db/pool.ts';
import { arrayLiteral } from '../../platform/db/sql.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import type { AuditRecord } from '../model.ts';
import type { Caller } from '../policy.ts';
import { isActiveSql } from './rows.ts';

export const EVENTS = [
  'login.succeeded',
  'login.failed',
  'login.pending',
  'login.throttled',
  'session.logged_out',
  'session.revoked',
  'password.changed',
  'password.failed',
  'password.set',
  'user.created',
  'user.changed',
  'user.deleted',
  'user.secured',
  'key.created',
  'key.revoked',
  'link.created',
  'link.used',
  'link.late',
  'link.revoked',
  'factor.added',
  'factor.removed',
  'factor.failed',
  'recovery.used',
  'login.unlocked',
] as const;
export type AuditEvent = (typeof EVENTS)[number];

/** Who acts, and from where. `caller`: as the guard found it; null where no rights are needed. */
export type Actor = Readonly<{
  via: AuditRecord['via'];
  userId: string | null;
  ip: string | null;
  requestId: string | null;
  caller: Caller | null;
}>;

/** @param caller null for a request without a credential */
export function actorOf(caller: Caller | null, { address: ip, requestId }: RequestInfo): Actor {
  const unlessKey = caller?.session ? 'session' : 'nobody';
  const via = caller?.key ? 'key' : unlessKey;
  return { via, caller, userId: caller?.user?.id ?? null, ip, requestId };
}

/** Anyone who can run the command line. */
export const COMMAND_LINE: Actor = {
  via: 'command',
  userId: null,
  ip: null,
  requestId: null,
  caller: null,
};

/** The actor has lost rights since the guard's check: nothing was changed. */
export class RightsLost extends Error {}

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
    where id = any (${arrayLiteral([ownerId, targetId])}::text::uuid[])
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
 * A change with the actor's rights, in one transaction.
 * @returns null without the target
 * @throws RightsLost
 */
export function changing<T>(
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

/** `detail`: the program's own text, never a secret or a caller's text. */
export type AuditEntry = Readonly<{ event: AuditEvent; actor: Actor; detail?: string }>;

const insertInto = (sql: Sql, { event, actor, detail = '' }: AuditEntry, subject: Fragment) => sql`
  insert into identity.audit (id, event, via, actor_id, key_id, ip, request_id, detail, user_id,
    target_id, count)
  select ${randomUUID()}, ${event}, ${actor.via}, ${actor.userId}, ${actor.caller?.key?.id ?? null},
    ${actor.ip}, ${actor.requestId}, ${detail}, ${subject}`;

/** The user if the rows name only one, the id if there is one row, and how many there are. */
export const summarySql = (sql: Sql) => sql`
  case when count(distinct user_id) = 1 then (array_agg(user_id))[1] end as user_id,
  case when count(*) = 1 then (array_agg(id))[1] end as target_id, count(*)::int4 as count`;

/**
 * A change, and a row in the trail if it changes any row.
 * @param change returns at least `id` and `user_id` of each
 */
export async function audited<T extends object>(sql: Sql, entry: AuditEntry, change: Fragment) {
  const subject = sql`${summarySql(sql)} from change having count(*) > 0`;
  return sql<T[]>`
    with change as (${change}), noted as (${insertInto(sql, entry, subject)}) select * from change`;
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

/** @param userId whom it is about  @param targetId what changed, if it is not the user */
export const insertAudit = (
  sql: Sql,
  entry: AuditEntry,
  userId: string | null,
  count = 1,
  targetId = userId,
) => insertInto(sql, entry, sql`${userId}, ${targetId}, ${count}`);

/** An event without a change. */
export const auditEvent = (database: Database, entry: AuditEntry, userId: string) =>
  database.write((sql) => insertAudit(sql, entry, userId));
