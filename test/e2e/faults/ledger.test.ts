/**
 * `make e2e NAME=faults`: senders deliver signed events while receivers, database connections and
 * PostgreSQL are killed with SIGKILL at random moments, and one receiver is suspended for longer
 * than its lease. Afterwards every acknowledged event must be stored and have ended, in agreement
 * with the handler's ledger. FAULTS_SEED repeats the events and the sequence of kills with their
 * pauses, but not what each kill interrupts.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { COMMON_QUEUE } from '../../../src/webhook/migrations.ts';
import { buildProgram, type Running, runProgram, startProgram } from '../../support/process.ts';
import { until } from '../../support/until.ts';
import { connect } from '../../../scripts/postgres.ts';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { type Database, startDatabase } from './database.ts';
import { type AttemptSeries, checkEntry, type Entry, readLedger } from './ledger.ts';
import { createRandom, SEED } from './random.ts';
import { deliver, runSender, type Senders, SIGNING_SECRET } from './senders.ts';

const SECONDS = Number(process.env.FAULTS_SECONDS ?? 60);
const MIN_KILLS = 20;
const SENDERS = 12;
const PAUSES_MS = [100, 200, 400, 800];
const MAX_ATTEMPTS = PAUSES_MS.length + 1;
/** As in src/webhook/worker.ts. */
const LEASE_MS = 30_000;
/** More than the sum of all pauses, each of which is at most 20 % longer. */
const MAX_BACKOFF_MS = 3_200;
/** For the suspended receiver: the second attempt begins elsewhere before the first one ends. */
const SLOW_NAMES = Array.from({ length: 8 }, (_, number) =>
  number % 2 ? 'succeeds slowly' : 'fails slowly',
);
const SUSPENDED_MS = LEASE_MS + 3_500;

interface System {
  readonly database: Database;
  /** The file in which the handler notes its calls. */
  readonly ledger: string;
  readonly senders: Senders;
  /** Their token has a target of its own, which is down. */
  readonly sendersToDown: Senders;
  startReceiver(): Running;
  /** Those that are killed and started again. */
  readonly receivers: Running[];
  /** The one that is suspended. */
  readonly suspended: Running;
  readonly random: () => number;
  /** When each process lost its work, by process id. */
  readonly interrupted: Map<number, number>;
  readonly kills: { receiver: number; connection: number; database: number };
}

async function startSystem(t: TestContext): Promise<System> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-faults');
  t.after(() => removeTemporary(directory));
  const ledger = join(directory, 'ledger');
  writeFileSync(ledger, '');
  const database = await startDatabase(t, join(directory, 'database'));
  const base = {
    DATABASE_URL: database.url,
    WEBHOOK_SECRET: 'a secret for the ledger of 36 characters',
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  };
  const token = await createToken(t, directory, base);
  const downToken = await createToken(t, directory, base, ['--forward', 'http://127.0.0.1:9/']);
  const environment = {
    ...base,
    LEDGER: ledger,
    WEBHOOK_HOST: '127.0.0.1',
    WEBHOOK_PORT: '0',
    WEBHOOK_HANDLER: join(import.meta.dirname, 'handler.mjs'),
    WEBHOOK_RETRY_SCHEDULE: PAUSES_MS.map((pause) => `${pause}ms`).join(),
    // Longer than the suspension, so that a call of the suspended receiver ends by itself.
    WEBHOOK_TIMEOUT: '120',
    LOG_LEVEL: 'info',
  };
  const startReceiver = () => startProgram(t, buildProgram(), ['serve', 'webhook'], environment);
  const suspended = startReceiver();
  const receivers = [startReceiver(), startReceiver()];
  await Promise.all([suspended, ...receivers].map((one) => one.ready('webhook')));
  const urls = await Promise.all(receivers.map((one) => one.url('webhook')));
  const newSenders = (own: string): Senders => ({
    token: own,
    urls,
    acknowledged: new Map(),
    repeated: new Set(),
    isSending: true,
  });
  return {
    database,
    ledger,
    senders: newSenders(token),
    sendersToDown: newSenders(downToken),
    startReceiver,
    receivers,
    suspended,
    random: createRandom(SEED),
    interrupted: new Map(),
    kills: { receiver: 0, connection: 0, database: 0 },
  };
}

