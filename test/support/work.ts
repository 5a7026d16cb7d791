/** The inbox without a listener: events are put in as they would be received, and worked on as by any number of replicas. */
import { randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { migrate } from '../../src/db/migrate.ts';
import type { Database } from '../../src/db/pool.ts';
import { createLog } from '../../src/runtime/log.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { MIGRATIONS, SCHEMA } from '../../src/webhook/migrations.ts';
import { type Acceptance, insertEvent, type Plan } from '../../src/webhook/store/events.ts';
import type { Task } from '../../src/webhook/store/work.ts';
import { createToken } from '../../src/webhook/tokens.ts';
import { type Delivery, type Failed, startWorker, type Worker, type WorkSettings } from '../../src/webhook/worker.ts';
import { createDatabase } from './database.ts';
import { openLanes } from './lanes.ts';

interface Owner {
  after(fn: () => Promise<void>): void;
}

interface Wish {
  readonly event?: string;
  readonly deliveryId?: string;
  readonly body?: Buffer;
  readonly plan?: Plan;
  readonly orderKey?: string;
}

/** What the database knows of an event. */
export interface State {
  readonly status: string;
  readonly attempts: number;
  readonly errors: readonly string[];
}

export interface Workshop {
  readonly databaseUrl: string;
  /** One connection, for looking at what has been done. */
  readonly sql: Sql;
  readonly database: Database;
  /** Stores an event, to be worked on unless the plan says otherwise. @returns its id */
  put(wish?: Wish): Promise<string>;
  /** The same, as its sender is answered. */
  send(wish?: Wish): Promise<Acceptance | 'another body'>;
  stateOf(id: string): Promise<State>;
  /** A worker with connections of its own, as of one more replica. It stops with its owner, or before. */
  hire(deliver: Delivery['deliver'], settings?: Partial<WorkSettings>, more?: { url?: string; log?: (line: string) => void }): Worker;
}

/** Not long, so that what fails comes back in a moment. */
const SETTINGS: WorkSettings = { concurrency: 10, timeoutMs: 30_000, maxAttempts: 3, backoffBase: 0.001 };

export async function openWorkshop(owner: Owner): Promise<Workshop> {
  const { url, sql } = await createDatabase(owner);
  const database = openLanes(owner, url, SCHEMA);
  await migrate(database, SCHEMA, MIGRATIONS);
  const { record } = await createToken(database, { name: 'test', role: 'sender', source: 'generic' }, null);
  const send: Workshop['send'] = ({ event = 'page.updated', deliveryId, body = Buffer.from('{}'), orderKey, plan } = {}) =>
    insertEvent(
      database,
      { id: randomUUID(), tokenId: record.id, source: 'generic', deliveryId: deliveryId ?? null, event, headers: { 'content-type': 'application/json' }, ip: '127.0.0.1', body },
      plan ?? { kind: 'work', orderKey: orderKey ?? null },
    );
  return {
    databaseUrl: url,
    sql,
    database,
    send,
    async put(wish) {
      const stored = await send(wish);
      if (stored === 'another body') throw new Error('this delivery id has been used');
      return stored.id;
    },
    stateOf: (id) => stateOf(sql, id),
    hire(deliver, settings, { url: way = url, log = () => {} } = {}) {
      const lanes = openLanes({ after: (fn) => owner.after(async () => void (await stop(), await fn())) }, way, SCHEMA);
      const worker = startWorker(lanes, { deliver, close: async () => {} }, { ...SETTINGS, ...settings }, createLog('info', log), createMetrics());
      let stopping: Promise<void> | undefined;
      const stop = () => (stopping ??= worker.stop());
      return { notify: worker.notify, stop };
    },
  };
}

export async function stateOf(sql: Sql, id: string): Promise<State> {
  const [row] = await sql<[{ status: string; attempts: number }]>`
    select coalesce(o.status, case when w.event_id is null then 'stored' else 'waiting' end) as status, coalesce(o.attempts, w.attempts, 0) as attempts
    from webhook.events e left join webhook.outcomes o on o.event_id = e.id left join webhook.work w on w.event_id = e.id where e.id = ${id}`;
  const failures = await sql<Array<{ error: string }>>`select error from webhook.failures where event_id = ${id} order by failed_at, attempt`;
  return { status: row.status, attempts: row.attempts, errors: failures.map(({ error }) => error) };
}

/** An event as a delivery is given it. */
export const taskOf = (more: Partial<Task> = {}): Task => ({
  id: randomUUID(),
  claim: randomUUID(),
  attempt: 1,
  event: 'page.updated',
  source: 'generic',
  delivery_id: 'd-1',
  received_at: new Date('2030-01-02T03:04:05.678Z'),
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{"event":"page.updated","data":{"page_id":"p1"}}'),
  ...more,
});

export const FAILED: Failed = { error: 'as the test wants', retryAfter: null };

/** One delivery with a time limit, as the worker sets it. @returns what went wrong, if anything did */
export async function deliverOnce({ deliver }: Delivery, task: Task, timeoutMs = 20_000): Promise<string | null> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), timeoutMs);
  const failed = await deliver(task, limit.signal);
  clearTimeout(timer);
  return failed?.error ?? null;
}

/** A delivery that ends when the test says so. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open: () => open() };
}
