import { arrayLiteral, batched } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import type { SourceName } from '../sources.ts';

export interface NewEvent {
  readonly id: string;
  readonly tokenId: string;
  readonly source: SourceName;
  readonly deliveryId: string | null;
  readonly event: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly ip: string;
  readonly body: Buffer;
}

export interface Acceptance {
  readonly id: string;
  readonly status: 'accepted' | 'duplicate';
}

/** What becomes of an event: worked on (in order with others of the same key), kept only, or not among the selected ones. */
export type Plan = { readonly kind: 'work'; readonly orderKey: string | null } | { readonly kind: 'store' | 'skip' };

/**
 * Stores events and their work in one statement. Whether one came before is decided by the unique index, never by looking
 * first: two copies in flight would both find nothing.
 * @returns for each whether it is new
 */
const insertNew = batched(
  async (database: Database, events: ReadonlyArray<{ readonly event: NewEvent; readonly plan: Plan }>): Promise<boolean[]> => {
    const of = (pick: (event: NewEvent, plan: Plan) => string | Buffer | null) => arrayLiteral(events.map(({ event, plan }) => pick(event, plan)));
    const inserted = await database.write(
      (sql) => sql<Array<{ id: string }>>`
        with given as (
          select * from unnest(
            ${of(({ id }) => id)}::text::uuid[], ${of(({ tokenId }) => tokenId)}::text::uuid[], ${of(({ source }) => source)}::text::text[],
            ${of(({ deliveryId }) => deliveryId)}::text::text[], ${of(({ event }) => event)}::text::text[],
            ${of(({ headers }) => JSON.stringify(headers))}::text::jsonb[], ${of(({ ip }) => ip)}::text::text[], ${of(({ body }) => body)}::text::bytea[],
            ${of((_, { kind }) => kind)}::text::text[], ${of((_, plan) => (plan.kind === 'work' ? plan.orderKey : null))}::text::text[]
          ) with ordinality as given (id, token_id, source, delivery_id, event, headers, ip, body, kind, order_key, place)
        ), event as (
          -- A moment later each, because deliveries in order go by it. Inserted in one order everywhere, so that two replicas
          -- never wait for each other's rows.
          insert into webhook.events (id, token_id, source, delivery_id, event, headers, ip, body, received_at)
          select id, token_id, source, delivery_id, event, headers, ip, body, now() + place * interval '1 microsecond' from given order by token_id, delivery_id, place
          on conflict (token_id, delivery_id) do nothing returning id, received_at
        ), work as (
          insert into webhook.work (event_id, received_at, order_key)
          select id, received_at, order_key from event join given using (id) where kind = 'work'
        ), outcome as (
          insert into webhook.outcomes (event_id, status, attempts) select id, 'skipped', 0 from event join given using (id) where kind = 'skip'
        )
        select id from event`,
    );
    const made = new Set(inserted.map(({ id }) => id));
    return events.map(({ event }) => made.has(event.id));
  },
  { bytesOf: ({ event }) => event.body.length },
);

/**
 * Stores an event, once. A repetition of one that is dead here drives it again: somebody has asked the sender for it.
 * @returns `another body` when the delivery id stands for other bytes
 */
export async function insertEvent(database: Database, event: NewEvent, plan: Plan): Promise<Acceptance | 'another body'> {
  if (await insertNew(database, { event, plan })) return { id: event.id, status: 'accepted' };
  const [first] = await database.read(
    (sql) => sql<Array<{ id: string; same: boolean; dead: boolean }>>`
      select id, body = ${event.body} as same, exists (select from webhook.outcomes where event_id = id and status = 'dead') as dead
      from webhook.events where token_id = ${event.tokenId} and delivery_id = ${event.deliveryId}`,
  );
  // The first one was removed between the two statements: there is room now.
  if (!first) return insertEvent(database, event, plan);
  if (!first.same) return 'another body';
  // Or between these two.
  if (first.dead && (await redeliver(database, [first.id])) === 0) return insertEvent(database, event, plan);
  return { id: first.id, status: 'duplicate' };
}

export const STATUSES = ['stored', 'waiting', 'done', 'dead', 'skipped'] as const;
export type Status = (typeof STATUSES)[number];

/** An event without its body. */
export interface EventLine {
  readonly id: string;
  readonly event: string;
  readonly source: SourceName;
  readonly delivery_id: string | null;
  readonly received_at: Date;
  readonly status: Status;
  readonly attempts: number;
  readonly last_error: string | null;
}

export interface EventFilter {
  readonly status: Status | undefined;
  /** `*` stands for anything. */
  readonly event: string | undefined;
  readonly source: string | undefined;
  readonly since: Date | undefined;
  /** The last one of the page before. */
  readonly after: string | undefined;
}

