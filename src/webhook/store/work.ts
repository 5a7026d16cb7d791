import { sharedStatement } from '../../platform/db/share-statement.ts';
import { arrayLiteral, type Database, jsonRows, type Sql } from '../../platform/db/sql.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import type { LeasedEvent, Result } from '../model.ts';
import { COMMON, isDueOfSql, MAX_SENDERS, nextSenderSql, ofBothSql, sendersSql } from './queue.ts';

/** How long a silent worker keeps its events. */
export const LEASE_SECONDS = 30;

/**
 * Leases due events: new events, retries, and events whose lease has expired. Senders take turns,
 * and each gets an equal share of the limit; of one sender, the oldest are first. Of a page it
 * leases only the head, which is not due during its lease. It never waits for a lock. An attempt
 * counts from here on, so that it counts even if its process dies. While delivery is paused,
 * nothing is leased. Statements are planned once, usually while the queue is empty. With `=`, that
 * plan may scan a whole index for each row. So joins with the queue use `any (array[…])`.
 * @param first the sender whose turn it is: `next_sender` of the last claim; null begins a round
 * @returns fewer than the limit also if a sender has less than its share, or at the end of a round
 */
export const claimWork = (
  database: Database,
  limit: number,
  queue = COMMON,
  first: string | null = null,
) =>
  database.claim((sql) => {
    const dueSql = ofBothSql(
      sql,
      (viewSql) => sql`
      select s.token_id, turn, w.*
      from sender s
      cross join lateral (
        select event_id, due_at
        from ${viewSql}
        where ${isDueOfSql(sql, queue, sql`s.token_id`)} and event_id is not null
        order by token_id, due_at
        limit (select events from share)
        for update skip locked
      ) w`,
    );
    return sql<Array<LeasedEvent & { next_sender: string | null }>>`
    with recursive ${sendersSql(sql, queue, limit, first ?? COMMON_QUEUE)}, share as (
      -- Within a round, the rest of the limit is for those at its beginning.
      select case when ${first === null} then ceil(${limit}::float8 / greatest(count(*), 1))
        else 1 end::int4 as events
      from sender
    ), due as (${dueSql}
    ), chosen as (
      select event_id
      from due
      order by row_number() over (partition by token_id order by due_at),
        turn = ${MAX_SENDERS}, random()
      limit ${limit}
    ), ${leaseSql(sql, nextSenderSql(sql, limit))}`;
  });

/** A page is due when its event in `rows` is. */
const deferPagesSql = (sql: Sql, rows: 'claimed' | 'renewed' | 'released') => sql`
  update webhook.pages p set due_at = r.due_at
  from ${sql(rows)} r
  where p.order_key = any (array[r.order_key])`;

/** A new lease: an earlier holder can then no longer complete, release or renew. */
export const leaseSql = (sql: Sql, moreSql = sql``) => sql`
  claimed as (
    update webhook.work set lease = gen_random_uuid(), attempts = attempts + 1,
      due_at = now() + make_interval(secs => ${LEASE_SECONDS})
    where event_id = any (array(select event_id from chosen))
    returning event_id, lease, attempts, order_key, due_at
  ), leased as (${deferPagesSql(sql, 'claimed')})
  select e.id, e.token_id, c.lease, c.attempts as attempt, e.event, e.source,
    e.delivery_id, e.received_at, e.headers, e.body ${moreSql}
  from claimed c
  join webhook.events e on e.id = c.event_id`;

export type Lease = Pick<LeasedEvent, 'id' | 'lease'>;

/** An event under a lease, with its last attempt. `unused` is 1 if it was claimed without one. */
type Ended = Lease & Readonly<{ result?: Result | null; unused?: 1 }>;

/**
 * `limit` tells PostgreSQL how many rows the JSON has. Without it, PostgreSQL assumes 100 rows and
 * reads the whole queue.
 */
function heldSql(sql: Sql, events: readonly Ended[]) {
  const rows = events.map(({ id, lease, result, unused = 0 }) => ({
    ...result,
    id,
    lease,
    unused,
  }));
  return sql`held as (
      select *
      from json_to_recordset(${jsonRows(rows)}::text::json) as held (
        id uuid, lease uuid, unused int4, error text, duration_ms int4, answer_status int4,
        answer text, target text)
      limit ${events.length}
    )`;
}

