import { randomUUID } from 'node:crypto';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { type Page, type Part, spanOf } from '../paging.ts';
import { counting, idsOf, inOrder, totalOf } from './rows.ts';

export const EVENTS = [
  'login.succeeded', 'login.failed', 'login.throttled', 'session.logged_out', 'session.revoked', 'password.changed',
  'password.failed', 'password.set', 'user.created', 'user.changed', 'user.deleted', 'key.created', 'key.revoked',
] as const;
export type AuditEvent = (typeof EVENTS)[number];

/** Who acts, and from where. */
export interface Actor {
  readonly via: 'session' | 'key' | 'password' | 'command' | 'nobody';
  readonly userId: string | null;
  readonly keyId: string | null;
  readonly ip: string | null;
  readonly requestId: string | null;
}

/** Whoever may use the command line. */
export const COMMAND_LINE: Actor = { via: 'command', userId: null, keyId: null, ip: null, requestId: null };

/** What goes into the trail besides what was changed. `detail` is of our own making: never a secret, never a caller's text. */
export interface AuditEntry {
  readonly event: AuditEvent;
  readonly actor: Actor;
  readonly detail?: string;
}

export interface AuditRecord {
  readonly id: string;
  readonly created_at: Date;
  readonly event: AuditEvent;
  readonly via: Actor['via'];
  readonly actor_id: string | null;
  readonly key_id: string | null;
  readonly user_id: string | null;
  readonly target_id: string | null;
  readonly count: number;
  readonly ip: string | null;
  readonly request_id: string | null;
  readonly detail: string;
}

/**
 * A change and its line in the trail, in one statement: they commit together or not at all.
 * @param change returns `id` and `user_id` of each row it changed, and whatever else the caller wants; no row, no line
 * @param also further parts of the statement, as `, name as (…)`, that may use the rows of `change`
 * @param result what is returned; the rows of `change` unless it says otherwise
 */
export function audited<T extends object>(sql: Sql, { event, actor, detail = '' }: AuditEntry, change: Fragment, also: Fragment = sql``, result: Fragment = sql`select * from change`): Promise<T[]> {
  return sql<T[]>`
    with change as (${change})
    , noted as (
      insert into identity.audit (id, event, via, actor_id, key_id, user_id, target_id, count, ip, request_id, detail)
      select ${randomUUID()}::uuid, ${event}::text, ${actor.via}::text, ${actor.userId}::uuid, ${actor.keyId}::uuid,
        case when count(distinct user_id) = 1 then (array_agg(user_id))[1] end,
        case when count(*) = 1 then (array_agg(id))[1] end,
        count(*), ${actor.ip}::text, ${actor.requestId}::text, ${detail}::text
      from change having count(*) > 0
      returning event
    )
    , noted_total as (with change as (select event from noted) ${counting(sql, 'audit', 1)})
    ${also}
    ${result}`;
}

/** A line about something that changed nothing. */
export async function recordAudit(database: Database, entry: AuditEntry, userId: string | null): Promise<void> {
  await database.write((sql) => audited(sql, entry, sql`select ${userId}::uuid as id, ${userId}::uuid as user_id`));
}

export interface AuditFilter {
  /** Whom it is about, or who did it. */
  readonly userId: string | null;
  readonly event: AuditEvent | null;
}

/** Newest first. */
export function listAudit(database: Database, page: Page, { userId, event }: AuditFilter): Promise<Part<AuditRecord>> {
  return database.list(async (sql) => {
    const ofUser = userId === null ? sql`true` : sql`(x.user_id = ${userId} or x.actor_id = ${userId})`;
    const where = event === null ? ofUser : sql`${ofUser} and x.event = ${event}`;
    const [counted] = userId === null ? [] : await sql<[{ total: number }]>`select count(*)::int as total from identity.audit x where ${where}`;
    const total = counted?.total ?? (await totalOf(sql, 'audit', { event }));
    const rows = await sql<AuditRecord[]>`
      select a.id, a.created_at, a.event, a.via, a.actor_id, a.key_id, a.user_id, a.target_id, a.count, a.ip, a.request_id, a.detail
      from (${idsOf(sql, sql`identity.audit`, where, 'newest first', spanOf(page, total))}) page join identity.audit a on a.id = page.id
      order by ${inOrder(sql, 'a', true)}`;
    return { rows, total };
  });
}

/** Removes lines that are older than `seconds`. @returns how many; at most `most` */
export async function removeOldAudit(database: Database, seconds: number, most: number): Promise<number> {
  const [row] = await database.write(
    (sql) => sql<[{ n: number }]>`
      with change as (
        delete from identity.audit where id = any (array(
          select id from identity.audit where created_at < now() - make_interval(secs => ${seconds}) order by created_at, id limit ${most}
        )) returning event
      ), counted as (${counting(sql, 'audit', -1)})
      select count(*)::int as n from change`,
  );
  return row.n;
}
