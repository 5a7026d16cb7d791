/**
 * A webhook database without a listener: events are stored as `receive` does, and any number of
 * workers deliver.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { sha256 } from '../../src/platform/crypto/token.ts';
import type { Database } from '../../src/platform/db/pool.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { createMetrics, type Metrics } from '../../src/platform/runtime/metrics.ts';
import { accept } from '../../src/webhook/accept.ts';
import { COMMON_QUEUE, SCHEMA } from '../../src/webhook/migrations.ts';
import type { LeasedEvent, NewEvent, Result } from '../../src/webhook/model.ts';
import type { WorkSettings } from '../../src/webhook/settings.ts';
import { COMMON } from '../../src/webhook/store/queue.ts';
import { claimWork } from '../../src/webhook/store/work.ts';
import { startWorker } from '../../src/webhook/worker.ts';
import { openConnections, untilSql } from './connections.ts';
import { createDatabase } from './database.ts';
import type { Owner } from './owner.ts';
import { createToken } from './tokens.ts';

/** A sender's token. */
export type TestToken = Readonly<{ id: string; digest: Buffer }>;

type EventOptions = Partial<
  Pick<NewEvent, 'event' | 'delivery_id' | 'body_digest' | 'body' | 'status' | 'order_key'>
> & { readonly token?: TestToken };

/** Delivers an event. Null is a success. */
type Deliver = (event: LeasedEvent, signal: AbortSignal) => Promise<Result | null>;

/** @returns the id and status, or `conflict` */
export async function store(database: Database, event: NewEvent) {
  const outcome = await accept(database, event);
  if (outcome.status === 'rejected') throw new Error('the token is not active');
  return outcome.status === 'conflict' ? outcome.status : outcome;
}

/** An event as `receive` creates it. */
export const newEvent = (
  own: TestToken,
  { token = own, ...options }: EventOptions = {},
): NewEvent => ({
  id: randomUUID(),
  token_id: token.id,
  token_digest: token.digest,
  secret_id: null,
  source: 'generic',
  delivery_id: null,
  body_digest: null,
  event: 'page.updated',
  headers: { 'content-type': 'application/json' },
  ip: '127.0.0.1',
  body: Buffer.from('{}'),
  status: 'waiting',
  order_key: null,
  revision: 0,
  queue: COMMON_QUEUE,
  ...options,
});

export type WorkQueue = Awaited<ReturnType<typeof openWorkQueue>>;

export async function openWorkQueue(owner: Owner) {
  const { url: databaseUrl, sql } = await createDatabase(owner);
  const database = openConnections(owner, databaseUrl, SCHEMA.name);
  const addToken = async (name: string): Promise<TestToken> => {
    const created = await createToken(database, { name, role: 'sender', source: 'generic' }, null);
    return { id: created.id, digest: sha256(created.token) };
  };
  /** The sender of events without another one. */
  const token = await addToken('test');
  const send = (options?: EventOptions) => store(database, newEvent(token, options));
  const clear = () =>
    sql`truncate webhook.work, webhook.pages, webhook.page_tails, webhook.outcomes,
      webhook.failures, webhook.events, webhook.failing_targets, webhook.pause`;
  /** Stores an event, waiting unless the options have another status. @returns its id */
  async function put(options?: EventOptions): Promise<string> {
    const stored = await send(options);
    return stored === 'conflict' ? assert.fail(stored) : stored.id;
  }
  /** Stores an event that has ended. @returns its id */
  async function putEnded(
    status: 'done' | 'dead',
    { run = 1, attempts = 1, ...options }: EventOptions & { run?: number; attempts?: number } = {},
  ): Promise<string> {
    const id = await put({ ...options, status: 'stored' });
    await sql`
      insert into webhook.outcomes (event_id, status, run, attempts)
      values (${id}, ${status}, ${run}, ${attempts})`;
    return id;
  }
  return {
    databaseUrl,
    /** One connection, for assertions. */
    sql,
    database,
    token,
    addToken,
    put,
    putEnded,
    /** As `put`. @returns its id and status, or `conflict` */
    send,
    clear,
    /** Only so many new events are there. @returns their ids, oldest first */
    async fresh(count: number): Promise<string[]> {
      await clear();
      const ids: string[] = [];
      while (ids.length < count) ids.push(await put());
      return ids;
    },
    claim: (limit = 100) => claimWork(database, limit),
    async endLeases() {
      for (const table of ['work', 'pages'])
        await sql`update webhook.${sql(table)} set due_at = now() - interval '1 second'`;
    },
    stateOf: (id: string) => stateOf(sql, id),
    until: (id: string, status: string) => untilStatus(sql, id, status),
    nothingWaits: () =>
      untilSql(async () => (await sql`select from webhook.work`).length === 0, 'nothing waits'),
    startWorker: (deliver: Deliver, settings?: Settings, more?: More) =>
      startReplica(owner, databaseUrl, deliver, settings, more),
  };
}

