/**
 * A webhook database without a listener: events are stored as `receive` does, and any number of
 * workers deliver.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { sha256 } from '../../src/platform/crypto/token.ts';
import { migrate } from '../../src/platform/db/schema.ts';
import type { Database } from '../../src/platform/db/pool.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { type Metrics, createMetrics } from '../../src/platform/runtime/metrics.ts';
import { COMMON_QUEUE, SCHEMA } from '../../src/webhook/migrations.ts';
import { accept } from '../../src/webhook/accept.ts';
import type { WorkSettings } from '../../src/webhook/settings.ts';
import type { Deliverer, LeasedEvent, NewEvent, Result } from '../../src/webhook/model.ts';
import { createToken } from './tokens.ts';
import { COMMON } from '../../src/webhook/store/queue.ts';
import { startWorker } from '../../src/webhook/worker.ts';
import { createDatabase } from './database.ts';
import { openConnections, untilSql } from './connections.ts';
import { ask, WEBHOOK_TOKEN } from './gatehouse.ts';
import type { Owner } from './owner.ts';

type EventOptions = Partial<
  Pick<NewEvent, 'event' | 'delivery_id' | 'body' | 'status' | 'order_key'>
> & { readonly token?: TestToken };

/** What the database has about an event. */
export interface State {
  readonly status: string;
  readonly attempts: number;
  readonly errors: readonly string[];
}

/** Delivers an event. Null is a success. */
type Deliver = (event: LeasedEvent, signal: AbortSignal) => Promise<Result | null>;

export interface WorkQueue {
  readonly databaseUrl: string;
  /** One connection, for assertions. */
  readonly sql: Sql;
  readonly database: Database;
  /** The sender of events without another one. */
  readonly token: TestToken;
  addToken(name: string): Promise<TestToken>;
  /** Stores an event, waiting unless the options have another status. @returns its id */
  put(options?: EventOptions): Promise<string>;
  /** The same. @returns its id and status, or `conflict` */
  send(options?: EventOptions): ReturnType<typeof store>;
  stateOf(id: string): Promise<State>;
  /**
   * A worker with its own connections, like another replica. It stops with its owner, or before.
   */
  startWorker(
    deliver: Deliver,
    settings?: Partial<WorkSettings & { readonly maxAttempts: number }>,
    more?: { url?: string; log?: (line: string) => void; metrics?: Metrics },
  ): ReturnType<typeof startWorker> & {
    /** How often it has asked what it may claim. */
    looks(): number;
  };
}

/** With short delays, so that retries follow at once. */
const SETTINGS = { concurrency: 10, timeoutMs: 30_000, maxAttempts: 3 };

/** A sender's token. */
export type TestToken = Readonly<{ id: string; digest: Buffer }>;

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

export async function openWorkQueue(owner: Owner): Promise<WorkQueue> {
  const { url: databaseUrl, sql } = await createDatabase(owner);
  const database = openConnections(owner, databaseUrl, SCHEMA.name);
  await migrate(database, SCHEMA);
  const addToken = async (name: string): Promise<TestToken> => {
    const created = await createToken(database, { name, role: 'sender', source: 'generic' }, null);
    return { id: created.id, digest: sha256(created.token) };
  };
  const token = await addToken('test');
  const send: WorkQueue['send'] = (options) => store(database, newEvent(token, options));
  return {
    databaseUrl,
    sql,
    database,
    token,
    addToken,
    send,
    async put(options) {
      const stored = await send(options);
      if (stored === 'conflict') throw new Error('the delivery id belongs to another body');
      return stored.id;
    },
    stateOf: (id) => stateOf(sql, id),
    startWorker(
      deliver,
      settings,
      { url = databaseUrl, log = () => {}, metrics = createMetrics() } = {},
    ) {
      const own = openConnections(
        { after: (fn) => owner.after(() => stop().then(fn)) },
        url,
        SCHEMA.name,
      );
      const deliverer: Deliverer = {
        deliver: async (event, signal) => (await deliver(event, signal)) ?? { error: null },
        close: async () => {},
      };
      const all = { ...SETTINGS, ...settings };
      const { maxAttempts, ...others } = all;
      const pausesMs = new Array<number>(maxAttempts - 1).fill(1);
      const { watched, looks } = countReads(own);
      const worker = startWorker({
        database: watched,
        deliverer,
        settings: { pausesMs, ...others },
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
      return { ...worker, stop, looks };
    },
  };
}

/** A worker reads the state of its target before each claim. */
function countReads(database: Database) {
  let reads = 0;
  const read: Database['read'] = (work) => {
    reads += 1;
    return database.read(work);
  };
  return { watched: { ...database, read }, looks: () => reads };
}

export async function stateOf(sql: Sql, id: string): Promise<State> {
  const [row] = await sql<[{ status: string; attempts: number }]>`
    select coalesce(o.status, case when w.event_id is null then 'stored'
      else 'waiting' end) as status,
      coalesce(o.attempts, w.attempts, 0) as attempts
    from webhook.events e left join webhook.outcomes o on o.event_id = e.id left
      join webhook.work w on w.event_id = e.id
    where e.id = ${id}`;
  const failures = await sql<Array<{ error: string }>>`
    select error from webhook.failures where event_id = ${id} order by failed_at, attempt`;
  return { status: row.status, attempts: row.attempts, errors: failures.map(({ error }) => error) };
}

export const untilStatus = (sql: Sql, id: string, status: string): Promise<void> =>
  untilSql(async () => (await stateOf(sql, id)).status === status, `the event is ${status}`);

export const untilEnded = (sql: Sql, id: string): Promise<void> =>
  untilSql(async () => (await stateOf(sql, id)).status !== 'waiting', 'the event has ended');

/** Sends an event to a service, with the token of its first sender. @returns the id */
export async function sendEvent(base: string, event = 'e', page_id = 'p'): Promise<string> {
  const body = { event, data: { page_id } };
  const answer = await ask('POST', `${base}/webhook`, { bearer: WEBHOOK_TOKEN, body });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.id;
}

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

/**
 * One delivery with a time limit, which the worker sets otherwise.
 * @returns the error, or null on success
 */
export async function deliverOnce(
  { deliver }: Deliverer,
  event: LeasedEvent,
  timeoutMs = 20_000,
): Promise<string | null> {
  const { error } = await deliver(event, AbortSignal.timeout(timeoutMs));
  return error;
}
