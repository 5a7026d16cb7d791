import { randomUUID } from 'node:crypto';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import type { AuditRecord, AuditView } from '../model.ts';
import { countRows, idsOfPage, type Page, type PageOf } from './rows.ts';

export const EVENTS = [
  'login.succeeded', 'login.failed', 'login.throttled', 'session.logged_out', 'session.revoked', 'password.changed',
  'password.failed', 'password.set', 'user.created', 'user.changed', 'user.deleted', 'key.created', 'key.revoked',
] as const;
export type AuditEvent = (typeof EVENTS)[number];

/** Who acts, and from where. */
export type Actor = Readonly<
  { via: AuditView['via']; userId: string | null; keyId: string | null; ip: string | null; requestId: string | null }
>;

/** Anyone who can run the command line. */
export const COMMAND_LINE: Actor = { via: 'command', userId: null, keyId: null, ip: null, requestId: null };

/** `detail` is the program's own text: never a secret, never a caller's text. */
export type AuditEntry = Readonly<{ event: AuditEvent; actor: Actor; detail?: string }>;

type Subject = Readonly<{ userId: string | null; targetId: string | null; count: number }>;

const insertInto = (sql: Sql, { event, actor, detail = '' }: AuditEntry, subject: Fragment): Fragment => sql`
  insert into identity.audit (id, event, via, actor_id, key_id, ip, request_id, detail, user_id, target_id, count)
  select ${randomUUID()}::uuid, ${event}::text, ${actor.via}::text, ${actor.userId}::uuid, ${actor.keyId}::uuid,
    ${actor.ip}::text, ${actor.requestId}::text, ${detail}::text, ${subject}`;

/**
 * A change and its row in the trail in one statement: both commit, or neither does.
 * @param change returns `id` and `user_id` of each changed row, and any columns the caller needs
 * @param parts more parts of the statement, as `, name as (…)`, which may use the rows of `change`
 * @returns the changed rows, or those of `result`; no changed row means no row in the trail either
 */
export function audited<T extends object>(
  sql: Sql, entry: AuditEntry, change: Fragment, parts: Fragment = sql``, result: Fragment = sql`select * from change`,
): Promise<T[]> {
  const subject = sql`
    case when count(distinct user_id) = 1 then (array_agg(user_id))[1] end,
    case when count(*) = 1 then (array_agg(id))[1] end, count(*) from change having count(*) > 0`;
  return sql<T[]>`with change as (${change}), noted as (${insertInto(sql, entry, subject)}) ${parts} ${result}`;
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
