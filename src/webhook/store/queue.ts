import type { Fragment, Sql } from '../../platform/db/pool.ts';
import { COMMON_QUEUE } from '../migrations.ts';

/**
 * The events of one target. `revision` is the token's revision when the worker read the target.
 * After the target changes, this worker claims nothing more. Null for the common queue.
 */
export type Queue = Readonly<{ id: string; revision: number | null }>;
export const COMMON: Queue = { id: COMMON_QUEUE, revision: null };

/** The same rows of both views: events without a page, and the first event of each page. */
export const ofBothSql = (sql: Sql, rowsOfSql: (viewSql: Fragment) => Fragment) => sql`
  ${rowsOfSql(sql`webhook.unordered`)} union all ${rowsOfSql(sql`webhook.heads`)}`;

/** Whether events of a view are due and may be claimed. */
export const isDueSql = (sql: Sql, { id, revision }: Queue) => sql`
  queue = ${id} and due_at <= now() and not exists (select from webhook.pause)
    and (${revision}::int4 is null or exists (
      select from webhook.tokens where id = ${id} and revision = ${revision}))`;

/**
 * Whether they are of this sender, too. With `=`, PostgreSQL could use `work_due` or `pages_due`,
 * which mix all senders.
 */
export const isDueOfSql = (sql: Sql, queue: Queue, senderSql: Fragment) => sql`
  ${isDueSql(sql, queue)}
    and (token_id, due_at) between (${senderSql}, '-infinity') and (${senderSql}, now())`;

/** How many senders with waiting events a claim looks at, at most. */
export const MAX_SENDERS = 64;

/**
 * `turns`: the senders with waiting events that follow those of the last claim, by their ids. Each
 * is found in an index, whatever the number of events. One more than the limit is looked at: with
 * it begins the next claim.
 *
 * `sender`: those of them with due events, whose turn it is, and those with the oldest due events,
 * behind the others, so that every claim finds some.
 */
export function sendersSql(sql: Sql, queue: Queue, limit: number, first: string) {
  // Behind the events of the sender before. `(queue, token_id)` alone could use `work_due`.
  const nextSql = ofBothSql(
    sql,
    (viewSql) => sql`
    (select token_id, due_at
    from ${viewSql}
    where queue = ${queue.id} and (token_id, due_at) > (t.token_id, t.behind)
    order by token_id, due_at
    limit 1)`,
  );
  const oldestSql = ofBothSql(
    sql,
    (viewSql) => sql`
    (select token_id, ${MAX_SENDERS}::int4 as turn
    from ${viewSql}
    where ${isDueSql(sql, queue)}
    order by due_at
    limit 1)`,
  );
  return sql`
    turns as (
      select 0 as turn, 0 as found, ${first}::uuid as token_id,
        '-infinity'::timestamptz as behind, null::timestamptz as due_at
      union all
      select turn + 1, found + (next.due_at <= now())::int4, next.token_id, 'infinity', next.due_at
      from turns t
      cross join lateral (select * from (${nextSql}) x order by token_id, due_at limit 1) next
      where turn < ${MAX_SENDERS} and found <= ${limit}
    ), sender as (
      select token_id, min(turn) as turn
      from (
        select token_id, turn
        from turns
        where due_at <= now() and found <= ${limit}
        union all ${oldestSql}
      ) x
      group by token_id
    )`;
}

/** The sender with which the next claim begins; null for the first one. */
export const nextSenderSql = (sql: Sql, limit: number) => sql`,
  (select token_id from turns where found > ${limit} or turn = ${MAX_SENDERS}) as next_sender`;
