import { sharedStatement } from '../../platform/db/share-statement.ts';
import { arrayLiteral, type Database, hexBytes } from '../../platform/db/sql.ts';
import { decodeUtf8 } from '../../platform/runtime/text.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import type { NewEvent, Status } from '../model.ts';

/**
 * Stores events and their work in one statement, in five steps:
 *
 * 1. Check the token, and the signing secret of a signature, which the caller may have looked up
 *    seconds ago: nothing is stored once the end of one is committed.
 * 2. Store the events. Unique indexes decide which are repetitions: of two copies in flight, a
 *    query in advance would find neither.
 * 3. Number those of a page: raise its tail, under a lock until the commit.
 * 4. Queue them: as work, with a new row for a page that had none. Those that are not selected end.
 * 5. Report what became of each.
 *
 * @returns for each its outcome: `rejected` if its token or signing secret is not active, or the
 * target of the token has changed
 */
export const insertEvent = sharedStatement(
  'write',
  async (sql, events: readonly NewEvent[]) => {
    // All in one parameter, because a body as a member of JSON would be escaped, and parsed again.
    // Text, because the driver sends bytea in hexadecimal. A body is JSON, so it is UTF-8 without
    // U+0000.
    const bodies = decodeUtf8(Buffer.concat(events.map(({ body }) => body)));
    let end = 0;
    const given = events.map(({ body: { length }, token_digest, body_digest, ...others }, n) => {
      const start = end + 1;
      end += length;
      // The spread last: V8 takes microseconds for members that follow one.
      return {
        n,
        token_digest: hexBytes(token_digest),
        body_digest: body_digest && hexBytes(body_digest),
        start,
        length,
        ...others,
      };
    });
    const rows = JSON.stringify(given);
    const found = await sql<Array<{ id: string; outcome: 'new' | 'repeated' }>>`
        with sent as materialized (
          select convert_to(${bodies}, 'UTF8') as bodies
        ), given as ( -- 1
          select g.*
          from json_to_recordset(${rows}::text::json) as g (
            id uuid, token_id uuid, token_digest bytea, secret_id uuid, source text,
            delivery_id text, body_digest bytea, event text, headers jsonb, ip text, status text,
            order_key text, revision int4, queue uuid, n int4, start int4, length int4)
          join webhook.tokens t on t.id = g.token_id and revoked_at is null
            and t.revision = g.revision and (digest = token_digest
              or (previous_digest = token_digest and previous_until > now()))
          where secret_id is null or exists (
            select from webhook.signing_secrets s
            where s.id = secret_id and (expires_at is null or expires_at > now()))
        ), event as ( -- 2
          -- Each gets a later received_at, for lists. The same order in all replicas avoids
          -- deadlocks. It is made of rows without their bodies.
          insert into webhook.events
            (id, token_id, source, delivery_id, body_digest, event, headers, ip, body, received_at)
          select id, token_id, source, delivery_id, body_digest, event, headers, ip,
            substring(bodies from start for length), now() + n * interval '1 microsecond'
          from sent, (select * from given order by token_id, delivery_id, body_digest, n) as sorted
          on conflict do nothing
          returning id, received_at
        ), stored as (
          select *
          from given
          join event using (id)
        ), tail as ( -- 3
          insert into webhook.page_tails (order_key, tail)
          select order_key, count(*)
          from stored
          where order_key is not null
          group by order_key
          order by order_key
          on conflict (order_key) do update set tail = page_tails.tail + excluded.tail
          returning order_key, tail
        ), numbered as (
          select id, token_id, received_at, order_key, queue,
            tail + 1 - row_number() over (partition by order_key order by n desc) as seq
          from stored
          left join tail using (order_key)
          where status = 'waiting'
        ), page as ( -- 4
          -- The two rows of a page begin and end together.
          insert into webhook.pages (order_key, token_id, queue)
          select order_key, token_id, queue
          from numbered
          where seq = 1
        ), work as (
          insert into webhook.work (event_id, token_id, received_at, order_key, seq, queue)
          select id, token_id, received_at, order_key, seq, queue
          from numbered
        ), outcome as (
          insert into webhook.outcomes (event_id, status, attempts)
          select id, 'skipped', 0
          from stored
          where status = 'skipped'
        )
        -- 5
        select id, case when event.received_at is null then 'repeated' else 'new' end as outcome
        from given
        left join event using (id)`;
    const outcomes = new Map(found.map(({ id, outcome }) => [id, outcome]));
    return events.map(({ id }) => outcomes.get(id) ?? ('rejected' as const));
  },
  {
    bytesOf: ({ body }) => body.length,
    keyOf: ({ token_id, delivery_id, order_key }) =>
      order_key ?? (delivery_id && `${token_id} ${delivery_id}`),
  },
);