/** Extends the leases that are still held. */
export const renewLeases = (database: Database, leases: readonly Lease[], seconds: number) =>
  database.write(
    (sql) => sql`
    with ${heldSql(sql, leases)}, renewed as (
      update webhook.work w set due_at = now() + make_interval(secs => ${seconds})
      from held
      where w.event_id = any (array[held.id]) and w.lease = held.lease
      returning w.*
    )
    ${deferPagesSql(sql, 'renewed')}`,
  );

/**
 * Ends events that were delivered at about the same time in one statement. If it fails, they are
 * delivered again.
 */
export const endDelivered = sharedStatement(
  'write',
  async (sql, ended: readonly Ended[]) => {
    await endEvents(sql, ended, 'done');
    return ended.map(() => undefined);
  },
  { keyOf: ({ id }) => id },
);

/** Ends events whose leases are still held. */
export const endWork = (database: Database, events: readonly Ended[], status: 'done' | 'dead') =>
  database.write((sql) => endEvents(sql, events, status));

async function endEvents(sql: Sql, events: readonly Ended[], status: 'done' | 'dead') {
  const idle = await sql<Array<{ order_key: string }>>`
    with ${heldSql(sql, events)}, ended as (
      delete from webhook.work w using held
      where event_id = any (array[id]) and w.lease = held.lease
      returning w.*, attempts - unused as attempt, error, duration_ms, answer_status, answer, target
    ), page as (
      update webhook.pages p set head = e.seq + 1, due_at = now()
      from ended e
      where p.order_key = any (array[e.order_key])
    ), failed as (${keepFailuresSql(sql, 'ended')}
    ), outcome as (
      insert into webhook.outcomes
        (event_id, status, attempts, run, duration_ms, answer_status, answer, target, received_at)
      select event_id, ${status}, attempt, run, duration_ms, answer_status, answer, target,
        received_at
      from ended
      on conflict do nothing -- another program may have stored one
    )
    select order_key
    from ended e
    where order_key is not null and seq = (
      select max(seq)
      from webhook.work
      where order_key = e.order_key)`;
  // The outcomes are stored. If this fails, a job removes the pages.
  const keys = idle.map(({ order_key }) => order_key);
  if (idle.length > 0) await removePages(sql, idle.length, keys).catch(() => {});
}

const keepFailuresSql = (sql: Sql, rows: 'ended' | 'released') => sql`
  insert into webhook.failures
    (event_id, attempt, error, run, duration_ms, answer_status, answer, target)
  select event_id, attempt, error, run, duration_ms, answer_status, answer, target
  from ${sql(rows)}
  where error is not null`;

/**
 * Ends a lease. The event is due again after the delay.
 * @param result null if a shutdown interrupted the attempt, which then does not count
 */
export async function releaseWork(
  database: Database,
  event: Lease,
  result: Result | null,
  delaySeconds: number,
) {
  await database.write(
    (sql) => sql`
    with ${heldSql(sql, [{ ...event, result }])}, released as (
      update webhook.work w set lease = null, attempts = attempts - ${result ? 0 : 1},
        due_at = now() + make_interval(secs => ${delaySeconds})
      from held
      where event_id = any (array[id]) and w.lease = held.lease
      returning w.*, attempts as attempt, error, duration_ms, answer_status, answer, target
    ), page as (${deferPagesSql(sql, 'released')})
    ${keepFailuresSql(sql, 'released')}`,
  );
}

/**
 * Removes pages without a waiting event, which claims would look at. An event being stored locks
 * the tail and raises it, so its page is skipped.
 * @returns how many, at most `limit`
 */
export const removeIdlePages = (database: Database, limit: number, keys?: readonly string[]) =>
  database.write((sql) => removePages(sql, limit, keys));

async function removePages(sql: Sql, limit: number, keys?: readonly string[]) {
  const amongSql = keys ? sql`t.order_key = any (${arrayLiteral(keys)}::text::text[])` : sql`true`;
  const { count } = await sql`
    with idle as (
      select t.order_key
      from webhook.page_tails t
      join webhook.pages p on p.order_key = any (array[t.order_key])
      where t.tail < p.head and ${amongSql}
      limit ${limit}
      for update of t, p skip locked
    ), page as (delete from webhook.pages where order_key = any (array(select order_key from idle)))
    delete from webhook.page_tails
    where order_key = any (array(select order_key from idle))`;
  return count;
}
