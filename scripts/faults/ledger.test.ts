/**
 * `make test-faults`: senders send signed events while the receivers, single connections of PostgreSQL and PostgreSQL itself
 * are killed with kill -9 at random moments, and one receiver stands still for longer than its lease; then the books must
 * balance. FAULTS_SEED repeats what is sent and the row of kills with their pauses; what each kill meets is up to the machine.
 */
import assert from 'node:assert/strict';
import { createHmac, randomInt } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { startRelay } from '../../test/support/relay.ts';
import { buildProgram, type Running, runProgram, startProgram } from '../../test/support/process.ts';
import { until } from '../../test/support/until.ts';
import { connect, type PostgresServer, startPostgres } from '../postgres.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { checkEntry, type Entry, readCalls } from './books.ts';

const SECONDS = Number(process.env.FAULTS_SECONDS ?? 60);
const MIN_KILLS = 20;
const SENDERS = 12;
const SEED = Number(process.env.FAULTS_SEED ?? randomInt(2 ** 31));
const TRIES = 5;
/** In src/webhook/rules.ts; and the sum of all delays there can be at this base and these tries. */
const LEASE_MS = 30_000;
const BACKOFF_MS = 100;
const ALL_DELAYS_MS = BACKOFF_MS * 2 ** TRIES;
const SIGNING_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
/** As handler.mjs understands them. */
const NAMES = ['succeeds', 'succeeds', 'succeeds', 'succeeds', 'succeeds', 'succeeds', 'fails at first', 'takes its time', 'always fails'];
/** For the receiver that stands still until others have begun the second attempt. */
const SLOW_NAMES = Array.from({ length: 8 }, (_, number) => (number % 2 ? 'succeeds slowly' : 'fails slowly'));
const STILL_MS = LEASE_MS + 3_500;

/** mulberry32: one number leads to the same row of others on every machine. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** PostgreSQL behind an address that stays, though each start has another port. */
async function startDatabase(t: TestContext, directory: string) {
  let server: PostgresServer = await startPostgres({ directory, durable: true });
  t.after(() => server.stop());
  const relay = await startRelay(t, server.url);
  return {
    url: relay.url,
    now: () => server.url,
    async kill() {
      process.kill(server.processId, 'SIGKILL');
      await server.ended;
      await relay.cut();
      server = await startPostgres({ directory, durable: true });
      await relay.mend(server.url);
    },
    /** One connection's own process, which PostgreSQL answers by ending all others, too. */
    async killConnection(random: () => number) {
      const sql = connect(server.url);
      try {
        const rows = await sql`select pid from pg_stat_activity where application_name like 'gatehouse-webhook%' order by pid`;
        const victim = rows[Math.floor(random() * rows.length)];
        if (victim) process.kill(Number(victim.pid), 'SIGKILL');
        return victim !== undefined;
      } finally {
        await sql.end({ timeout: 1 }).catch(() => {});
      }
    },
  };
}

