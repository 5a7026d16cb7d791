import { arrayLiteral, batched } from '../../db/batch.ts';
import type { Database, Fragment, Locks, Sql } from '../../db/pool.ts';
import type { SourceName } from '../sources.ts';

export const STATUSES = ['stored', 'waiting', 'done', 'dead', 'skipped'] as const;
export type Status = (typeof STATUSES)[number];

export interface NewEvent {
  readonly id: string;
  readonly tokenId: string;
  readonly source: SourceName;
  readonly deliveryId: string | null;
  readonly event: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly ip: string;
  readonly body: Buffer;
  /** `waiting` is delivered, `stored` is only kept, `skipped` is not selected by WEBHOOK_EVENTS. */
  readonly status: 'waiting' | 'stored' | 'skipped';
  /** Waiting events with the same key are delivered in order. */
  readonly orderKey: string | null;
}

/**
 * Stores events and their work in one statement. The unique index decides which are repetitions: of two copies in
 * flight, a query in advance would find neither.
 * @returns for each whether it is new
 */
export const insertEvent = batched(
  async (database: Database, events: readonly NewEvent[], locks?: Locks): Promise<boolean[]> => {
    const rows = events.map((event) => ({ ...event, headers: JSON.stringify(event.headers) }));
    const all = (name: keyof NewEvent) => arrayLiteral(rows.map((row) => row[name]));
    const inserted = await database.write(
      (sql) => sql<Array<{ id: string }>>`
        with given as (
          select * from unnest(
            ${all('id')}::text::uuid[], ${all('tokenId')}::text::uuid[], ${all('source')}::text::text[],
            ${all('deliveryId')}::text::text[], ${all('event')}::text::text[], ${all('headers')}::text::jsonb[],
            ${all('ip')}::text::text[], ${all('body')}::text::bytea[], ${all('status')}::text::text[],
            ${all('orderKey')}::text::text[]
          ) with ordinality as given (id, token_id, source, delivery_id, event, headers, ip, body, status, order_key, n)
        ), event as (
          -- Each gets a later received_at, for lists. The same order in all replicas avoids deadlocks.
          insert into webhook.events (id, token_id, source, delivery_id, event, headers, ip, body, received_at)
          select id, token_id, source, delivery_id, event, headers, ip, body, now() + n * interval '1 microsecond'
          from given order by token_id, delivery_id, n
          on conflict (token_id, delivery_id) do nothing returning id, received_at
        ), tail as (
          insert into webhook.page_tails (order_key, tail)
          select order_key, count(*) from event join given using (id) where order_key is not null
          group by order_key order by order_key
          on conflict (order_key) do update set tail = page_tails.tail + excluded.tail returning order_key, tail
        ), numbered as (
          select id, received_at, order_key,
            tail + 1 - row_number() over (partition by order_key order by n desc) as seq
          from event join given using (id) left join tail using (order_key) where status = 'waiting'
        ), page as (
          -- The two rows of a page begin and end together.
          insert into webhook.pages (order_key) select order_key from numbered where seq = 1
        ), work as (
          insert into webhook.work (event_id, received_at, order_key, seq)
          select id, received_at, order_key, seq from numbered
        ), outcome as (
          insert into webhook.outcomes (event_id, status, attempts)
          select id, 'skipped', 0 from event join given using (id) where status = 'skipped'
        )
        select id from event`,
      locks,
    );
    const created = new Set(inserted.map(({ id }) => id));
    return events.map(({ id }) => created.has(id));
  },
  {
    bytesOf: ({ body }) => body.length,
    lockOf: ({ tokenId, deliveryId, orderKey }) => orderKey ?? (deliveryId && `${tokenId} ${deliveryId}`),
  },
);

/** The event that has the same token and delivery id. Its body is returned if it is another one. */
export async function findRepeated(database: Database, { tokenId, deliveryId, body }: NewEvent) {
  const [first] = await database.read((sql) => sql<Array<{ id: string; other_body: Buffer | null; is_dead: boolean }>>`
    select id, nullif(body, ${body}) as other_body,
      exists (select from webhook.outcomes where event_id = id and status = 'dead') as is_dead
    from webhook.events where token_id = ${tokenId} and delivery_id = ${deliveryId}`);
  return first;
}

/** An event without its body. */
export interface EventSummary extends Pick<NewEvent, 'id' | 'event' | 'source'> {
  readonly delivery_id: string | null;
  readonly received_at: Date;
  readonly status: Status;
  readonly attempts: number;
  readonly last_error: string | null;
}

const summaries = (sql: Sql): Fragment => sql`
  select e.id, e.event, e.source, e.delivery_id, e.received_at, coalesce(o.attempts, w.attempts, 0) as attempts,
    coalesce(o.status, case when w.event_id is null then 'stored' else 'waiting' end) as status,
    (select error from webhook.failures f where f.event_id = e.id order by failed_at desc limit 1) as last_error
  from webhook.events e left join webhook.outcomes o on o.event_id = e.id
  left join webhook.work w on w.event_id = e.id`;