const lines = (sql: Sql): Fragment => sql`
  select e.id, e.event, e.source, e.delivery_id, e.received_at, coalesce(o.status, case when w.event_id is null then 'stored' else 'waiting' end) as status,
    coalesce(o.attempts, w.attempts, 0) as attempts, (select error from webhook.failures f where f.event_id = e.id order by failed_at desc limit 1) as last_error
  from webhook.events e left join webhook.outcomes o on o.event_id = e.id left join webhook.work w on w.event_id = e.id`;

/** Newest first. What waits or is dead is looked for in its own small table, not among all. */
export async function listEvents(database: Database, { status, event, source, since, after }: EventFilter, limit: number): Promise<EventLine[]> {
  return database.list((sql) => {
    const ofStatus = {
      stored: sql`o.event_id is null and w.event_id is null`,
      waiting: sql`e.id in (select event_id from webhook.work)`,
      done: sql`o.status = 'done'`,
      dead: sql`e.id in (select event_id from webhook.outcomes where status = 'dead')`,
      skipped: sql`o.status = 'skipped'`,
    };
    return sql<EventLine[]>`
      ${lines(sql)}
      where ${status === undefined ? sql`true` : ofStatus[status]} and ${event === undefined ? sql`true` : sql`e.event like ${event.replace(/[\\%_]/g, '\\$&').replaceAll('*', '%')}`}
        and ${source === undefined ? sql`true` : sql`e.source = ${source}`} and ${since === undefined ? sql`true` : sql`e.received_at >= ${since}`}
        and ${after === undefined ? sql`true` : sql`(e.received_at, e.id) < (select received_at, id from webhook.events where id = ${after})`}
      order by e.received_at desc, e.id desc limit ${limit}`;
  });
}

/** Those of the last few seconds, oldest first: for a live view, which must not miss what commits a little later than its neighbours. */
export async function recentEvents(database: Database, seconds: number): Promise<EventLine[]> {
  return database.list(
    (sql) => sql<EventLine[]>`
      select * from (${lines(sql)} where e.received_at > now() - make_interval(secs => ${seconds}) order by e.received_at desc, e.id desc limit 1000) recent
      order by received_at, id`,
  );
}

export interface EventDetails extends EventLine {
  readonly token_id: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly ip: string | null;
  readonly body: Buffer;
  readonly failures: ReadonlyArray<{ readonly attempt: number; readonly failed_at: string; readonly error: string }>;
}

export async function findEvent(database: Database, id: string): Promise<EventDetails | null> {
  const [row] = await database.list(
    (sql) => sql<EventDetails[]>`
      select line.*, e.token_id, e.headers, e.ip, e.body,
        (select coalesce(json_agg(json_build_object('attempt', attempt, 'failed_at', failed_at, 'error', error) order by failed_at), '[]') from webhook.failures where event_id = e.id) as failures
      from (${lines(sql)} where e.id = ${id}) line join webhook.events e on e.id = line.id`,
  );
  return row ?? null;
}

/** Drives events again from their first attempt, whatever became of them; what waits for its next one gets that now. @returns how many */
export async function redeliver(database: Database, ids: readonly string[]): Promise<number> {
  const result = await database.write(
    (sql) => sql`
      with again as (
        insert into webhook.work (event_id, received_at) select id, received_at from webhook.events where id in ${sql(ids)} for key share
        on conflict (event_id) do update set due_at = now() where work.claim is null returning event_id
      ), forgotten as (delete from webhook.outcomes where event_id in (select event_id from again))
      select event_id from again`,
  );
  return result.count;
}

/** Ids of one status, some at a time. */
export async function idsWithStatus(database: Database, status: 'dead' | 'stored' | 'skipped', most: number): Promise<string[]> {
  const rows = await database.list(
    (sql) => sql<Array<{ id: string }>>`
      select id from webhook.events e where ${
        status === 'stored'
          ? sql`not exists (select from webhook.outcomes where event_id = e.id) and not exists (select from webhook.work where event_id = e.id)`
          : sql`id in (select event_id from webhook.outcomes where status = ${status})`
      } order by received_at limit ${most}`,
  );
  return rows.map(({ id }) => id);
}

/** Removes what ended more than `seconds` ago, with all that belongs to it. Whatever has not ended stays. @returns how many; at most `most` */
export async function removeEnded(database: Database, status: Status, seconds: number, most: number): Promise<number> {
  const result = await database.write(
    (sql) => sql`
      with ended as (
        delete from webhook.outcomes where event_id = any (array(
          select event_id from webhook.outcomes where status = ${status} and ended_at < now() - make_interval(secs => ${seconds}) order by ended_at limit ${most}
        )) returning event_id
      ), failures as (delete from webhook.failures where event_id in (select event_id from ended))
      delete from webhook.events where id in (select event_id from ended)`,
  );
  return result.count;
}
