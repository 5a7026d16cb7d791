import type { Database, Fragment, Sql } from '../../platform/db/pool.ts';
import type { NewEvent, Status } from '../model.ts';
import type { Attempt, EventFilter, EventSummary } from '../schemas.ts';

/** Whether an event `e` has neither ended nor waits. */
const isStoredSql = (sql: Sql) => sql`
  not exists (select from webhook.outcomes where event_id = e.id)
    and not exists (select from webhook.work where event_id = e.id)`;

/** The status of an event `e` with its outcome `o` and its work `w`. */
const statusSql = (sql: Sql) =>
  sql`coalesce(o.status, case when w.event_id is null then 'stored' else 'waiting' end)`;

const summariesSql = (sql: Sql) => sql`
  select e.id, e.event, e.source, e.delivery_id, t.name as token, e.received_at,
    coalesce(o.attempts, w.attempts, 0) as attempts,
    coalesce(o.attempts, w.attempts, 0) + (select count(*)::int4 from webhook.failures
      where event_id = e.id and run < coalesce(o.run, w.run)) as total_attempts,
    ${statusSql(sql)} as status,
    case when o.status is distinct from 'done' then (
      select error from webhook.failures
      where event_id = e.id and error is not null
      order by failed_at desc
      limit 1) end as last_error,
    case when w.lease is null then w.due_at end as next_attempt_at
  from webhook.events e
  left join webhook.outcomes o on o.event_id = e.id
  left join webhook.work w on w.event_id = e.id
  left join webhook.tokens t on t.id = e.token_id`;

/**
 * How many events a list looks at, at most: a filter that matches nothing must not read the whole
 * history.
 */
const SCANNED = 10_000;
/** The same for a filter by text, which reads the bodies. */
const SEARCHED = 2_000;
const scannedBy = ({ text }: EventFilter) => (text === undefined ? SCANNED : SEARCHED);

/** The conditions that are given. */
const allOfSql = (sql: Sql, conditions: ReadonlyArray<Fragment | undefined | false>) =>
  conditions.reduce<Fragment>((all, one) => (one ? sql`${all} and ${one}` : all), sql`true`);

/** Waiting and dead events are in small tables of their own. A delivery id has few events. */
function tableSql(sql: Sql, { status, delivery_id }: EventFilter) {
  if (delivery_id !== undefined) {
    return sql`select id, received_at from webhook.events
      where token_id in (select id from webhook.tokens) and delivery_id = ${delivery_id}`;
  }
  if (status === 'waiting') return sql`select event_id as id, received_at from webhook.work`;
  if (status === 'dead')
    return sql`select event_id as id, received_at from webhook.outcomes where status = 'dead'`;
  return sql`select id, received_at from webhook.events`;
}

/** The events that a list looks at, newest first. */
function candidatesSql(sql: Sql, filter: EventFilter) {
  const { since, until, after } = filter;
  const conditions = [
    since && sql`received_at >= ${since}`,
    until && sql`received_at <= ${until}`,
    after !== undefined &&
      sql`(received_at, id) < (select received_at, id from webhook.events where id = ${after})`,
  ];
  return sql`
    select id, received_at
    from (${tableSql(sql, filter)}) event
    where ${allOfSql(sql, conditions)}
    order by received_at desc, id desc
    limit ${scannedBy(filter)}`;
}

/** Which of the candidates match. */
function matchSql(sql: Sql, { status, event, source, text }: EventFilter) {
  return allOfSql(sql, [
    status && sql`${statusSql(sql)} = ${status}`,
    event !== undefined &&
      sql`e.event like ${event.replace(/[\\%_]/g, '\\$&').replaceAll('*', '%')}`,
    source !== undefined && sql`e.source = ${source}`,
    text !== undefined && sql`position(convert_to(${text}, 'UTF8') in e.body) > 0`,
  ]);
}

/**
 * @returns events, newest first, and the `after` of the next page, which may be empty; null at the
 * end
 */
