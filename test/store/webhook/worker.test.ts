import assert from 'node:assert/strict';
import { after } from 'node:test';
import { type Metrics, createMetrics } from '../../../src/platform/runtime/metrics.ts';
import {
  claimWork,
  endWork,
  LEASE_SECONDS,
  type Lease,
  releaseWork,
  renewLeases,
} from '../../../src/webhook/store/work.ts';
import { connect } from '../../../scripts/postgres.ts';
import { holdTimers } from '../../support/clock.ts';
import { untilLocked, untilSql } from '../../support/connections.ts';
import { createWaits, holdStatements } from '../../support/hold.ts';
import { startProxy } from '../../support/proxy.ts';
import { latch, someTurns, test, until } from '../../support/until.ts';
import { FAILED, openWorkQueue } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database } = queue;
/** Of a shutdown. No other timer has this length. */
const GRACE_MS = 4_321;
const claim = (most = 100) => claimWork(database, most);
/** Lets all leases expire. */
const endLeases = () => sql`update webhook.work set due_at = now() - interval '1 second'`;
const statusOf = async (id: string) => (await queue.stateOf(id)).status;
const ended = (id: string, status = 'done') =>
  untilSql(async () => (await statusOf(id)) === status, `${id} is ${status}`);
const nothingWaits = () =>
  untilSql(async () => (await sql`select from webhook.work`).length === 0, 'nothing waits');
async function fresh(count: number): Promise<string[]> {
  await sql`truncate webhook.work, webhook.outcomes, webhook.failures, webhook.events`;
  return Promise.all(Array.from({ length: count }, () => queue.put()));
}

test('two replicas that claim at once get different events, and together all', async () => {
  for (let round = 0; round < 5; round += 1) {
    const ids = await fresh(40);
    const replicas = await Promise.all(Array.from({ length: 8 }, () => claim(10)));
    const taken = replicas.flat().map(({ id }) => id);
    assert.equal(new Set(taken).size, taken.length, 'none twice');
    while (taken.length < 40) taken.push(...(await claim(10)).map(({ id }) => id));
    assert.deepEqual(taken.sort(), ids.sort());
    assert.equal((await claim()).length, 0);
  }
});

test('a claim takes the events and pages that nobody has locked, without waiting', async () => {
  const [locked = '', free = ''] = await fresh(2);
  await queue.put({ order_key: 'locked page' });
  const head = await queue.put({ order_key: 'free page' });
  await sql.begin(async (held) => {
    await held`select from webhook.work where event_id = ${locked} for update`;
    await held`select from webhook.pages where order_key = 'locked page' for update`;
    assert.deepEqual((await claim()).map(({ id }) => id).sort(), [free, head].sort());
  });
});

test('a claim that ends after the time for attempts has run out begins none', async (t) => {
  const [id = ''] = await fresh(1);
  let calls = 0;
  const blocker = connect(queue.databaseUrl);
  await blocker`begin`;
  await blocker`lock table webhook.work in access exclusive mode`;
  const worker = queue.startWorker(() => {
    calls += 1;
    return new Promise(() => {});
  });
  await untilLocked(sql, 1);
  const endGrace = holdTimers(t, GRACE_MS);
  const stopping = worker.stop(GRACE_MS);
  endGrace();
  await blocker.end();
  await stopping;
  assert.equal(calls, 0);
  assert.deepEqual(await queue.stateOf(id), { status: 'waiting', attempts: 0, errors: [] });
  assert.equal((await claim()).length, 1, 'it is due at once');
});