/** The event that has the same token and delivery id, or else the same token and body. */
export async function findRepeated(
  database: Database,
  { token_id, delivery_id, body_digest }: NewEvent,
) {
  const [first] = await database.read(
    (sql) => sql<Array<{ id: string; body: Buffer; is_dead: boolean }>>`
    select id, body,
      exists (select from webhook.outcomes where event_id = id and status = 'dead') as is_dead
    from webhook.events
    where id = coalesce(
      (select id from webhook.events
        where token_id = ${token_id} and delivery_id = ${delivery_id}),
      (select id from webhook.events
        where token_id = ${token_id} and body_digest = ${body_digest}))`,
  );
  return first;
}

/**
 * Delivers events again, in another run. Attempts of earlier runs are kept. An event that waits for
 * its next attempt is due now, in the same run. An event that is being delivered stays as it is.
 * @param hasTarget false to leave out events of tokens without a target of their own
 * @param status null for events that have ended in any way, or wait
 * @returns how many events are due now
 */
export async function redeliver(
  database: Database,
  ids: readonly string[],
  hasTarget = true,
  status: Status | null = null,
) {
  const { count } = await database.write((sql) => {
    const isChosenSql = sql`= any (${arrayLiteral(ids)}::text::uuid[])
        and (${hasTarget} or token_id in (select id from webhook.tokens where target is not null))`;
    return sql`
    with waiting as (
      update webhook.work set due_at = now()
      where event_id ${isChosenSql} and lease is null and ${status}::text is null
      returning event_id, order_key, seq
    ), removed as (
      -- Whoever removes the row of an ended event delivers it again. Another waits here for the
      -- commit, and then finds no row, even if the new delivery has ended, too.
      delete from webhook.outcomes o
      using webhook.events e
      where e.id = o.event_id and e.id ${isChosenSql}
        and (${status}::text is null or status = ${status})
        and not exists (select from webhook.work w where w.event_id = e.id)
      returning o.*
    ), redelivered as (
      insert into webhook.work (event_id, token_id, received_at, queue, run)
      select e.id, e.token_id, e.received_at, coalesce((
        select t.id
        from webhook.tokens t
        where t.id = e.token_id and target is not null),
        ${COMMON_QUEUE}::uuid),
        case when status <> 'skipped' then 1 + run else 1 end
      from webhook.events e
      left join removed on event_id = e.id
      where e.id ${isChosenSql} and (event_id is not null or (
        ${status}::text is null
        and not exists (select from webhook.outcomes o where o.event_id = e.id)
        -- Not an event whose delivery ends while this waits for a lock.
        and not exists (select from webhook.work w where w.event_id = e.id)))
      for key share of e
      on conflict do nothing
      returning event_id
    ), page as (
      update webhook.pages p set due_at = now()
      from waiting w
      where p.order_key = w.order_key and p.head = w.seq
    ), kept as (
      insert into webhook.failures
        (event_id, attempt, failed_at, run, duration_ms, answer_status, answer, target)
      select event_id, attempts, ended_at, run, duration_ms, answer_status, answer, target
      from removed
      where status = 'done' and attempts > 0
    )
    select from redelivered union all select from waiting`;
  });
  return count;
}

/**
 * Removes events that ended more than `seconds` ago, with their failures.
 * @returns how many, at most `limit`
 */
export async function removeEnded(
  database: Database,
  status: Status,
  seconds: number,
  limit: number,
) {
  const { count } = await database.write(
    (sql) => sql`
    with ended as (
      delete from webhook.outcomes
      where event_id = any (array(
        select event_id
        from webhook.outcomes
        where status = ${status} and ended_at < now() - make_interval(secs => ${seconds})
        order by ended_at
        limit ${limit}
      )) returning event_id
    ), failures as (delete from webhook.failures where event_id in (select event_id from ended))
    delete from webhook.events
    where id in (select event_id from ended)`,
  );
  return count;
}

/** `oldest` is the age of the oldest waiting event in seconds. */
export type Backlog = Record<'waiting' | 'oldest' | 'dead' | 'paused', number>;

/** @param most how many events of each kind are read: all of millions would take seconds */
export async function readBacklog(database: Database, most: number) {
  const [backlog] = await database.list(
    (sql) => sql<[Backlog]>`
    select count(*)::int4 as waiting,
      coalesce(extract(epoch from now() - min(received_at)), 0)::float8 as oldest,
      (select count(*)::int4 from (
        select from webhook.outcomes where status = 'dead' limit ${most}) one) as dead,
      (select count(*)::int4 from webhook.pause) as paused
    from (select received_at from webhook.work limit ${most}) one`,
  );
  return backlog;
}
