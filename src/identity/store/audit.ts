import { randomUUID } from 'node:crypto';
import { arrayLiteral } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { countFailure, type Limit } from '../../db/throttle.ts';
import type { AuditRecord } from '../model.ts';
import type { Caller } from '../policy.ts';
import { SCHEMA } from '../schema.ts';
import { countRows, idsOfPage, type Page, type PageOf } from './rows.ts';

export const EVENTS = [
  'login.succeeded',
  'login.failed',
  'login.throttled',
  'session.logged_out',
  'session.revoked',
  'password.changed',
  'password.failed',
  'password.set',
  'user.created',
  'user.changed',
  'user.deleted',
  'key.created',
  'key.revoked',
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

/** As a target: the sessions of all users. */
export const EVERYONE = 'everyone';

/**
 * Locks the target, and what the actor's rights depend on as it is after any wait, to the end of the transaction
 * (ASVS 8.3.2). All changes lock in one order, so that they cannot deadlock: users by id, what ends all sessions, the
 * session or key, then what they change. A session or key that has a user changes only under the lock of that user.
 * @param target the user whom the change is about  @returns whether there is such a user  @throws RightsLost
 */
export async function hold(sql: Sql, { caller }: Actor, target: string | null): Promise<boolean> {
  const userId = target === EVERYONE ? null : target;
  const { user = null, key = null, session = null } = caller ?? {};
  // The user on whom the session or key depends.
  const ownerId = user?.id ?? key?.created_by ?? null;
  const users = await sql<Array<{ id: string; may: boolean }>>`
    select id, enabled and (super_admin or not ${user?.super_admin ?? false}) as may from identity.users
    where id = any (${arrayLiteral([ownerId, userId])}::text::uuid[]) and deleted_at is null
    order by id for no key update`;
  await sql`select from identity.global_revocation for ${target === EVERYONE ? sql`update` : sql`share`}`;
  if (caller) {
    const credential = key
      ? sql`identity.api_keys c where coalesce(c.expires_at > now(), true)`
      : sql`
      identity.sessions c where c.expires_at > now() and not c.logged_out
        and c.created_at > coalesce(greatest((select sessions_end_at from identity.users where id = c.user_id),
          (select sessions_end_at from identity.global_revocation)), '-infinity')`;
    const { count } = await sql`
      select from ${credential} and c.id = ${(key ?? session)?.id ?? null} and not c.revoked and c.deleted_at is null
      for share`;
    const isOwnerFit = ownerId === null || users.some(({ id, may }) => id === ownerId && may);
    if (count === 0 || !isOwnerFit) throw new RightsLost();
  }
  return userId === null || users.some(({ id }) => id === userId);
}

/** A change with the actor's rights, in one transaction. @returns null without the target @throws RightsLost */
export const changing = <T>(
  database: Database,
  actor: Actor,
  target: string | null,
  work: (sql: Sql) => Promise<T>,
): Promise<T | null> =>
  database.transaction(async (sql) => ((await hold(sql, actor, target)) ? work(sql) : null));

/** `detail`: the program's own text, never a secret or a caller's text. */
export type AuditEntry = Readonly<{ event: AuditEvent; actor: Actor; detail?: string }>;

const insertInto = (
  sql: Sql,
  { event, actor, detail = '' }: AuditEntry,
  subject: Fragment,
): Fragment => sql`
  insert into identity.audit (id, event, via, actor_id, key_id, ip, request_id, detail, user_id, target_id, count)
  select ${randomUUID()}::uuid, ${event}::text, ${actor.via}::text, ${actor.userId}::uuid,
    ${actor.caller?.key?.id ?? null}::uuid, ${actor.ip}::text, ${actor.requestId}::text, ${detail}::text, ${subject}`;

/** A change, and a row in the trail if it changes any row. @param change returns at least `id` and `user_id` of each */
export async function audited<T extends object>(
  sql: Sql,
  entry: AuditEntry,
  change: Fragment,
): Promise<T[]> {
  const subject = sql`
    case when count(distinct user_id) = 1 then (array_agg(user_id))[1] end,
    case when count(*) = 1 then (array_agg(id))[1] end, count(*) from change having count(*) > 0`;
  return sql<T[]>`
    with change as (${change}), noted as (${insertInto(sql, entry, subject)}) select * from change`;
}

type Subject = Readonly<{ userId: string | null; targetId: string | null; count: number }>;

export async function insertAudit(
  sql: Sql,
  entry: AuditEntry,
  { userId, targetId, count }: Subject,
): Promise<void> {
  await sql`${insertInto(sql, entry, sql`${userId}::uuid, ${targetId}::uuid, ${count}::int4`)}`;
}

/** Keys the digests of names and networks in the throttles. */
export const readThrottleSecret = async (database: Database): Promise<Buffer> =>
  (
    await database.read(
      (sql) => sql<[{ secret: Buffer }]>`select secret from identity.throttle_secret`,
    )
  )[0].secret;

/** Counts a failure under all limits, with its row in the trail, and a row for the delay that begins. */
export function recordFailure(
  database: Database,
  entry: AuditEntry,
  userId: string | null,
  limits: readonly Limit[],
) {
  const subject = { userId, targetId: userId, count: 1 };
  return database.transaction(async (sql) => {
    const state = await countFailure(sql, SCHEMA.name, limits);
    await insertAudit(sql, entry, subject);
    const delay = {
      event: 'login.throttled',
      actor: entry.actor,
      detail: `for ${Math.ceil(state.wait)} s`,
    } as const;
    // None for attempts during the delay: attackers could fill the disk.
    if (state.wait > 0) await insertAudit(sql, delay, subject);
    return state;
  });
}

type AuditFilter = Readonly<{ userId: string | null; event: AuditEvent | null }>;

/** Newest first. @param filter `userId`: the user it is about, or who did it */
export function listAudit(
  database: Database,
  page: Page,
  filter: AuditFilter,
): Promise<PageOf<AuditRecord>> {
  const { userId, event } = filter;
  return database.list(async (sql) => {
    const ofUser =
      userId === null ? sql`true` : sql`(x.user_id = ${userId} or x.actor_id = ${userId})`;
    const where = event === null ? ofUser : sql`${ofUser} and x.event = ${event}`;
    const table = sql`identity.audit`;
    const rows = await sql<AuditRecord[]>`
      select a.* from (${idsOfPage(sql, table, where, page)}) page join ${table} a on a.id = page.id
      order by a.created_at desc, a.id desc`;
    return { rows, total: await countRows(sql, table, where) };
  });
}
