/**
 * `make test-faults`: senders deliver signed events while receivers, database connections and PostgreSQL are killed
 * with SIGKILL at random moments, and one receiver is suspended for longer than its lease. Afterwards every
 * acknowledged event must be stored and have ended, in agreement with the handler's ledger. FAULTS_SEED repeats the
 * events and the sequence of kills with their pauses, but not what each kill interrupts.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { startProxy } from '../../test/support/proxy.ts';
import {
  buildProgram,
  type Running,
  runProgram,
  startProgram,
} from '../../test/support/process.ts';
import { until } from '../../test/support/until.ts';
import { connect, type PostgresServer, startPostgres } from '../postgres.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { checkEntry, type Entry, readLedger } from './ledger.ts';
import { createRandom, SEED } from './random.ts';

const SECONDS = Number(process.env.FAULTS_SECONDS ?? 60);
const MIN_KILLS = 20;
const SENDERS = 12;
const MAX_ATTEMPTS = 5;
/** As in src/webhook/worker.ts. */
const LEASE_MS = 30_000;
const BACKOFF_MS = 100;
/** The sum of all delays between MAX_ATTEMPTS attempts. */
const MAX_BACKOFF_MS = BACKOFF_MS * 2 ** MAX_ATTEMPTS;
const SIGNING_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
/** The event names that handler.mjs knows, most of them successful. */
const NAMES = [
  ...Array.from({ length: 6 }, () => 'succeeds'),
  'fails at first',
  'takes its time',
  'always fails',
];
/** For the suspended receiver: the second attempt begins elsewhere before the first one ends. */
const SLOW_NAMES = Array.from({ length: 8 }, (_, number) =>
  number % 2 ? 'succeeds slowly' : 'fails slowly',
);
const SUSPENDED_MS = LEASE_MS + 3_500;

/** PostgreSQL behind a fixed address: after each restart it listens on another port. */
async function startDatabase(t: TestContext, directory: string) {
  let server: PostgresServer = await startPostgres({ directory, durable: true });
  t.after(() => server.stop());
  const proxy = await startProxy(t, server.url);
  return {
    url: proxy.url,
    directUrl: () => server.url,
    async kill() {
      process.kill(server.processId, 'SIGKILL');
      await server.ended;
      await proxy.cut();
      server = await startPostgres({ directory, durable: true });
      await proxy.restore(server.url);
    },
    /** Kills the server process of one connection. PostgreSQL then ends all others, too. */
    async killConnection(random: () => number) {
      const sql = connect(server.url);
      try {
        const rows = await sql`
          select pid from pg_stat_activity where application_name like 'gatehouse-webhook%' order by pid`;
        const victim = rows[Math.floor(random() * rows.length)];
        if (victim) process.kill(Number(victim.pid), 'SIGKILL');
        return victim !== undefined;
      } finally {
        await sql.end({ timeout: 1 }).catch(() => {});
      }
    },
  };
}

