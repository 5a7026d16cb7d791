/**
 * `webhook.emit` under faults: two programs emit events in transactions of which a third rolls
 * back, while receivers and PostgreSQL are killed. Exactly the committed events are delivered, and
 * those of a page in the order of the commits.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../../../scripts/postgres.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { openConnections } from '../../support/connections.ts';
import { buildProgram, type Running, runProgram, startProgram } from '../../support/process.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { startDatabase } from './system.ts';
import { createRandom, SEED } from './random.ts';

const PROGRAMS = ['shop', 'billing'] as const;
const EVENTS = Number(process.env.OUTBOX_EVENTS ?? 10_000);
const PAGES = 40;
const CONNECTIONS = 6;
const KILLS = 6;

/** The tables of the programs, and their roles, each with a token of its own name. */
async function prepare(t: TestContext, url: string, environment: Record<string, string>) {
  const run = async (...words: string[]) => {
    const done = await runProgram(t, buildProgram(), words, environment);
    assert.equal(done.code, 0, done.stderr);
  };
  await run('migrate', 'webhook');
  const sql = connect(url);
  await sql.unsafe(`create table public.orders (
    program text, page text, number int, event_id uuid primary key,
    unique (program, page, number))`);
  for (const name of PROGRAMS) {
    await sql.unsafe(`create role ${name} login password 'x';
      grant select, insert on public.orders to ${name}`);
    await run('token', 'create', '--name', name);
    await run('outbox', 'grant', name, '--token', name);
  }
  await sql.end();
}

class RolledBack extends Error {}

/** One transaction. The call holds the lock of its page, so the number follows the commits. */
const order = (database: Database, program: string, page: string, isKept: boolean) =>
  database.transaction(async (inner) => {
    const [event] = await inner`
      select webhook.emit(${program}, 'order.made', '{}', page_id => ${page}) as id`;
    await inner`
      insert into public.orders
      select ${program}, ${page}, count(*) + 1, ${event?.id}
      from public.orders where program = ${program} and page = ${page}`;
    if (!isKept) throw new RolledBack();
  });

/** Emits until so many transactions have ended one way or the other. */
async function runProgramOf(t: TestContext, url: string, program: string, random: () => number) {
  const address = new URL(url);
  address.username = program;
  address.password = 'x';
  const database = openConnections(t, address.href, program);
  let left = EVENTS;
  const work = async () => {
    while (left > 0) {
      left -= 1;
      const page = String(Math.floor(random() * PAGES));
      await order(database, program, page, random() > 1 / 3).catch(async (error: unknown) => {
        if (error instanceof RolledBack) return;
        // PostgreSQL is down. Whether the transaction was committed, its table tells.
        left += 1;
        await sleep(100);
      });
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, work));
}

test(`events exist if their transactions committed (FAULTS_SEED=${SEED})`, async (t) => {
  const database = await startDatabase(t);
  const target = await startRecorder(t);
  target.answer(reply(200, {}));
  const environment = {
    DATABASE_URL: database.url,
    WEBHOOK_FORWARD_URL: target.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_HOST: '127.0.0.1',
    WEBHOOK_PORT: '0',
    WEBHOOK_RETRY_SCHEDULE: '100ms,200ms,400ms,800ms,1s,1s,1s',
    WEBHOOK_CONCURRENCY: '32',
  };
  await prepare(t, database.server().url, environment);
  const start = () => startProgram(t, buildProgram(), ['serve', 'webhook'], environment);
  const receivers: Running[] = [start(), start()];
  await Promise.all(receivers.map((one) => one.ready('webhook')));

  const random = createRandom(SEED);
  const emitting = Promise.all(PROGRAMS.map((name) => runProgramOf(t, database.url, name, random)));
  for (let kill = 0; kill < KILLS; kill += 1) {
    await sleep(1_000 + random() * 2_000);
    if (kill % 2 === 0) {
      await database.kill();
      await database.restart();
    } else {
      receivers[0]?.signal('SIGKILL');
      await receivers.shift()?.ended;
      receivers.push(start());
    }
  }
  await emitting;

  const sql = connect(database.server().url);
  t.after(() => sql.end());
  const countOpen = async () => (await sql`select from webhook.work`).length;
  for (let open = await countOpen(); open > 0; open = await countOpen()) await sleep(200);

  const orders = await sql<Array<{ program: string; page: string; event_id: string }>>`
    select program, page, event_id from public.orders order by program, page, number`;
  const events = await sql<Array<{ id: string; status: string }>>`
    select id, status from webhook.events join webhook.outcomes on event_id = id
    where source = 'outbox'`;
  const delivered = target.received.map(({ headers }) => String(headers['webhook-id']));
  t.diagnostic(`${2 * EVENTS} transactions, ${orders.length} committed, ${delivered.length} calls`);
  const committed = orders.map(({ event_id }) => event_id).sort();
  assert.ok(committed.length > EVENTS);
  assert.deepEqual(events.map(({ id }) => id).sort(), committed);
  assert.deepEqual([...new Set(delivered)].sort(), committed);
  assert.ok(events.every(({ status }) => status === 'done'));

  const firstAt = new Map<string, number>();
  for (const [at, id] of delivered.entries()) if (!firstAt.has(id)) firstAt.set(id, at);
  for (const [at, { program, page, event_id }] of orders.entries()) {
    const next = orders[at + 1];
    if (next?.program !== program || next.page !== page) continue;
    const isInOrder = Number(firstAt.get(event_id)) < Number(firstAt.get(next.event_id));
    assert.ok(isInOrder, `${program} ${page}: ${event_id} before ${next.event_id}`);
  }
});
