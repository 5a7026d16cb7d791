import { randomUUID } from 'node:crypto';
import { arrayLiteral } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import type { AuditRecord, AuditView } from '../model.ts';
import { countRows, idsOfPage, type Page, type PageOf } from './rows.ts';

export const EVENTS = [
  'login.succeeded', 'login.failed', 'login.throttled', 'session.logged_out', 'session.revoked', 'password.changed',
  'password.failed', 'password.set', 'user.created', 'user.changed', 'user.deleted', 'key.created', 'key.revoked',
  'factor.added', 'factor.removed', 'factor.failed', 'recovery.used',
] as const;
export type AuditEvent = (typeof EVENTS)[number];

/** What the guard found, and a change needs at its time. `ownerId`: the user on whom the session or key depends. */
type Rights = Readonly<{ sessionId: string | null; ownerId: string | null; isAdministrator: boolean }>;

/** Who acts, and from where. `rights`: null where none are needed, or where the transaction holds them. */
export type Actor = Readonly<{
  via: AuditView['via']; userId: string | null; keyId: string | null; ip: string | null; requestId: string | null;
  rights: Rights | null;
}>;

/** Anyone who can run the command line. */
export const COMMAND_LINE: Actor =
  { via: 'command', userId: null, keyId: null, ip: null, requestId: null, rights: null };

/** The actor has lost rights since the guard's check: nothing was changed. */
export class RightsLost extends Error {}

/**
 * Parts of a statement: locks what the actor's rights depend on, as it is after any wait, to the end of the transaction
 * (ASVS 8.3.2). Without them, `actor` has no row. All changes lock in one order, so that they cannot deadlock: users by
 * id, what ends all sessions, the session or key, then what they change. A session or key that has a user changes only
 * under the lock of that user.
 * @param target the user whom the change is about
 */
function holding(sql: Sql, { rights, keyId }: Actor, target: string | null): Fragment {
  const { ownerId = null, sessionId = null, isAdministrator = false } = rights ?? {};
  const userId = target === EVERYONE ? null : target;
  const session = sql`
    join identity.sessions c on c.id = ${sessionId} and c.expires_at > now() and not c.logged_out
      and c.created_at > coalesce(greatest(a.sessions_end_at, g.sessions_end_at), '-infinity')`;
  const key = sql`join identity.api_keys c on c.id = ${keyId} and coalesce(c.expires_at > now(), true)`;
  return sql`
    accounts as materialized (
      select max(sessions_end_at) filter (where id = ${ownerId}) as sessions_end_at,
        ${ownerId === null} or bool_or(id = ${ownerId} and enabled and (super_admin or not ${isAdministrator})) as may,
        ${userId === null} or bool_or(id = ${userId}) as has_target
      from (select * from identity.users where id = any (${arrayLiteral([ownerId, userId])}::text::uuid[])
        and deleted_at is null order by id for no key update) locked
    ), actor as materialized (
      select a.has_target from accounts a cross join identity.global_revocation g
      ${rights === null ? sql`where true` : sql`${sessionId === null ? key : session}
        and not c.revoked and c.deleted_at is null where a.may`}
      for ${target === EVERYONE ? sql`update` : sql`share`} of g ${rights === null ? sql`` : sql`for share of c`}
    )`;
}

/** As a target: the sessions of all users. */
export const EVERYONE = 'everyone';

/**
 * For a transaction: locks the target, and the actor's rights until it ends.
 * @returns the actor for all that follows, or null if there is no such target  @throws RightsLost
 */
export async function hold(sql: Sql, actor: Actor, target: string): Promise<Actor | null> {
  const [held] = await sql<Array<{ has_target: boolean | null }>>`
    with ${holding(sql, actor, target)} select has_target from actor`;
  if (!held) throw new RightsLost();
  return held.has_target ? { ...actor, rights: null } : null;
}