test(`acknowledged events are stored and end, whatever is killed (FAULTS_SEED=${SEED})`, async (t) => {
  const random = createRandom(SEED);
  const directory = makeTemporary(tmpdir(), 'gatehouse-faults');
  t.after(() => removeTemporary(directory));
  const ledger = join(directory, 'ledger');
  const secretFile = join(directory, 'signing-secret');
  writeFileSync(ledger, '');
  writeFileSync(secretFile, SIGNING_SECRET);
  const database = await startDatabase(t, join(directory, 'database'));
  const program = buildProgram();
  const base = {
    DATABASE_URL: database.url,
    WEBHOOK_SECRET: 'a secret for the ledger of 36 characters',
  };
  const environment = {
    ...base,
    LEDGER: ledger,
    WEBHOOK_HOST: '127.0.0.1',
    WEBHOOK_PORT: '0',
    WEBHOOK_HANDLER: join(import.meta.dirname, 'handler.mjs'),
    WEBHOOK_MAX_ATTEMPTS: String(MAX_ATTEMPTS),
    WEBHOOK_BACKOFF_BASE_MS: String(BACKOFF_MS),
    // Longer than the suspension, so that a call of the suspended receiver ends by itself.
    WEBHOOK_TIMEOUT: '120',
    LOG_LEVEL: 'info',
  };
  assert.equal((await runProgram(t, program, ['migrate', 'webhook'], base)).code, 0);
  const command = ['token', 'create', '--source', 'standard', '--signing-secret-file', secretFile];
  const created = await runProgram(t, program, command, base);
  const token = created.stdout.trim();
  assert.equal(created.code, 0, created.stderr);

  const start = (): Running => startProgram(t, program, ['serve', 'webhook'], environment);
  const suspended = start();
  const receivers = [start(), start()];
  await Promise.all([suspended, ...receivers].map((one) => one.ready('webhook')));
  const urls = await Promise.all(receivers.map((one) => one.url('webhook')));

  const acknowledged = new Map<string, string>();
  const repeated = new Set<string>();
  let isSending = true;
  // A failed test must not wait for its senders.
  t.after(() => void (isSending = false));
  async function send(sender: number): Promise<void> {
    const random = createRandom(SEED + 1 + sender);
    const sent: Array<readonly [id: string, body: string]> = [];
    for (let number = 0; isSending; number += 1) {
      const [id, type] = [`msg_${sender}_${number}`, NAMES[Math.floor(random() * NAMES.length)]];
      const body = JSON.stringify({ type, number });
      await deliver(id, body, () => urls[(sender + number) % urls.length] ?? '');
      // Repeating a dead event would redeliver it, as specified.
      if (type !== 'always fails') sent.push([id, body]);
      const duplicate = random() < 0.05 ? sent[Math.floor(random() * sent.length)] : undefined;
      if (duplicate) await deliver(...duplicate, () => urls[number % urls.length] ?? '');
      await sleep(30);
    }
  }
  /** Repeats an event until it is acknowledged, as senders do. */
  async function deliver(id: string, body: string, url: () => string): Promise<void> {
    for (; isSending; await sleep(50)) {
      const eventId = await post(url(), id, body);
      if (eventId === null) {
        repeated.add(id);
        continue;
      }
      assert.equal(
        eventId,
        acknowledged.get(id) ?? eventId,
        `${id} was acknowledged under two ids`,
      );
      acknowledged.set(id, eventId);
      return;
    }
  }
  /** @returns the id of the event, or null if it was not acknowledged */
  async function post(url: string, id: string, body: string): Promise<string | null> {
    const time = String(Math.floor(Date.now() / 1000));
    const hmac = createHmac('sha256', Buffer.from(SIGNING_SECRET.slice('whsec_'.length), 'base64'));
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': time,
      'webhook-signature': `v1,${hmac.update(`${id}.${time}.${body}`).digest('base64')}`,
    };
    try {
      const options = { method: 'POST', headers, body, signal: AbortSignal.timeout(20_000) };
      const response = await fetch(`${url}/webhook`, options);
      const reply: { id?: string } = JSON.parse(await response.text());
      assert.ok(
        response.status === 200 || response.status === 503,
        `${response.status} ${JSON.stringify(reply)}`,
      );
      return response.status === 200 ? (reply.id ?? null) : null;
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      return null;
    }
  }

  /** When each process lost its work, by process id. */
  const interrupted = new Map<number, number>();
  /** Suspends a receiver during its work, and resumes it when others have taken the work over. */
  async function suspend(): Promise<void> {
    const url = await suspended.url('webhook');
    for (const [number, type] of SLOW_NAMES.entries()) {
      await deliver(`msg_slow_${number}`, JSON.stringify({ type, number }), () => url);
    }
    const hasBegun = () => readFileSync(ledger, 'utf8').includes(` ${suspended.pid} begins `);
    await until(hasBegun, 'work of the receiver to suspend');
    interrupted.set(suspended.pid, Date.now());
    suspended.signal('SIGSTOP');
    await sleep(SUSPENDED_MS);
    suspended.signal('SIGCONT');
  }

  const kills = { receiver: 0, connection: 0, database: 0 };
  async function killReceiver(): Promise<void> {
    const index = Math.floor(random() * receivers.length);
    interrupted.set(receivers[index]?.pid ?? 0, Date.now());
    receivers[index]?.signal('SIGKILL');
    await receivers[index]?.ended;
    receivers[index] = start();
    urls[index] = await receivers[index].url('webhook');
    kills.receiver += 1;
  }
  const activities = Promise.all([
    ...Array.from({ length: SENDERS }, (_, sender) => send(sender)),
    suspend(),
  ]);
  const failed = activities.then(() => new Promise<never>(() => {}));
  const deadline = Date.now() + SECONDS * 1000;
  const total = () => kills.receiver + kills.connection + kills.database;
  while (Date.now() < deadline || total() < MIN_KILLS) {
    await Promise.race([sleep(500 + random() * 2_000), failed]);
    // The first three kills are one of each kind.
    const choice = [0.7, 0.9, 0][total()] ?? random();
    if (choice < 0.6) await killReceiver();
    else if (choice < 0.85)
      kills.connection += (await database.killConnection(random).catch(() => false)) ? 1 : 0;
    else await database.kill().then(() => (kills.database += 1));
  }
  const lastKill = Date.now();
  isSending = false;
  await activities;

  const sql = connect(database.directUrl());
  t.after(() => sql.end());
  const countOpen = async () => {
    const [row] = await sql`select count(*) from webhook.work`.catch(() => [{ count: -1 }]);
    return Number(row?.count);
  };
  let open = await countOpen();
  while (open !== 0 && Date.now() - lastKill < LEASE_MS + MAX_BACKOFF_MS + 10_000) {
    await sleep(200);
    open = await countOpen();
  }
  const took = Date.now() - lastKill;
  const stored = await sql<Array<Entry & { delivery_id: string }>>`
    select e.id, e.delivery_id, e.event, o.status, o.attempts, o.ended_at,
      array(select attempt from webhook.failures where event_id = e.id) as failures
    from webhook.events e left join webhook.outcomes o on o.event_id = e.id`;
  const calls = readLedger(readFileSync(ledger, 'utf8'));
  const attempts = [...calls.values()].flat().flatMap((series) => [...series.values()]);
  const cut = attempts.filter(({ ends }) => ends === null).length;
  t.diagnostic(`seed ${SEED}: ${acknowledged.size} events acknowledged, ${stored.length} stored`);
  t.diagnostic(
    `kills: ${JSON.stringify(kills)}; handler calls: ${attempts.length}, cut short: ${cut}`,
  );
  t.diagnostic(`all events ended ${took} ms after the last kill`);

  const hasInterrupted = total() >= MIN_KILLS && Math.min(...Object.values(kills)) > 0 && cut > 0;
  assert.ok(hasInterrupted, 'the kills interrupted no work');
  assert.equal(open, 0, `${open} events have not ended`);
  const byDelivery = new Map(stored.map((row) => [row.delivery_id, row]));
  assert.equal(byDelivery.size, stored.length, 'a delivery id is stored twice');
  for (const [delivery, id] of acknowledged) {
    assert.equal(byDelivery.get(delivery)?.id, id, `${delivery} was acknowledged as ${id}`);
  }
  for (const entry of stored) {
    const mayRepeat = repeated.has(entry.delivery_id);
    checkEntry(entry, calls.get(entry.id) ?? [], {
      maxAttempts: MAX_ATTEMPTS,
      mayRepeat,
      interrupted,
    });
  }
});