test('an attempt that a shutdown interrupts is counted neither as done nor as failed', async () => {
  const [id = ''] = await fresh(1);
  const counted: string[] = [];
  const metrics: Metrics = {
    ...createMetrics(),
    counter:
      () =>
      (labels = []) =>
        counted.push(...labels),
  };
  const isUnderWay = latch();
  const worker = queue.startWorker(
    (_event, signal) => {
      isUnderWay.open();
      return new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve(FAILED));
      });
    },
    {},
    { metrics },
  );
  await isUnderWay.opened;
  await worker.stop(0);
  assert.deepEqual(counted, []);
  assert.deepEqual(await queue.stateOf(id), { status: 'waiting', attempts: 0, errors: [] });
});

test('a slow list delays no claim', async (t) => {
  const ids = await fresh(1);
  await createWaits(sql);
  const slow = await holdStatements(t, queue.databaseUrl);
  const list = database.list((sql) => sql`select wait_for(1)`);
  await slow.met();
  assert.deepEqual(
    (await claim()).map(({ id }) => id),
    ids,
  );
  await slow.release();
  await list;
});

test('after an expired lease another replica gets the event, and the old holder cannot change it', async () => {
  const [id = ''] = await fresh(1);
  const [first] = await claim();
  assert.ok(first);
  assert.equal((await claim()).length, 0, 'nobody else while the lease holds');
  await endLeases();
  const [second] = await claim();
  assert.deepEqual([first.attempt, second?.attempt, second?.id], [1, 2, id]);
  assert.ok(second);
  const before = await sql`select lease, due_at, attempts from webhook.work`;
  await endWork(database, [first], 'done');
  await endWork(database, [{ ...first, result: { error: 'from the grave' } }], 'dead');
  await renewLeases(database, [first], 3_600);
  await releaseWork(database, first, { error: 'from the grave' }, 3_600);
  assert.deepEqual([...(await sql`select lease, due_at, attempts from webhook.work`)], [...before]);
  assert.deepEqual(await queue.stateOf(id), { status: 'waiting', attempts: 2, errors: [] });
  await endWork(database, [first, second], 'done');
  assert.deepEqual(await queue.stateOf(id), { status: 'done', attempts: 2, errors: [] });
});

test('an old lease is not valid after its event was released and claimed again', async () => {
  const [id = ''] = await fresh(1);
  const [first] = await claim();
  assert.ok(first);
  await releaseWork(database, first, { error: 'failed' }, 0);
  await releaseWork(database, first, { error: 'failed twice' }, 0);
  assert.deepEqual((await queue.stateOf(id)).errors, ['failed'], 'one return only');
  const [second] = await claim();
  assert.equal(second?.attempt, 2);
  await endWork(database, [first], 'done');
  assert.equal(await statusOf(id), 'waiting');
});

test('a renewal extends exactly the leases that are still held', async () => {
  await fresh(3);
  const held: Lease[] = await claim();
  await endLeases();
  const [lost] = await claim(1);
  await endLeases();
  await renewLeases(database, held, LEASE_SECONDS);
  const free = (await claim()).map(({ id }) => id);
  assert.deepEqual(
    free,
    [lost?.id],
    'the two that were renewed are not due, the one that another had taken is',
  );
  const [row] = await sql<
    [{ least: number }]
  >`select min(extract(epoch from due_at - now()))::float8 as least from webhook.work`;
  assert.ok(LEASE_SECONDS <= 60 && row.least > 0 && row.least <= LEASE_SECONDS);
});

test('an attempt counts from its claim; if the last one died with its process, the event is dead', async () => {
  const [id = '', older = ''] = await fresh(2);
  // Allowed by an earlier schedule, which was longer.
  await sql`update webhook.work set attempts = 8 where event_id = ${older}`;
  for (let crash = 1; crash <= 3; crash += 1) {
    const attempts = (await claim()).map((event) => event.attempt);
    assert.deepEqual(attempts.sort(), [crash, 8 + crash].sort());
    await endLeases();
  }
  let calls = 0;
  const worker = queue.startWorker(
    async () => {
      calls += 1;
      return null;
    },
    { maxAttempts: 3 },
  );
  await ended(id, 'dead');
  assert.deepEqual(await queue.stateOf(id), {
    status: 'dead',
    attempts: 3,
    errors: [
      'no attempt left: the last one ended with its process, or the retry schedule was shortened',
    ],
  });
  await ended(older, 'dead');
  assert.equal((await queue.stateOf(older)).attempts, 11);
  assert.equal(calls, 0);
  await worker.stop();
});