/** `detail`: the program's own text, never a secret or a caller's text. `target`: the user to lock with the actor's. */
export type AuditEntry = Readonly<{ event: AuditEvent; actor: Actor; detail?: string; target?: string | null }>;

type Subject = Readonly<{ userId: string | null; targetId: string | null; count: number }>;

const insertInto = (sql: Sql, { event, actor, detail = '' }: AuditEntry, subject: Fragment): Fragment => sql`
  insert into identity.audit (id, event, via, actor_id, key_id, ip, request_id, detail, user_id, target_id, count)
  select ${randomUUID()}::uuid, ${event}::text, ${actor.via}::text, ${actor.userId}::uuid, ${actor.keyId}::uuid,
    ${actor.ip}::text, ${actor.requestId}::text, ${detail}::text, ${subject}`;

/** A condition of each change: false without the actor's rights, or without the target. */
export const isAllowed = (sql: Sql): Fragment => sql`exists (select from actor where has_target)`;

/**
 * A change and its row in the trail in one statement: both commit, or neither does.
 * @param change has the condition `isAllowed`, unless a transaction holds the rights; returns `id` and `user_id` of
 * each changed row, and any columns the caller needs
 * @param parts more parts of the statement, as `, name as (…)`, which may use the rows of `change`
 * @returns the changed rows, or those of `result`; no changed row means no row in the trail either  @throws RightsLost
 */
export async function audited<T extends object>(
  sql: Sql, entry: AuditEntry, change: Fragment, parts: Fragment = sql``, result: Fragment = sql`select * from change`,
): Promise<T[]> {
  const subject = sql`
    case when count(distinct user_id) = 1 then (array_agg(user_id))[1] end,
    case when count(*) = 1 then (array_agg(id))[1] end, count(*) from change having count(*) > 0`;
  const { actor, target = null } = entry;
  const held = actor.rights || target ? holding(sql, actor, target) : sql`actor as (select true as has_target)`;
  const rows = await sql<Array<T & { allowed: boolean; found: boolean | null }>>`
    with ${held}, change as (${change}), noted as (${insertInto(sql, entry, subject)}) ${parts}
    select * from (select exists (select from actor) as allowed) a
    left join (select true as found, r.* from (${result}) r) r on true`;
  if (!rows[0]?.allowed) throw new RightsLost();
  return rows.filter(({ found }) => found);
}

export async function insertAudit(sql: Sql, entry: AuditEntry, { userId, targetId, count }: Subject): Promise<void> {
  await sql`${insertInto(sql, entry, sql`${userId}::uuid, ${targetId}::uuid, ${count}::int`)}`;
}

type AuditFilter = Readonly<{ userId: string | null; event: AuditEvent | null }>;

/** Newest first. @param filter `userId`: the user it is about, or who did it */
export function listAudit(database: Database, page: Page, filter: AuditFilter): Promise<PageOf<AuditRecord>> {
  const { userId, event } = filter;
  return database.list(async (sql) => {
    const ofUser = userId === null ? sql`true` : sql`(x.user_id = ${userId} or x.actor_id = ${userId})`;
    const where = event === null ? ofUser : sql`${ofUser} and x.event = ${event}`;
    const table = sql`identity.audit`;
    const rows = await sql<AuditRecord[]>`
      select a.id, a.created_at, a.event, a.via, a.actor_id, a.key_id, a.user_id, a.target_id, a.count, a.ip,
        a.request_id, a.detail
      from (${idsOfPage(sql, table, where, page)}) page join ${table} a on a.id = page.id
      order by a.created_at desc, a.id desc`;
    return { rows, total: await countRows(sql, table, where) };
  });
}

/** Removes rows older than `seconds`. @returns how many; at most `max` */
export async function removeOldAudit(database: Database, seconds: number, max: number): Promise<number> {
  const result = await database.write((sql) => sql`
    delete from identity.audit where id = any (array(
      select id from identity.audit where created_at < now() - make_interval(secs => ${seconds})
      order by created_at, id limit ${max}
    ))`);
  return result.count;
}
