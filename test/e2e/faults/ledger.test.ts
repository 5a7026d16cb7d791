/**
 * `make e2e NAME=faults`: senders deliver events while receivers, database connections and
 * PostgreSQL are killed with SIGKILL at random moments, and one receiver is suspended for longer
 * than its lease. Afterwards every acknowledged event must be stored and have ended, in agreement
 * with the handler's ledger. FAULTS_SEED repeats the events and the pauses between the kills, but
 * not what each kill interrupts.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../../../scripts/postgres.ts';
import { untilSql } from '../../support/connections.ts';
import { variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { makeDirectory } from '../../support/directories.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { until } from '../../support/until.ts';
import { choose, createRandom, SEED } from './random.ts';
import { startDatabase } from './system.ts';

const SECONDS = Number(process.env.FAULTS_SECONDS ?? 60);
const MIN_KILLS = 20;
/** In turn. */
const KILLS = ['receiver', 'connection', 'receiver', 'database', 'receiver'] as const;
const SENDERS = 12;
const PAUSES_MS = [100, 200, 400, 800];
const MAX_ATTEMPTS = PAUSES_MS.length + 1;
/** As in src/webhook/worker.ts. */
const LEASE_MS = 30_000;
/** A lease, all pauses with what is added to them, and some time for the attempts. */
const END_MS = LEASE_MS + 15_000;
const SUSPENDED_MS = LEASE_MS + 3_500;

/** The event names that handler.mjs knows, most of them successful. */
const NAMES = [
  ...Array.from({ length: 6 }, () => 'succeeds'),
  ...['fails at first', 'takes its time', 'always fails'],
];
/** For the suspended receiver: the second attempt begins elsewhere before the first one ends. */
const SLOW_NAMES = ['fails slowly', 'succeeds slowly'];

type System = Awaited<ReturnType<typeof startSystem>>;

async function startSystem(t: TestContext) {
  const ledger = join(makeDirectory(t, 'faults'), 'ledger');
  writeFileSync(ledger, '');
  const database = await startDatabase(t);
  const environment = {
    ...variables(database.proxy.url),
    LEDGER: ledger,
    WEBHOOK_HANDLER: join(import.meta.dirname, 'handler.mjs'),
    WEBHOOK_RETRY_SCHEDULE: PAUSES_MS.map((pause) => `${pause}ms`).join(),
    // Longer than the suspension, so that a call of the suspended receiver ends by itself.
    WEBHOOK_TIMEOUT: '120',
    LOG_LEVEL: 'info',
  };
  const startReceiver = () => startProgram(t, buildProgram(), ['serve', 'webhook'], environment);
  const suspended = startReceiver();
  await suspended.ready('webhook');
  const receivers = [startReceiver(), startReceiver()];
  await Promise.all(receivers.map((one) => one.ready('webhook')));
  return {
    database,
    /** The file in which the handler notes its calls. */
    ledger,
    startReceiver,
    /** Those that are killed and started again, and their present URLs. */
    receivers,
    urls: await Promise.all(receivers.map((one) => one.url('webhook'))),
    /** The one that is suspended. */
    suspended,
    random: createRandom(SEED),
    /** When each process lost its work, by process id. */
    interrupted: new Map<number, number>(),
    /** Event ids by delivery id. */
    acknowledged: new Map<string, string>(),
    /** Delivery ids of events that were sent again. */
    repeated: new Set<string>(),
    isSending: true,
  };
}

/** Sends events of all kinds until the end. */
async function runSender(system: System, sender: number): Promise<void> {
  const { urls } = system;
  const random = createRandom(SEED + 1 + sender);
  for (let number = 0; system.isSending; number += 1) {
    const url = () => urls[(sender + number) % urls.length] ?? '';
    await deliver(system, `msg_${sender}_${number}`, choose(random, NAMES) ?? '', url);
    await sleep(30);
  }
}