/** Creates the tables, and a token with the signing secret. */
async function createToken(
  t: TestContext,
  directory: string,
  environment: Readonly<Record<string, string>>,
  options: readonly string[] = [],
): Promise<string> {
  const file = join(directory, 'signing-secret');
  writeFileSync(file, SIGNING_SECRET);
  const program = buildProgram();
  assert.equal((await runProgram(t, program, ['migrate', 'webhook'], environment)).code, 0);
  const signed = ['--source', 'standard', '--signing-secret-file', file];
  const command = ['token', 'create', ...signed, ...options];
  const created = await runProgram(t, program, command, environment);
  assert.equal(created.code, 0, created.stderr);
  return created.stdout.trim();
}

/** Suspends a receiver during its work, and resumes it when others have taken the work over. */
async function suspend({ suspended, senders, ledger, interrupted }: System): Promise<void> {
  const url = await suspended.url('webhook');
  for (const [number, type] of SLOW_NAMES.entries()) {
    await deliver(senders, `msg_slow_${number}`, JSON.stringify({ type, number }), () => url);
  }
  const hasBegun = () => readFileSync(ledger, 'utf8').includes(` ${suspended.pid} begins `);
  await until(hasBegun, 'work of the receiver to suspend');
  interrupted.set(suspended.pid, Date.now());
  suspended.signal('SIGSTOP');
  await sleep(SUSPENDED_MS);
  suspended.signal('SIGCONT');
}

async function killReceiver(system: System): Promise<void> {
  const { random, receivers, interrupted, senders, kills } = system;
  const index = Math.floor(random() * receivers.length);
  const killed = receivers[index];
  assert.ok(killed);
  interrupted.set(killed.pid, Date.now());
  killed.signal('SIGKILL');
  await killed.ended;
  const started = system.startReceiver();
  receivers[index] = started;
  senders.urls[index] = await started.url('webhook');
  kills.receiver += 1;
}

const sumOf = ({ kills }: System) => kills.receiver + kills.connection + kills.database;

async function killAny(system: System): Promise<void> {
  const { random, database, kills } = system;
  // The first three kills are one of each kind.
  const choice = [0.7, 0.9, 0][sumOf(system)] ?? random();
  if (choice < 0.6) return killReceiver(system);
  if (choice < 0.85) {
    const isKilled = await database.killConnection(random).catch(() => false);
    if (isKilled) kills.connection += 1;
    return;
  }
  await database.kill();
  kills.database += 1;
}

/** @param activities rejects when a sender fails */
async function killUntilTheEnd(system: System, activities: Promise<unknown>): Promise<void> {
  const failed = activities.then(() => new Promise<never>(() => {}));
  const deadline = Date.now() + SECONDS * 1000;
  while (Date.now() < deadline || sumOf(system) < MIN_KILLS) {
    await Promise.race([sleep(500 + system.random() * 2_000), failed]);
    await killAny(system);
  }
}

/** Of the target that works. @returns how many events have not ended when the time for that is over */
async function countOpenAtTheEnd(sql: Sql): Promise<number> {
  const begun = Date.now();
  for (;;) {
    const [row] = await sql`select count(*) from webhook.work
      where queue = ${COMMON_QUEUE}`.catch(() => [{ count: -1 }]);
    const open = Number(row?.count);
    const isLate = Date.now() - begun >= LEASE_MS + MAX_BACKOFF_MS + 10_000;
    if (open === 0 || isLate) return open;
    await sleep(200);
  }
}

type Stored = Entry & { readonly delivery_id: string; readonly is_waiting: boolean };
type Calls = ReadonlyMap<string, readonly AttemptSeries[]>;

