import type { Database, Fragment, Sql } from '../../db/pool.ts';
import {
  dateTime,
  type Infer,
  integer,
  nullable,
  object,
  oneOf,
  text,
  uuid,
} from '../../http/shape.ts';
import { type NewEvent, type Status, STATUSES } from './events.ts';

export const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
/** An event without its body. `token` is the name of the sender's token. */
export const summaryShape = object({
  id: uuid(),
  event: text(),
  source: text(),
  delivery_id: nullable(text()),
  token: nullable(text()),
  received_at: dateTime(),
  status: oneOf(...STATUSES),
  attempts: count,
  last_error: nullable(text()),
  next_attempt_at: nullable(dateTime('Null while the event is being delivered, too')),
});
export type EventSummary = Infer<typeof summaryShape>;

const summaries = (sql: Sql): Fragment => sql`
  select e.id, e.event, e.source, e.delivery_id, t.name as token, e.received_at,
    coalesce(o.attempts, w.attempts, 0) as attempts,
    coalesce(o.status, case when w.event_id is null then 'stored' else 'waiting' end) as status,
    (select error from webhook.failures f
      where f.event_id = e.id and error is not null order by failed_at desc limit 1) as last_error,
    case when w.lease is null then w.due_at end as next_attempt_at
  from webhook.events e left join webhook.outcomes o on o.event_id = e.id
  left join webhook.work w on w.event_id = e.id left join webhook.tokens t on t.id = e.token_id`;

/** In `event`, `*` stands for any characters; `text` is in the body as it was sent. `after` ends the previous page. */
export type EventFilter = Readonly<
  Record<'event' | 'source' | 'text' | 'delivery_id' | 'after', string | undefined>
> & { readonly status: Status | undefined } & Readonly<Record<'since' | 'until', Date | undefined>>;

/** How many events a list looks at, at most: a filter that matches nothing must not read the whole history. */
const [SCANNED, SEARCHED] = [10_000, 2_000];

/** Newest first. Waiting and dead events are found in their own small tables, but for the few with a delivery id. */
function candidates(
  sql: Sql,
  { status, delivery_id, since, until, after, text }: EventFilter,
): Fragment {
  const isGiven = (value: unknown, condition: Fragment) =>
    value === undefined ? sql`true` : condition;
  const isSmall = delivery_id === undefined && (status === 'waiting' || status === 'dead');
  // An earlier program does not write received_at into its outcomes: there it is the time of the end.
  const last = sql`select coalesce(o.received_at, e.received_at), id from webhook.events e left join webhook.outcomes o
    on event_id = id and ${isSmall && status === 'dead'} and status = 'dead' where id = ${after ?? null}`;
  const byId = sql`token_id in (select id from webhook.tokens) and delivery_id = ${delivery_id ?? null}`;
  const tables = {
    all: sql`select id, received_at from webhook.events where ${isGiven(delivery_id, byId)}`,
    waiting: sql`select event_id as id, received_at from webhook.work`,
    dead: sql`select event_id as id, received_at from webhook.outcomes where status = 'dead'`,
  };
  return sql`
    select id, received_at from (${tables[isSmall ? status : 'all']}) event
    where ${isGiven(since, sql`received_at >= ${since ?? null}`)}
      and ${isGiven(until, sql`received_at <= ${until ?? null}`)}
      and ${isGiven(after, sql`(received_at, id) < (${last})`)}
    order by received_at desc, id desc limit ${text === undefined ? SCANNED : SEARCHED}`;
}

/** @returns events, newest first, and the `after` of the next page, which may be empty; null at the end */
export async function listEvents(database: Database, filter: EventFilter, limit: number) {
  const { status, event, source, text } = filter;
  const pattern = event?.replace(/[\\%_]/g, '\\$&').replaceAll('*', '%') ?? '';
  const found = await database.search((sql) => {
    const conditions = {
      stored: sql`o.event_id is null and w.event_id is null`,
      waiting: sql`w.event_id is not null`,
      done: sql`o.status = 'done'`,
      dead: sql`o.status = 'dead'`,
      skipped: sql`o.status = 'skipped'`,
    };
    return sql<EventSummary[]>`
      ${summaries(sql)} join (${candidates(sql, filter)}) c on c.id = e.id
      where ${status ? conditions[status] : sql`true`}
        and ${event === undefined ? sql`true` : sql`e.event like ${pattern}`}
        and ${source === undefined ? sql`true` : sql`e.source = ${source}`}
        and ${text === undefined ? sql`true` : sql`position(convert_to(${text}, 'UTF8') in e.body) > 0`}
      order by c.received_at desc, c.id desc limit ${limit + 1}`;
  });
  const events = found.slice(0, limit);
  if (found.length > limit) return { events, next: events.at(-1)?.id ?? null };
  const size = text === undefined ? SCANNED : SEARCHED;
  const [last] = await database.search(
    (sql) => sql<Array<{ id: string }>>`
    select id from (${candidates(sql, filter)}) c order by received_at desc, id desc offset ${size - 1}`,
  );
  return { events, next: last?.id ?? null };
}