test('a failing event is retried to the end of its schedule, and is then dead with every error', async () => {
  const [bad = '', thrown = '', late = ''] = await fresh(3);
  const lines: string[] = [];
  const worker = queue.startWorker(
    async ({ id, attempt }) => {
      if (id === thrown) throw new Error('a secret message');
      if (id === late) return attempt < 4 ? FAILED : null;
      return { error: `attempt ${attempt}\n\u001b[31m${'x'.repeat(5_000)}`, retryAfter: null };
    },
    { maxAttempts: 4 },
    { log: (line) => lines.push(line) },
  );
  await nothingWaits();
  const state = await queue.stateOf(bad);
  assert.deepEqual([state.status, state.attempts], ['dead', 4]);
  assert.deepEqual(
    state.errors.map((error) => [error.slice(0, 14), error.length]),
    [1, 2, 3, 4].map((attempt) => [`attempt ${attempt} [31m`, 1_000]),
  );
  const internal = 'internal error: Error';
  assert.deepEqual(await queue.stateOf(thrown), {
    status: 'dead',
    attempts: 4,
    errors: [internal, internal, internal, internal],
  });
  assert.deepEqual(await queue.stateOf(late), {
    status: 'done',
    attempts: 4,
    errors: [FAILED.error, FAILED.error, FAILED.error],
  });
  assert.ok(!lines.join('').includes('a secret message'));
  await worker.stop();
});

test('WEBHOOK_CONCURRENCY is never exceeded, and is reached', async () => {
  const ids = await fresh(60);
  let now = 0;
  let most = 0;
  const full = latch();
  const worker = queue.startWorker(
    async () => {
      now += 1;
      most = Math.max(most, now);
      if (now === 4) full.open();
      await full.opened;
      await someTurns();
      now -= 1;
      return Math.random() < 0.3 ? FAILED : null;
    },
    { concurrency: 4, maxAttempts: 20 },
  );
  for (let ring = 0; ring < 20; ring += 1) worker.notify();
  await nothingWaits();
  assert.equal(most, 4);
  for (const id of ids) assert.equal(await statusOf(id), 'done');
  await worker.stop();
});

test('an attempt beyond WEBHOOK_TIMEOUT is aborted and has failed, even if it ignores the signal', async () => {
  const [obedient = '', deaf = ''] = await fresh(2);
  const worker = queue.startWorker(
    ({ id }, stop) =>
      new Promise((resolve) =>
        id === obedient
          ? stop.addEventListener('abort', () => resolve({ error: 'cut off', retryAfter: 3_600 }))
          : undefined,
      ),
    { timeoutMs: 50, maxAttempts: 1 },
  );
  for (const id of [obedient, deaf]) await ended(id, 'dead');
  for (const id of [obedient, deaf])
    assert.deepEqual(await queue.stateOf(id), {
      status: 'dead',
      attempts: 1,
      errors: ['no result within 0.05 s'],
    });
  await worker.stop();
});

