/**
 * `make bench PART=drain`: time to deliver 10,000 waiting events to a handler that does nothing, in
 * a database with 1,000,000 delivered events, in alternation with an otherwise empty one. A round
 * counts only if every event was delivered once. Then the rate at which events of one page are
 * delivered in order, while 50,000 of them wait.
 */
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { readConfig } from '../../test/support/settings.ts';
import { migrate } from '../../src/db/schema.ts';
import { createDatabase as openDatabase, type Database } from '../../src/db/pool.ts';
import { createLog } from '../../src/runtime/log.ts';
import { noMetrics } from '../../src/runtime/metrics.ts';
import { createHandlerTarget } from '../../src/webhook/targets/handler.ts';
import { SCHEMA } from '../../src/webhook/migrations.ts';
import { createToken } from '../../test/support/tokens.ts';
import { startWorker } from '../../src/webhook/worker.ts';
import { insertEvent } from '../../src/webhook/store/events.ts';
import { newEvent, type TestToken } from '../../test/support/webhook-store.ts';
import { connect } from '../postgres.ts';
import { createDatabase, withPostgres } from './database.ts';
import { median, spread } from './service.ts';

const ROUNDS = 3;
const WAITING = Number(process.env.DRAIN_WAITING ?? 10_000);
const DONE = Number(process.env.DRAIN_DONE ?? 1_000_000);
const MAX_RATIO = 1.2;
const BEHIND = Number(process.env.DRAIN_BEHIND ?? 50_000);
/** Events of one page in a round, and their least rate per second. */
const IN_ORDER = Number(process.env.DRAIN_IN_ORDER ?? 2_000);
const MIN_RATE = 300;
/** The service's defaults, except for the backoff. */
const SETTINGS = {
  concurrency: 10,
  timeoutMs: 30_000,
  pausesMs: new Array<number>(11).fill(1_000),
};

interface Subject {
  readonly history: number;
  readonly database: Database;
  readonly sql: Sql;
  readonly seconds: number[];
}

const log = () => createLog('silent', () => {});

/** SQL for the body of an event, about 300 bytes. */
const body = (sql: Sql) => sql`
  convert_to('{"event":"page.updated","data":{"page_id":"' || gen_random_uuid()
    || '","text":"' || repeat('x', 200) || '"}}', 'UTF8')`;

async function prepare(server: string, history: number): Promise<Subject> {
  const url = await createDatabase(server, `drain_${history}`);
  const address = readConfig(['webhook'], 'administer', { DATABASE_URL: url }).webhook?.database;
  if (!address) throw new Error('no database address');
  const database = openDatabase(address, SCHEMA.name, log(), noMetrics);
  await migrate(database, SCHEMA);
  await createToken(database, { name: 'bench', role: 'sender', source: 'generic' }, null);
  const sql = connect(url);
  const startedAt = performance.now();
  // Spread over the last 30 days, a tenth of them with a failed attempt.
  await sql`
    with created as (
      insert into webhook.events (id, token_id, delivery_id, event, headers, ip, body, received_at)
      select gen_random_uuid(), (select id from webhook.tokens), 'done-' || n, 'page.updated',
        '{"content-type": "application/json"}', '203.0.113.' || n % 256, ${body(sql)},
        now() - interval '30 days' * (1 - n::float8 / ${history + 1}::float8)
      from generate_series(1, ${history}::int) n returning id, received_at
    ), failed as (
      insert into webhook.failures (event_id, attempt, failed_at, error)
      select id, 1, received_at, 'the target answered 503' from created where random() < 0.1
    )
    insert into webhook.outcomes (event_id, status, attempts, ended_at)
    select id, 'done', 1, received_at from created`;
  await sql`vacuum analyze`;
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
  if (history > 0) console.log(`${history} delivered events inserted in ${seconds} s`);
  return { history, database, sql, seconds: [] };
}