/** The events of the last seconds, oldest first, at most 1,000. */
export async function recentEvents(database: Database, seconds: number): Promise<EventSummary[]> {
  return database.list(
    (sql) => sql<EventSummary[]>`
    select * from (
      ${summaries(sql)} where e.received_at > now() - make_interval(secs => ${seconds})
      order by e.received_at desc, e.id desc limit 1000
    ) recent order by received_at, id`,
  );
}

/** An attempt that has ended. `run` is 1, and one more for each redelivery; `error` is null for a success. */
export const attemptShape = object({
  run: count,
  attempt: count,
  ended_at: dateTime(),
  duration_ms: nullable(count),
  error: nullable(text()),
  answer_status: nullable(integer({ min: 0, max: 999 })),
  answer: nullable(text()),
});
export type Attempt = Infer<typeof attemptShape>;

/** `tries`: oldest first, the last 1,000. */
export type EventDetails = EventSummary &
  Pick<NewEvent, 'headers' | 'body'> &
  Readonly<{ token_id: string; ip: string | null; tries: readonly Attempt[] }>;

export async function findEvent(database: Database, id: string): Promise<EventDetails | null> {
  const [row] = await database.list(
    (sql) => sql<EventDetails[]>`
    select summary.*, e.token_id, e.headers, e.ip, e.body, (
      select coalesce(json_agg(a order by ended_at, attempt), '[]') from (
        select run, attempt, failed_at as ended_at, duration_ms, error, answer_status, answer
        from webhook.failures where event_id = e.id
        union all
        select run, attempts, ended_at, duration_ms, null, answer_status, answer
        from webhook.outcomes where event_id = e.id and status = 'done' and attempts > 0
        order by ended_at desc limit 1000
      ) a) as tries
    from (${summaries(sql)} where e.id = ${id}) summary join webhook.events e on e.id = summary.id`,
  );
  return row ?? null;
}

/** Up to this number, counts are exact. */
const MAX_COUNT = 10_000;

/** How many events have each status, at most one more than MAX_COUNT. `stored` counts among the newest SCANNED. */
export async function countByStatus(database: Database): Promise<Record<Status, number>> {
  const [row] = await database.search((sql) => {
    const ended = (status: Status) => sql`(select count(*)::int4 from (
      select from webhook.outcomes where status = ${status} limit ${MAX_COUNT + 1}) one)`;
    return sql<[Record<Status, number>]>`
      select ${ended('done')} as done, ${ended('dead')} as dead, ${ended('skipped')} as skipped,
        (select count(*)::int4 from (select from webhook.work limit ${MAX_COUNT + 1}) one) as waiting,
        (select count(*)::int4 from (
          select id from webhook.events order by received_at desc, id desc limit ${SCANNED}) e
          where not exists (select from webhook.outcomes where event_id = e.id)
            and not exists (select from webhook.work where event_id = e.id)) as stored`;
  });
  return row;
}

/** Events received, and that became dead, in each of the last `count` minutes or hours, oldest first. */
export async function readBars(database: Database, unit: 'minute' | 'hour', count: number) {
  return database.search((sql) => {
    const first = sql`date_trunc(${unit}, now()) - ${count - 1} * ${`1 ${unit}`}::text::interval`;
    return sql<Array<{ from: Date; received: number; dead: number }>>`
      with received as (
        select date_trunc(${unit}, received_at) as at, count(*)::int4 as events
        from webhook.events where received_at >= ${first} group by 1
      ), dead as (
        select date_trunc(${unit}, ended_at) as at, count(*)::int4 as events
        from webhook.outcomes where status = 'dead' and ended_at >= ${first} group by 1
      )
      select bar as from, coalesce(r.events, 0) as received, coalesce(d.events, 0) as dead
      from generate_series(${first}, now(), ${`1 ${unit}`}::text::interval) as bar
      left join received r on r.at = bar left join dead d on d.at = bar order by bar`;
  });
}