test('the lease of an attempt that is under way is renewed', async (t) => {
  const [id = ''] = await fresh(1);
  const renewals: Array<() => void> = [];
  const { setInterval } = globalThis;
  const interval = t.mock.method(globalThis, 'setInterval', (renew: () => void, ms: number) => {
    // Not the timers of a new connection, which are over before the renewal.
    if (ms !== (LEASE_SECONDS * 1_000) / 3) return setInterval(renew, ms);
    renewals.push(renew);
    return setInterval(() => {}, ms);
  });
  const hanging = latch();
  let isBegun = false;
  const worker = queue.startWorker(async () => {
    isBegun = true;
    await hanging.opened;
    return null;
  });
  interval.mock.restore();
  await until(() => isBegun, 'it is under way');
  // Later than any renewal, so that the worker cannot claim the event again meanwhile.
  await sql`update webhook.work set due_at = now() + interval '1 day'`;
  for (const renew of renewals) renew();
  const lease = sql`now() + make_interval(secs => ${LEASE_SECONDS})`;
  await untilSql(
    async () => (await sql`select from webhook.work where due_at <= ${lease}`).length === 1,
    'the lease is renewed',
  );
  hanging.open();
  await ended(id);
  // Neither claimed a second time nor ended by its time limit.
  assert.deepEqual(await queue.stateOf(id), { status: 'done', attempts: 1, errors: [] });
  await worker.stop();
});

test('an attempt that hangs delays no other', async () => {
  const [stuck = '', ...others] = await fresh(40);
  const hanging = latch();
  const worker = queue.startWorker(
    async ({ id }) => {
      if (id === stuck) await hanging.opened;
      return null;
    },
    { concurrency: 2 },
  );
  for (const id of others) await ended(id);
  assert.equal(await statusOf(stuck), 'waiting');
  hanging.open();
  await ended(stuck);
  await worker.stop();
});

test('a shutdown claims nothing, finishes attempts, and returns the others without counting them', async (t) => {
  const [finishing = '', stuck = '', ...untouched] = await fresh(5);
  await sql`update webhook.work set due_at = now() + interval '1 hour' where event_id in ${sql(untouched)}`;
  const begun = new Set<string>();
  const finish = latch();
  const worker = queue.startWorker(async ({ id }, stop) => {
    begun.add(id);
    if (id === finishing) await finish.opened;
    else await new Promise((resolve) => stop.addEventListener('abort', resolve));
    return id === finishing ? null : FAILED;
  });
  await until(() => begun.size === 2, 'both are under way');
  const endGrace = holdTimers(t, GRACE_MS);
  const stopped = worker.stop(GRACE_MS);
  await sql`update webhook.work set due_at = now() where event_id in ${sql(untouched)}`;
  worker.notify();
  finish.open();
  await ended(finishing);
  assert.equal(endGrace(), 1);
  await stopped;
  assert.deepEqual(await queue.stateOf(finishing), { status: 'done', attempts: 1, errors: [] });
  assert.deepEqual(
    await queue.stateOf(stuck),
    { status: 'waiting', attempts: 0, errors: [] },
    'what a shutdown cuts short does not count',
  );
  assert.deepEqual([...begun].sort(), [finishing, stuck].sort());
  // Due for another replica at once, without waiting for a lease.
  assert.deepEqual((await claim()).map(({ id }) => id).sort(), [stuck, ...untouched].sort());
});

test('after a database outage everything is delivered', async (t) => {
  const ids = await fresh(20);
  const proxy = await startProxy(t, queue.databaseUrl);
  const begun = new Set<string>();
  const cut = latch();
  const lines = new Array<string>();
  const worker = queue.startWorker(
    async ({ id }) => {
      begun.add(id);
      await cut.opened;
      return null;
    },
    {},
    { url: proxy.url, log: (line) => lines.push(line) },
  );
  await until(() => begun.size === 10, 'ten are under way');
  await proxy.cut();
  cut.open();
  await until(
    () =>
      lines.some((line) => line.includes('the outcome of an attempt could not be stored')) &&
      lines.some((line) => line.includes('could not be claimed')),
    'the worker has noticed',
  );
  await proxy.restore();
  await untilSql(
    async () => (await sql`select from webhook.outcomes`).length === 10,
    'the ten that were not under way are done',
  );
  await endLeases();
  worker.notify();
  await nothingWaits();
  for (const id of ids) assert.equal(await statusOf(id), 'done');
  await worker.stop();
});