export async function listEvents(database: Database, filter: EventFilter, limit: number) {
  const found = await database.search(
    (sql) => sql<EventSummary[]>`
    ${summariesSql(sql)}
    join (${candidatesSql(sql, filter)}) c on c.id = e.id
    where ${matchSql(sql, filter)}
    order by c.received_at desc, c.id desc
    limit ${limit + 1}`,
  );
  const events = found.slice(0, limit);
  if (found.length > limit) return { events, next: events.at(-1)?.id ?? null };
  // The next page continues after the last event that this one has looked at.
  const [last] = await database.search(
    (sql) => sql<Array<{ id: string }>>`
    select id
    from (${candidatesSql(sql, filter)}) c
    order by received_at desc, id desc
    offset ${scannedBy(filter) - 1}`,
  );
  return { events, next: last?.id ?? null };
}

/** The events of the last seconds, oldest first, at most 1,000. */
export function recentEvents(database: Database, seconds: number) {
  return database.list(
    (sql) => sql<EventSummary[]>`
    select *
    from (
      ${summariesSql(sql)}
      where e.received_at > now() - make_interval(secs => ${seconds})
      order by e.received_at desc, e.id desc
      limit 1000
    ) recent order by received_at, id`,
  );
}

type Received = Pick<NewEvent, 'token_id' | 'headers' | 'body'> & Readonly<{ ip: string | null }>;

/**
 * With its attempts, oldest first, the last 1,000.
 * @returns null if there is none
 */
export const findEvent = (database: Database, id: string) =>
  database.list(async (sql) => {
    const [event] = await sql<EventSummary[]>`${summariesSql(sql)} where e.id = ${id}`;
    const [received] = await sql<Received[]>`
      select token_id, ip, headers, body
      from webhook.events
      where id = ${id}`;
    const attempts = await sql<Attempt[]>`
      select *
      from (
        select run, attempt, failed_at as ended_at, duration_ms, error, answer_status, answer,
          target
        from webhook.failures
        where event_id = ${id}
        union all
        select run, attempts, ended_at, duration_ms, null, answer_status, answer, target
        from webhook.outcomes
        where event_id = ${id} and status = 'done' and attempts > 0
        order by ended_at desc
        limit 1000
      ) latest
      order by ended_at, attempt`;
    if (!event || !received) return null;
    return {
      event,
      ...received,
      body: received.body.toString('utf8'),
      attempts,
    };
  });

/** Up to this number, counts are exact. */
const MAX_COUNT = 10_000;

/**
 * How many events have each status, at most one more than MAX_COUNT. `stored` counts among the
 * newest SCANNED.
 */
export async function countByStatus(database: Database) {
  const [counts] = await database.search((sql) => {
    const countSql = (rowsSql: Fragment) => sql`(
      select count(*)::int4
      from (select from ${rowsSql} limit ${MAX_COUNT + 1}) one)`;
    const endedSql = (status: Status) => countSql(sql`webhook.outcomes where status = ${status}`);
    return sql<[Record<Status, number>]>`
      select ${endedSql('done')} as done, ${endedSql('dead')} as dead,
        ${endedSql('skipped')} as skipped, ${countSql(sql`webhook.work`)} as waiting,
        (select count(*)::int4 from (
          select id
          from webhook.events
          order by received_at desc, id desc
          limit ${SCANNED}) e
          where ${isStoredSql(sql)}) as stored`;
  });
  return counts;
}

/**
 * Events received, and that became dead, in each of the last `length` minutes or hours, oldest
 * first.
 */
export function readBars(database: Database, unit: 'minute' | 'hour', length: number) {
  return database.search((sql) => {
    const stepSql = sql`${`1 ${unit}`}::text::interval`;
    return sql<Array<{ from: Date; received: number; dead: number }>>`
      select bar as from,
        (select count(*)::int4 from webhook.events
          where received_at >= bar and received_at < bar + ${stepSql}) as received,
        (select count(*)::int4 from webhook.outcomes
          where status = 'dead' and ended_at >= bar and ended_at < bar + ${stepSql}) as dead
      from generate_series(
        date_trunc(${unit}, now()) - ${length - 1} * ${stepSql}, now(), ${stepSql}) as bar
      order by bar`;
  });
}