/** Repeats an event until it is acknowledged, as senders do. */
async function deliver(system: System, id: string, event: string, url: () => string) {
  const headers = {
    authorization: `Bearer ${WEBHOOK_TOKEN}`,
    'content-type': 'application/json',
    'webhook-id': id,
  };
  const body = JSON.stringify({ event, data: { page_id: id } });
  for (; system.isSending; await sleep(50)) {
    const options = { method: 'POST', headers, body, signal: AbortSignal.timeout(20_000) };
    const response = await fetch(`${url()}/webhook`, options).catch(() => null);
    const text = await response?.text().catch(() => '');
    if (response?.status === 200 && text) {
      const reply: { id: string } = JSON.parse(text);
      system.acknowledged.set(id, reply.id);
      return;
    }
    assert.ok(!response || [200, 503].includes(response.status), text);
    system.repeated.add(id);
  }
}

/** Suspends a receiver during its work, and resumes it when others have taken the work over. */
async function suspend(system: System): Promise<void> {
  const { suspended, ledger, interrupted } = system;
  const url = await suspended.url('webhook');
  for (let number = 0; number < 8; number += 1)
    await deliver(system, `msg_slow_${number}`, SLOW_NAMES[number % 2] ?? '', () => url);
  const hasBegun = () => readFileSync(ledger, 'utf8').includes(` ${suspended.pid} begins `);
  await until(hasBegun, 'work of the receiver to suspend');
  interrupted.set(suspended.pid, Date.now());
  suspended.signal('SIGSTOP');
  await sleep(SUSPENDED_MS);
  suspended.signal('SIGCONT');
}

async function killReceiver({ random, receivers, urls, interrupted, startReceiver }: System) {
  const index = Math.floor(random() * receivers.length);
  const killed = receivers[index] ?? assert.fail();
  interrupted.set(killed.pid, Date.now());
  killed.signal('SIGKILL');
  await killed.ended;
  const started = startReceiver();
  receivers[index] = started;
  urls[index] = await started.url('webhook');
}

/** @param activities rejects when a sender fails */
async function killUntilTheEnd(system: System, activities: Promise<unknown>): Promise<void> {
  const { database, random } = system;
  const failed = activities.then(() => new Promise<never>(() => {}));
  const deadline = Date.now() + SECONDS * 1000;
  for (let kills = 0; kills < MIN_KILLS || Date.now() < deadline; kills += 1) {
    await Promise.race([sleep(500 + random() * 2_000), failed]);
    const victim = KILLS[kills % KILLS.length];
    if (victim === 'receiver') await killReceiver(system);
    else if (victim === 'connection') await database.killConnection('gatehouse-webhook');
    else {
      await database.kill();
      await database.start();
    }
  }
}

interface Attempt {
  readonly process: number;
  readonly begins: number;
  /** Null if it was cut short. */
  ends: number | null;
}

/** The calls of one series of attempts, by attempt number. A redelivery starts another series. */
type AttemptSeries = ReadonlyMap<number, Attempt>;

/**
 * @param text lines as handler.mjs writes them
 * @returns every series of each event, by event id
 */
function readLedger(text: string): ReadonlyMap<string, readonly AttemptSeries[]> {
  const calls = new Map<string, Array<Map<number, Attempt>>>();
  for (const line of text.split('\n').filter(Boolean)) {
    const [id = '', attemptText, processText, what, timeText] = line.split(' ');
    const attempt = Number(attemptText);
    const process = Number(processText);
    const time = Number(timeText);
    const series = calls.get(id) ?? [];
    calls.set(id, series);
    if (what === 'begins') {
      const call: Attempt = { process, begins: time, ends: null };
      const current = series.at(-1);
      // Attempts may begin out of order: the suspended process begins some after others have
      // retried them.
      if (current && !current.has(attempt)) current.set(attempt, call);
      else series.push(new Map([[attempt, call]]));
    } else {
      const call = series
        .map((one) => one.get(attempt))
        .findLast((one) => one?.process === process);
      if (call) call.ends = time;
    }
  }
  return calls;
}

/** The final state of an event in the database. */
interface Stored {
  readonly id: string;
  readonly delivery_id: string;
  readonly event: string;
  readonly status: string;
  readonly attempts: number;
  readonly ended_at: Date;
}