type Settings = Partial<WorkSettings & { readonly maxAttempts: number }>;
type More = Readonly<{ url?: string; log?: (line: string) => void; metrics?: Metrics }>;

/** A worker with its own connections, like another replica. It stops with its owner, or before. */
function startReplica(
  owner: Owner,
  databaseUrl: string,
  deliver: Deliver,
  { maxAttempts = 3, ...settings }: Settings = {},
  { url = databaseUrl, log = () => {}, metrics = createMetrics() }: More = {},
) {
  const own = openConnections(
    { after: (fn) => owner.after(() => stop().then(fn)) },
    url,
    SCHEMA.name,
  );
  let looks = 0;
  // A worker reads the state of its target before each claim.
  const read: Database['read'] = (work) => {
    looks += 1;
    return own.read(work);
  };
  const worker = startWorker({
    database: { ...own, read },
    deliverer: {
      deliver: async (event, signal) => (await deliver(event, signal)) ?? { error: null },
      close: async () => {},
    },
    settings: {
      concurrency: 10,
      timeoutMs: 30_000,
      // So that retries follow at once.
      pausesMs: new Array<number>(maxAttempts - 1).fill(1),
      ...settings,
    },
    log: createLog('info', log),
    metrics,
    target: { key: 'test', name: 'test' },
    queue: COMMON,
  });
  let stopping: Promise<void> | undefined;
  const stop = (graceMs?: number) => {
    stopping ??= worker.stop(graceMs);
    return stopping;
  };
  /** `looks`: how often it has asked what it may claim. */
  return { ...worker, stop, looks: () => looks };
}

/**
 * Stores due events of senders, the first ones first, each in a page of its own if it is ordered.
 * @returns their ids
 */
export async function fillQueue(
  sql: Sql,
  tokens: readonly string[],
  count: number,
  { isOrdered = false, minutesAgo = 60 } = {},
): Promise<string[]> {
  const rows = await sql<Array<{ id: string }>>`
    with event as (
      insert into webhook.events (id, token_id, event, body)
      select gen_random_uuid(), t.id, n::text, ''
      from webhook.tokens t, generate_series(1, ${count}::int4) n
      where t.id in ${sql(tokens)}
      returning id, token_id, case when ${isOrdered} then id::text end as order_key,
        now() - ${minutesAgo} * interval '1 minute' + event::int4 * interval '1 ms' as due_at
    ), page as (
      insert into webhook.pages (order_key, token_id, due_at)
      select order_key, token_id, due_at from event where ${isOrdered}
    ), work as (
      insert into webhook.work (event_id, token_id, received_at, due_at, order_key, seq)
      select id, token_id, now(), due_at, order_key, case when ${isOrdered} then 1 end from event
    )
    select id from event`;
  return rows.map(({ id }) => id);
}

/** What the database has about an event. */
export async function stateOf(sql: Sql, id: string) {
  const [row] = await sql<[{ status: string; attempts: number; errors: string[] }]>`
    select coalesce(o.attempts, w.attempts, 0) as attempts,
      coalesce(o.status, case when w.event_id is null then 'stored' else 'waiting' end) as status,
      array(select error from webhook.failures
        where event_id = e.id order by failed_at, attempt) as errors
    from webhook.events e
    left join webhook.outcomes o on o.event_id = e.id
    left join webhook.work w on w.event_id = e.id
    where e.id = ${id}`;
  return { ...row };
}

export const untilStatus = (sql: Sql, id: string, status: string): Promise<void> =>
  untilSql(async () => (await stateOf(sql, id)).status === status, `the event is ${status}`);

/** An event as a worker gives it to a target. */
export const leasedEvent = (more: Partial<LeasedEvent> = {}): LeasedEvent => ({
  id: randomUUID(),
  token_id: randomUUID(),
  lease: randomUUID(),
  attempt: 1,
  event: 'page.updated',
  source: 'generic',
  delivery_id: 'd-1',
  received_at: new Date('2030-01-02T03:04:05.678Z'),
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{"event":"page.updated","data":{"page_id":"p1"}}'),
  ...more,
});

export const FAILED: Result = { error: 'failed by the test', retryAfter: null };
