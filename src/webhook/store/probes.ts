import type { Database } from '../../platform/db/pool.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import type { LeasedEvent } from '../model.ts';
import { COMMON, isDueOfSql, ofBothSql } from './queue.ts';
import { leaseSql } from './work.ts';

/** How many of a sender's oldest and newest due events are considered, and of its pages. */
const PROBE_SAMPLE = 20;
/** How many are considered of all senders together. */
const PROBE_ROWS = 2_000;

/**
 * Leases events for a target that fails. Takes senders in turn, and events without an earlier
 * attempt first. Each sender has its own sample, so many failing events of one cannot exclude those
 * of another.
 * @param except a token whose events are left out, or null
 */
export const claimProbes = (
  database: Database,
  limit: number,
  except: string | null,
  queue = COMMON,
) =>
  database.claim((sql) => {
    const sampleSql = ofBothSql(sql, (viewSql) => {
      const rowsSql = sql`
        select event_id
        from ${viewSql}
        where ${isDueOfSql(sql, queue, sql`t.id`)}`;
      return sql`
        (${rowsSql} order by token_id, due_at limit ${PROBE_SAMPLE})
        union (${rowsSql} order by token_id desc, due_at desc limit ${PROBE_SAMPLE})`;
    });
    return sql<LeasedEvent[]>`
    with due as (
      select event_id
      from (
        select id
        from webhook.tokens
        where id is distinct from ${except}::uuid and ${queue.id}::uuid in (id, ${COMMON_QUEUE})
        order by random()
      ) t
      cross join lateral (${sampleSql}) sample
      limit ${PROBE_ROWS}
    ), candidate as (
      select w.event_id, row_number() over (partition by token_id order by attempts > 0, random())
        as turn
      from due
      join webhook.work w on w.event_id = any (array[due.event_id])
    ), chosen as (
      select w.event_id
      from candidate c
      join webhook.work w on w.event_id = any (array[c.event_id])
      where w.due_at <= now()
      order by turn, random()
      limit ${limit}
      for update of w skip locked
    ), ${leaseSql(sql)}`;
  });