/** Compares an event with what the handler recorded of it. */
function checkEvent(
  stored: Stored,
  series: readonly AttemptSeries[],
  { repeated, interrupted }: System,
): void {
  const { id, delivery_id, event, attempts } = stored;
  const details = JSON.stringify({ ...stored, series: series.map((one) => [...one]) });
  const assertThat: AssertThat = (isTrue, what) =>
    assert.ok(isTrue, `${event} ${id}: ${what}; ${details}`);
  // If it was dead by then, an event that was sent again has started another series.
  const mayRepeat = repeated.has(delivery_id) && event === 'always fails';
  assertThat(series.length === 1 || mayRepeat, `${series.length} series of attempts`);
  const calls = series.at(-1) ?? new Map();
  assertThat(calls.size >= 1 && calls.size <= MAX_ATTEMPTS, `${calls.size} calls`);
  const isCounted = Math.max(...calls.keys()) <= attempts && attempts <= MAX_ATTEMPTS;
  assertThat(isCounted, 'wrong attempt counter');
  checkOrder(calls, interrupted, assertThat);
  checkOutcome(stored, calls, assertThat);
}

/** Fails with what is needed to understand the problem. */
type AssertThat = (isTrue: boolean, problem: string) => void;

/** No attempt begins before the previous one has ended, or has lost its work. */
function checkOrder(
  calls: AttemptSeries,
  interrupted: System['interrupted'],
  assertThat: AssertThat,
): void {
  let before: Attempt | undefined;
  for (const [number, attempt] of [...calls].sort(([one], [other]) => one - other)) {
    if (before) {
      // A killed process, or one suspended for longer than its lease, has lost its work.
      const released = Math.min(
        interrupted.get(before.process) ?? Infinity,
        before.ends ?? Infinity,
      );
      assertThat(attempt.begins >= released, `attempt ${number} began during the previous one`);
    }
    before = attempt;
  }
}

function checkOutcome(
  { event, status, attempts, ended_at }: Stored,
  calls: AttemptSeries,
  assertThat: AssertThat,
): void {
  if (status === 'done') {
    assertThat(event !== 'always fails', 'done although every attempt fails');
    const ends = calls.get(Math.max(...calls.keys()))?.ends ?? Infinity;
    assertThat(ended_at.getTime() >= ends, 'done before its last attempt ended');
    return;
  }
  assertThat(status === 'dead' && attempts === MAX_ATTEMPTS, 'not dead after its last attempt');
  const isCut = [...calls.values()].some(({ ends }) => ends === null) || calls.size < attempts;
  assertThat(event === 'always fails' || isCut, 'dead although its attempts should have succeeded');
}

test(`acknowledged events are stored and end, whatever is killed (FAULTS_SEED=${SEED})`, async (t) => {
  const system = await startSystem(t);
  const { database, ledger, acknowledged } = system;
  // A failed test must not wait for its senders.
  t.after(() => {
    system.isSending = false;
  });
  const senders = Array.from({ length: SENDERS }, (_, sender) => runSender(system, sender));
  const activities = Promise.all([...senders, suspend(system)]);
  await killUntilTheEnd(system, activities);
  system.isSending = false;
  await activities;

  // PostgreSQL may still recover from the last kill.
  const isUp = () =>
    database.query('select').then(
      () => true,
      () => false,
    );
  await untilSql(isUp, 'the database answers');
  const sql = connect(database.url());
  t.after(() => sql.end());
  const deadline = Date.now() + END_MS;
  while ((await sql`select from webhook.work limit 1`).length > 0) {
    assert.ok(Date.now() < deadline, `events have not ended within ${END_MS} ms`);
    await sleep(200);
  }
  const stored = await sql<Stored[]>`
    select id, delivery_id, event, status, attempts, ended_at
    from webhook.events join webhook.outcomes on event_id = id`;
  const byDelivery = new Map(stored.map((row) => [row.delivery_id, row]));
  assert.equal(byDelivery.size, stored.length, 'a delivery id is stored twice');
  for (const [delivery, id] of acknowledged)
    assert.equal(byDelivery.get(delivery)?.id, id, `${delivery} was acknowledged as ${id}`);
  const calls = readLedger(readFileSync(ledger, 'utf8'));
  for (const event of stored) checkEvent(event, calls.get(event.id) ?? [], system);
  const attempts = [...calls.values()].flat().flatMap((series) => [...series.values()]);
  const cut = attempts.filter(({ ends }) => ends === null).length;
  t.diagnostic(
    `${acknowledged.size} events acknowledged; ${attempts.length} calls, ${cut} cut short`,
  );
  assert.ok(cut > 0, 'the kills interrupted no work');
});