function checkStored(
  { senders, interrupted }: System,
  stored: readonly Stored[],
  calls: Calls,
): void {
  const byDelivery = new Map(stored.map((row) => [row.delivery_id, row]));
  assert.equal(byDelivery.size, stored.length, 'a delivery id is stored twice');
  for (const [delivery, id] of senders.acknowledged) {
    assert.equal(byDelivery.get(delivery)?.id, id, `${delivery} was acknowledged as ${id}`);
  }
  for (const entry of stored) {
    const mayRepeat = senders.repeated.has(entry.delivery_id);
    const expectation = { maxAttempts: MAX_ATTEMPTS, mayRepeat, interrupted };
    checkEntry(entry, calls.get(entry.id) ?? [], expectation);
  }
}

/** Nothing is lost, and nothing goes to another target. */
function checkDown({ sendersToDown }: System, stored: readonly Stored[], calls: Calls): void {
  assert.ok(sendersToDown.acknowledged.size > 0);
  for (const [delivery, id] of sendersToDown.acknowledged) {
    const entry = stored.find((row) => row.id === id);
    assert.equal(entry?.delivery_id, delivery, `${delivery} was acknowledged as ${id}`);
    const isKept = entry?.status === 'dead' || entry?.is_waiting;
    assert.ok(isKept, `${delivery} is neither waiting nor dead: ${JSON.stringify(entry)}`);
    assert.equal(calls.get(id), undefined, `${delivery} went to the handler`);
  }
}

test(`acknowledged events are stored and end, whatever is killed (FAULTS_SEED=${SEED})`, async (t) => {
  const system = await startSystem(t);
  const { database, ledger, senders, sendersToDown, kills } = system;
  // A failed test must not wait for its senders.
  t.after(() => {
    senders.isSending = false;
    sendersToDown.isSending = false;
  });
  const activities = Promise.all([
    ...Array.from({ length: SENDERS }, (_, sender) => runSender(senders, sender)),
    ...[1_000, 1_001].map((sender) => runSender(sendersToDown, sender)),
    suspend(system),
  ]);
  await killUntilTheEnd(system, activities);
  const lastKill = Date.now();
  senders.isSending = false;
  sendersToDown.isSending = false;
  await activities;

  const sql = connect(database.directUrl());
  t.after(() => sql.end());
  const open = await countOpenAtTheEnd(sql);
  const took = Date.now() - lastKill;
  const all = await sql<Stored[]>`
    select w.event_id is not null as is_waiting, e.id, e.delivery_id, e.event, o.status,
      o.attempts, o.ended_at,
      array(
        select attempt from webhook.failures f where event_id = e.id and f.run = o.run) as failures
    from webhook.events e left join webhook.outcomes o on o.event_id = e.id
    left join webhook.work w on w.event_id = e.id`;
  const isForDown = ({ delivery_id }: Stored) => delivery_id.startsWith('msg_100');
  const stored = all.filter((row) => !isForDown(row));
  const calls = readLedger(readFileSync(ledger, 'utf8'));
  const attempts = [...calls.values()].flat().flatMap((series) => [...series.values()]);
  const cut = attempts.filter(({ ends }) => ends === null).length;
  const counts = `${senders.acknowledged.size} events acknowledged, ${stored.length} stored`;
  t.diagnostic(`seed ${SEED}: ${counts}`);
  t.diagnostic(`kills: ${JSON.stringify(kills)}; calls: ${attempts.length}, cut short: ${cut}`);
  t.diagnostic(`all events ended ${took} ms after the last kill`);

  const isEachKilled = Math.min(...Object.values(kills)) > 0;
  const hasInterrupted = sumOf(system) >= MIN_KILLS && isEachKilled && cut > 0;
  assert.ok(hasInterrupted, 'the kills interrupted no work');
  assert.equal(open, 0, `${open} events have not ended`);
  checkStored(system, stored, calls);
  checkDown(system, all, calls);
});