/** In `event`, `*` stands for any characters. `after` is the last id of the previous page. */
export type EventFilter = Readonly<Record<'event' | 'source' | 'after', string | undefined>> &
  { readonly status: Status | undefined; readonly since: Date | undefined; readonly delivery?: string | undefined };

/** Newest first. Waiting and dead events are found in their own small tables. */
export async function listEvents(database: Database, filter: EventFilter, limit: number): Promise<EventSummary[]> {
  const { status, event, source, since, delivery, after = null } = filter;
  return database.list((sql) => {
    const conditions = {
      stored: sql`o.event_id is null and w.event_id is null`,
      waiting: sql`e.id in (select event_id from webhook.work)`,
      done: sql`o.status = 'done'`,
      dead: sql`e.id in (select event_id from webhook.outcomes where status = 'dead')`,
      skipped: sql`o.status = 'skipped'`,
    };
    const pattern = event?.replace(/[\\%_]/g, '\\$&').replaceAll('*', '%') ?? '';
    const last = sql`select received_at, id from webhook.events where id = ${after}`;
    return sql<EventSummary[]>`
      ${summaries(sql)} where ${status ? conditions[status] : sql`true`}
        and ${event === undefined ? sql`true` : sql`e.event like ${pattern}`}
        and ${source === undefined ? sql`true` : sql`e.source = ${source}`}
        and ${since === undefined ? sql`true` : sql`e.received_at >= ${since}`}
        and ${delivery === undefined ? sql`true` : sql`
          (e.token_id, e.delivery_id) in (select id, ${delivery} from webhook.tokens)`}
        and ${after === null ? sql`true` : sql`(e.received_at, e.id) < (${last})`}
      order by e.received_at desc, e.id desc limit ${limit}`;
  });
}

/** The events of the last seconds, oldest first, at most 1,000. */
export async function recentEvents(database: Database, seconds: number): Promise<EventSummary[]> {
  return database.list((sql) => sql<EventSummary[]>`
    select * from (
      ${summaries(sql)} where e.received_at > now() - make_interval(secs => ${seconds})
      order by e.received_at desc, e.id desc limit 1000
    ) recent order by received_at, id`);
}

export interface EventDetails extends EventSummary, Pick<NewEvent, 'headers' | 'body'> {
  readonly token_id: string;
  readonly ip: string | null;
  readonly failures: ReadonlyArray<{ readonly attempt: number; readonly failed_at: string; readonly error: string }>;
}

export async function findEvent(database: Database, id: string): Promise<EventDetails | null> {
  const [row] = await database.list((sql) => sql<EventDetails[]>`
    select summary.*, e.token_id, e.headers, e.ip, e.body,
      (select coalesce(json_agg(json_build_object('attempt', attempt, 'failed_at', failed_at, 'error', error)
        order by failed_at), '[]') from webhook.failures where event_id = e.id) as failures
    from (${summaries(sql)} where e.id = ${id}) summary join webhook.events e on e.id = summary.id`);
  return row ?? null;
}

/**
 * Delivers events again, starting with their first attempt, whatever their status. An event that waits for its next
 * attempt is due now. An event that is being delivered stays as it is.
 * @returns how many events are due now
 */
export async function redeliver(database: Database, ids: readonly string[]): Promise<number> {
  const result = await database.write((sql) => sql`
    with redelivered as (
      insert into webhook.work (event_id, received_at)
      select id, received_at from webhook.events where id = any (${arrayLiteral(ids)}::text::uuid[]) for key share
      on conflict (event_id) do update set due_at = now() where work.lease is null returning event_id, order_key, seq
    ), page as (
      update webhook.pages p set due_at = now() from redelivered r where p.order_key = r.order_key and p.head = r.seq
    ), removed as (delete from webhook.outcomes where event_id in (select event_id from redelivered))
    select event_id from redelivered`);
  return result.count;
}

/** Removes events that ended more than `seconds` ago, with their failures. @returns how many, at most `limit` */
export async function removeEnded(database: Database, status: Status, seconds: number, limit: number): Promise<number> {
  const result = await database.write((sql) => sql`
    with ended as (
      delete from webhook.outcomes where event_id = any (array(
        select event_id from webhook.outcomes
        where status = ${status} and ended_at < now() - make_interval(secs => ${seconds})
        order by ended_at limit ${limit}
      )) returning event_id
    ), failures as (delete from webhook.failures where event_id in (select event_id from ended))
    delete from webhook.events where id in (select event_id from ended)`);
  return result.count;
}

/** @returns two numbers of events, and the age of the oldest waiting one in seconds */
export async function readBacklog(database: Database): Promise<{ waiting: number; oldest: number; dead: number }> {
  const [row] = await database.list((sql) => sql<[{ waiting: number; oldest: number; dead: number }]>`
    select count(*)::int as waiting, coalesce(extract(epoch from now() - min(received_at)), 0)::float8 as oldest,
      (select count(*)::int from webhook.outcomes where status = 'dead') as dead
    from webhook.work`);
  return row;
}