/** Inserts the waiting events. @returns the seconds until all are delivered */
async function drain({ history, database, sql }: Subject): Promise<number> {
  if (history === 0)
    await sql`truncate webhook.events, webhook.outcomes, webhook.failures, webhook.work`;
  await sql`
    with created as (
      insert into webhook.events (id, token_id, event, headers, ip, body)
      select gen_random_uuid(), (select id from webhook.tokens), 'page.updated',
        '{"content-type": "application/json"}', '203.0.113.1', ${body(sql)}
      from generate_series(1, ${WAITING}::int) returning id, token_id, received_at
    ) insert into webhook.work (event_id, token_id, received_at)
    select id, token_id, received_at from created`;
  await sql`checkpoint`;
  const before = await countDone(sql);
  let delivered = 0;
  const handler = createHandlerTarget(join(import.meta.dirname, 'noop.mjs'), {});
  const target: typeof handler = {
    deliver(task, stop) {
      delivered += 1;
      return handler.deliver(task, stop);
    },
    close: handler.close,
  };
  const startedAt = performance.now();
  const worker = startWorker(database, target, SETTINGS, log(), noMetrics, 'bench');
  try {
    while ((await sql`select from webhook.work limit 1`).length > 0) await sleep(10);
    const seconds = (performance.now() - startedAt) / 1_000;
    const done = (await countDone(sql)) - before;
    if (delivered === WAITING && done === WAITING) return seconds;
    throw new Error(`of ${WAITING} events ${delivered} were delivered and ${done} are done`);
  } finally {
    await worker.stop();
  }
}

/**
 * Delivers events of one page in order.
 * @returns the seconds for IN_ORDER of them while at least BEHIND wait
 */
async function drainPage({ database, sql }: Subject, page: string): Promise<number> {
  const [token] = await sql<[TestToken]>`select id, digest from webhook.tokens`;
  const total = IN_ORDER + BEHIND;
  for (let first = 0; first < total; first += 1_000) {
    const numbers = Array.from(
      { length: Math.min(1_000, total - first) },
      (_, index) => first + index,
    );
    const body = Buffer.alloc(300, ' ');
    const events = numbers.map((number) =>
      newEvent(token, { event: String(number), order_key: page, body }),
    );
    await Promise.all(events.map((event) => insertEvent(database, event)));
  }
  await sql`vacuum analyze`;
  await sql`checkpoint`;
  const handler = createHandlerTarget(join(import.meta.dirname, 'noop.mjs'), {});
  const delivered: number[] = [];
  let startedAt = 0;
  let seconds = 0;
  const target: typeof handler = {
    deliver(task, stop) {
      // The rest fails, and its page waits.
      if (delivered.length === IN_ORDER)
        return Promise.resolve({ error: 'enough', retryAfter: 3_600 });
      delivered.push(Number(task.event));
      seconds = (performance.now() - startedAt) / 1_000;
      return handler.deliver(task, stop);
    },
    close: handler.close,
  };
  startedAt = performance.now();
  const worker = startWorker(database, target, SETTINGS, log(), noMetrics, 'bench');
  while (delivered.length < IN_ORDER) await sleep(10);
  await worker.stop();
  if (delivered.every((number, index) => number === index)) return seconds;
  throw new Error('the events of one page were not delivered in order');
}

async function countDone(sql: Sql): Promise<number> {
  const [row] = await sql<
    [{ n: number }]
  >`select count(*)::int as n from webhook.outcomes where status = 'done'`;
  return row.n;
}

await withPostgres(async (postgres) => {
  const subjects: Subject[] = [];
  try {
    for (const history of [0, DONE]) subjects.push(await prepare(postgres.url, history));
    const [empty, filled] = subjects;
    if (!empty || !filled) throw new Error('a comparison needs two subjects');
    // The first round is a warm-up.
    for (let round = 0; round <= ROUNDS; round += 1) {
      for (const subject of subjects) {
        const seconds = await drain(subject);
        if (round > 0) subject.seconds.push(seconds);
      }
    }
    const ratio = median(filled.seconds) / median(empty.seconds);
    const machine = `Node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} processors`;
    console.log(`${machine}, ${ROUNDS} rounds in alternation; median (min to max)`);
    console.log(
      `${WAITING} waiting events, with ${DONE} delivered / with none: ${ratio.toFixed(2)} times`,
    );
    for (const { history, seconds } of subjects) {
      const rate = (WAITING / median(seconds)).toFixed(0);
      console.log(`with ${history} delivered: ${spread(seconds)} s, ${rate} events/s`);
    }
    const inOrder: number[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      await empty.sql`truncate webhook.work, webhook.pages, webhook.page_tails, webhook.events`;
      const seconds = await drainPage(empty, `page ${round}`);
      if (round > 0) inOrder.push(seconds);
    }
    const rate = IN_ORDER / median(inOrder);
    const inPage = `${IN_ORDER} events of one page, ${BEHIND} behind them`;
    console.log(`${inPage}: ${spread(inOrder)} s, ${rate.toFixed(0)} events/s`);
    if (!(rate >= MIN_RATE)) throw new Error(`less than ${MIN_RATE} events/s in order`);
    if (!(ratio <= MAX_RATIO)) throw new Error(`the ratio exceeds ${MAX_RATIO}`);
  } finally {
    for (const { database, sql } of subjects) await Promise.all([database.close(), sql.end()]);
  }
});