test(`nothing that was acknowledged is lost, and everything ends, whatever dies (FAULTS_SEED=${SEED})`, async (t) => {
  const random = createRandom(SEED);
  const directory = makeTemporary(tmpdir(), 'gatehouse-faults');
  t.after(() => removeTemporary(directory));
  const ledger = join(directory, 'ledger');
  const secretFile = join(directory, 'signing-secret');
  writeFileSync(ledger, '');
  writeFileSync(secretFile, SIGNING_SECRET);
  const database = await startDatabase(t, join(directory, 'database'));
  const program = buildProgram();
  const base = { DATABASE_URL: database.url, WEBHOOK_SECRET: 'a secret for the ledger, 32 characters' };
  const environment = {
    ...base,
    LEDGER: ledger,
    WEBHOOK_HOST: '127.0.0.1',
    WEBHOOK_PORT: '0',
    WEBHOOK_HANDLER: join(import.meta.dirname, 'handler.mjs'),
    WEBHOOK_MAX_ATTEMPTS: String(TRIES),
    WEBHOOK_BACKOFF_BASE_MS: String(BACKOFF_MS),
    // Longer than one stands still, so that what it was doing ends of itself afterwards.
    WEBHOOK_TIMEOUT: '120',
    LOG_LEVEL: 'warn',
  };
  assert.equal((await runProgram(t, program, ['migrate', 'webhook'], base)).code, 0);
  const created = await runProgram(t, program, ['token', 'create', '--source', 'standard', '--signing-secret-file', secretFile], base);
  const token = created.stdout.trim();
  assert.equal(created.code, 0, created.stderr);

  const start = (): Running => startProgram(t, program, ['serve', 'webhook'], { ...environment, LOG_LEVEL: 'info' });
  const sleeper = start();
  const receivers = [start(), start()];
  await Promise.all([sleeper, ...receivers].map((one) => one.ready('webhook')));
  const urls = await Promise.all(receivers.map((one) => one.url('webhook')));

  const acknowledged = new Map<string, string>();
  const repeated = new Set<string>();
  let goesOn = true;
  // A sender that goes on would keep a run that has failed from ending.
  t.after(() => void (goesOn = false));
  async function send(sender: number): Promise<void> {
    const random = createRandom(SEED + 1 + sender);
    const again: Array<readonly [id: string, body: string]> = [];
    for (let number = 0; goesOn; number += 1) {
      const [id, type] = [`msg_${sender}_${number}`, NAMES[Math.floor(random() * NAMES.length)]];
      const body = JSON.stringify({ type, number });
      await deliver(id, body, () => urls[(sender + number) % urls.length] ?? '');
      // A repetition of what is dead would rightly drive it again.
      if (type !== 'always fails') again.push([id, body]);
      const another = random() < 0.05 ? again[Math.floor(random() * again.length)] : undefined;
      if (another) await deliver(...another, () => urls[number % urls.length] ?? '');
      await sleep(30);
    }
  }
  /** As senders do: the same one again until it is acknowledged. */
  async function deliver(id: string, body: string, url: () => string): Promise<void> {
    for (; goesOn; await sleep(50)) {
      const answer = await post(url(), id, body);
      if (answer === null) repeated.add(id);
      if (answer === null) continue;
      assert.equal(answer, acknowledged.get(id) ?? answer, `${id} was acknowledged under two ids`);
      acknowledged.set(id, answer);
      return;
    }
  }
  async function post(url: string, id: string, body: string): Promise<string | null> {
    const time = String(Math.floor(Date.now() / 1000));
    const signature = createHmac('sha256', Buffer.from(SIGNING_SECRET.slice(6), 'base64')).update(`${id}.${time}.${body}`).digest('base64');
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': `v1,${signature}` };
    try {
      const response = await fetch(`${url}/webhook`, { method: 'POST', headers, body, signal: AbortSignal.timeout(20_000) });
      const reply: { id?: string } = JSON.parse(await response.text());
      assert.ok(response.status === 200 || response.status === 503, `${response.status} ${JSON.stringify(reply)}`);
      return response.status === 200 ? (reply.id ?? null) : null;
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      return null;
    }
  }

  /** When each process lost what it was doing. */
  const lost = new Map<number, number>();
  /** A receiver that stands still while it is at work, and goes on when others have taken that over. */
  async function standStill(): Promise<void> {
    const url = await sleeper.url('webhook');
    for (const [number, type] of SLOW_NAMES.entries()) await deliver(`msg_slow_${number}`, JSON.stringify({ type, number }), () => url);
    await until(() => readFileSync(ledger, 'utf8').includes(` ${sleeper.pid} begins `), 'the receiver that is to stand still is at work');
    lost.set(sleeper.pid, Date.now());
    sleeper.signal('SIGSTOP');
    await sleep(STILL_MS);
    sleeper.signal('SIGCONT');
  }

  const kills = { receiver: 0, connection: 0, database: 0 };
  async function killReceiver(): Promise<void> {
    const index = Math.floor(random() * receivers.length);
    lost.set(receivers[index]?.pid ?? 0, Date.now());
    receivers[index]?.signal('SIGKILL');
    await receivers[index]?.ended;
    receivers[index] = start();
    urls[index] = await receivers[index].url('webhook');
    kills.receiver += 1;
  }
  const senders = Promise.all(Array.from({ length: SENDERS }, (_, sender) => send(sender)));
  const still = standStill();
  const failed = Promise.all([senders, still]).then(() => new Promise<never>(() => {}));
  const deadline = Date.now() + SECONDS * 1000;
  const total = () => kills.receiver + kills.connection + kills.database;
  while (Date.now() < deadline || total() < MIN_KILLS) {
    await Promise.race([sleep(500 + random() * 2_000), failed]);
    // Each kind at least once.
    const choice = [0.7, 0.9, 0][total()] ?? random();
    if (choice < 0.6) await killReceiver();
    else if (choice < 0.85) kills.connection += (await database.killConnection(random).catch(() => false)) ? 1 : 0;
    else await database.kill().then(() => (kills.database += 1));
  }
  const lastKill = Date.now();
  goesOn = false;
  await Promise.all([senders, still]);

  const sql = connect(database.now());
  t.after(() => sql.end());
  const open = async () => Number((await sql`select count(*) from webhook.work`.catch(() => [{ count: -1 }]))[0]?.count);
  let left = await open();
  while (left !== 0 && Date.now() - lastKill < LEASE_MS + ALL_DELAYS_MS + 10_000) {
    await sleep(200);
    left = await open();
  }
  const took = Date.now() - lastKill;
  const stored = await sql<Array<Entry & { delivery_id: string }>>`
    select e.id, e.delivery_id, e.event, o.status, o.attempts, o.ended_at, array(select attempt from webhook.failures where event_id = e.id) as failures
    from webhook.events e left join webhook.outcomes o on o.event_id = e.id`;
  const calls = readCalls(readFileSync(ledger, 'utf8'));
  const attempts = [...calls.values()].flat().flatMap((drive) => [...drive.values()]);
  const cut = attempts.filter(({ ends }) => ends === null).length;
  t.diagnostic(`seed ${SEED}: ${acknowledged.size} events acknowledged, ${stored.length} stored, kills: ${JSON.stringify(kills)}, ${attempts.length} calls of the handler, ${cut} of them cut short, all ended ${took} ms after the last kill`);

  assert.ok(total() >= MIN_KILLS && Math.min(...Object.values(kills)) > 0 && cut > 0, 'the kills met something');
  assert.equal(left, 0, `${left} events are still open`);
  const byDelivery = new Map(stored.map((row) => [row.delivery_id, row]));
  assert.equal(byDelivery.size, stored.length, 'no id is stored twice');
  for (const [delivery, id] of acknowledged) assert.equal(byDelivery.get(delivery)?.id, id, `${delivery} was acknowledged as ${id}`);
  for (const entry of stored) checkEntry(entry, calls.get(entry.id) ?? [], repeated.has(entry.delivery_id), TRIES, lost);
});
