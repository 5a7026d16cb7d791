import assert from 'node:assert/strict';
import { after } from 'node:test';
import { type Metrics, createMetrics } from '../../../src/platform/runtime/metrics.ts';
import {
  endWork,
  LEASE_SECONDS,
  type Lease,
  releaseWork,
  renewLeases,
} from '../../../src/webhook/store/work.ts';
import { connect } from '../../../scripts/postgres.ts';
import { holdTimers } from '../../support/clock.ts';
import { untilLocked, untilSql } from '../../support/connections.ts';
import { startProxy } from '../../support/proxy.ts';
import { latch, someTurns, test, until } from '../../support/until.ts';
import { FAILED, openWorkQueue } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, claim, endLeases, fresh, stateOf } = queue;
/** Of a shutdown. No other timer has this length. */
const GRACE_MS = 4_321;
const RETURNED = { status: 'waiting', attempts: 0, errors: [] };
const DONE = { status: 'done', attempts: 1, errors: [] };
const idsOf = (events: ReadonlyArray<{ id: string }>) => events.map(({ id }) => id).sort();

test('replicas that claim at once get different events, and together all', async () => {
  const ids = await fresh(40);
  const taken = (await Promise.all(Array.from({ length: 8 }, () => claim(10)))).flat();
  assert.equal(new Set(idsOf(taken)).size, taken.length, 'none twice');
  while (taken.length < 40) taken.push(...(await claim(10)));
  assert.deepEqual(idsOf(taken), ids.sort());
  assert.equal((await claim()).length, 0);
});

test('a claim waits neither for locked events and pages, nor for a list', async () => {
  const [locked = '', free = ''] = await fresh(2);
  await queue.put({ order_key: 'locked page' });
  const head = await queue.put({ order_key: 'free page' });
  let list: Promise<unknown> | undefined;
  await sql.begin(async (held) => {
    await held`select from webhook.work where event_id = ${locked} for update`;
    await held`select from webhook.pages where order_key = 'locked page' for update`;
    const slow = database.list((sql) => sql`select from webhook.work for update`);
    list = slow.then(() => {});
    await untilLocked(held, 1);
    assert.deepEqual(idsOf(await claim()), [free, head].sort());
  });
  await list;
});

test('an old lease neither ends, renews nor releases an event that another replica has', async () => {
  const [id = ''] = await fresh(1);
  const claimed = async () => (await claim())[0] ?? assert.fail();
  const first = await claimed();
  assert.equal((await claim()).length, 0, 'nobody else while the lease holds');
  await endLeases();
  const second = await claimed();
  assert.deepEqual([first.attempt, second.attempt, second.id], [1, 2, id]);
  const before = await sql`select lease, due_at, attempts from webhook.work`;
  await endWork(database, [first], 'done');
  await endWork(database, [{ ...first, result: { error: 'from an old lease' } }], 'dead');
  await renewLeases(database, [first], 3_600);
  await releaseWork(database, first, { error: 'from an old lease' }, 3_600);
  assert.deepEqual(await sql`select lease, due_at, attempts from webhook.work`, before);
  assert.deepEqual(await stateOf(id), { status: 'waiting', attempts: 2, errors: [] });
  for (const error of ['failed', 'released twice'])
    await releaseWork(database, second, { error }, 0);
  const third = await claimed();
  await endWork(database, [second], 'done');
  assert.deepEqual(await stateOf(id), { status: 'waiting', attempts: 3, errors: ['failed'] });
  await endWork(database, [first, third], 'done');
  assert.deepEqual(await stateOf(id), { status: 'done', attempts: 3, errors: ['failed'] });
});

test('a renewal extends exactly the leases that are still held', async () => {
  await fresh(3);
  const held: Lease[] = await claim();
  await endLeases();
  const lost = await claim(1);
  await endLeases();
  await renewLeases(database, held, LEASE_SECONDS);
  const [row] = await sql<[{ least: number }]>`
    select min(extract(epoch from due_at - now()))::float8 as least
    from webhook.work where due_at > now()`;
  assert.ok(row.least > 0 && row.least <= LEASE_SECONDS && LEASE_SECONDS <= 60);
  assert.deepEqual(idsOf(await claim()), idsOf(lost));
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
  const worker = queue.startWorker(async () => assert.fail('an attempt'), { maxAttempts: 3 });
  for (const [one, attempts] of [
    [id, 3],
    [older, 11],
  ] as const) {
    await queue.until(one, 'dead');
    const { errors, ...state } = await stateOf(one);
    assert.deepEqual(state, { status: 'dead', attempts });
    assert.match(errors.join(), /^no attempt left: the last one ended with its process/);
  }
  await worker.stop();
});

test('a failing event is retried to the end of its schedule, and is then dead with every error', async () => {
  const [bad = '', thrown = '', late = ''] = await fresh(3);
  const lines: string[] = [];
  const worker = queue.startWorker(
    async ({ id, attempt }) => {
      if (id === thrown) throw new Error('a secret message');
      if (id === late) return attempt < 4 ? FAILED : { error: null, wereKilled: true };
      return { error: `attempt ${attempt}\n\u001b[31m${'x'.repeat(5_000)}`, retryAfter: null };
    },
    { maxAttempts: 4 },
    { log: (line) => lines.push(line) },
  );
  await queue.nothingWaits();
  const errors = [1, 2, 3, 4].map((attempt) => `attempt ${attempt} [31m`.padEnd(1_000, 'x'));
  assert.deepEqual(await stateOf(bad), { status: 'dead', attempts: 4, errors });
  const internal = Array(4).fill('internal error: Error');
  assert.deepEqual(await stateOf(thrown), { status: 'dead', attempts: 4, errors: internal });
  const failed = Array(3).fill(FAILED.error);
  assert.deepEqual(await stateOf(late), { status: 'done', attempts: 4, errors: failed });
  assert.ok(!lines.join('').includes('a secret message'));
  const killed = lines.filter((line) => line.includes('had left running were killed'));
  assert.ok(killed.length === 1 && killed[0]?.includes(late));
  await worker.stop();
});

test('WEBHOOK_CONCURRENCY is reached and never exceeded, and an attempt that hangs delays no other', async () => {
  const [stuck = '', ...others] = await fresh(60);
  let now = 0;
  let most = 0;
  const full = latch();
  const hanging = latch();
  const worker = queue.startWorker(
    async ({ id }) => {
      now += 1;
      most = Math.max(most, now);
      if (now === 4) full.open();
      await full.opened;
      if (id === stuck) await hanging.opened;
      await someTurns();
      now -= 1;
      return Math.random() < 0.3 ? FAILED : null;
    },
    { concurrency: 4, maxAttempts: 40 },
  );
  for (let ring = 0; ring < 20; ring += 1) worker.notify();
  for (const id of others) await queue.until(id, 'done');
  assert.equal((await stateOf(stuck)).status, 'waiting');
  hanging.open();
  await queue.until(stuck, 'done');
  assert.equal(most, 4);
  await worker.stop();
});

test('an attempt beyond WEBHOOK_TIMEOUT is aborted and has failed, even if it ignores the signal', async () => {
  const ids = await fresh(2);
  const worker = queue.startWorker(
    ({ id }, stop) =>
      new Promise((resolve) => {
        if (id !== ids[0]) return;
        const cutOff = { error: 'cut off', unfinished: 'it was busy', retryAfter: 3_600 };
        stop.addEventListener('abort', () => resolve(cutOff));
      }),
    { timeoutMs: 50, maxAttempts: 1 },
  );
  for (const [index, id] of ids.entries()) {
    await queue.until(id, 'dead');
    const errors = [`no result within 0.05 s${index === 0 ? ': it was busy' : ''}`];
    assert.deepEqual(await stateOf(id), { status: 'dead', attempts: 1, errors });
  }
  await worker.stop();
});

test('the lease of an attempt that is under way is renewed, after a failure, too', async (t) => {
  const [id = ''] = await fresh(1);
  const renewals: Array<() => void> = [];
  const { setInterval } = globalThis;
  const interval = t.mock.method(globalThis, 'setInterval', (renew: () => void, ms: number) => {
    // Not the timers of a new connection, which are over before the renewal.
    if (ms !== (LEASE_SECONDS * 1_000) / 3) return setInterval(renew, ms);
    renewals.push(renew);
    return setInterval(() => {}, ms);
  });
  const begun = latch();
  const hanging = latch();
  let lines = '';
  const worker = queue.startWorker(
    async () => {
      begun.open();
      await hanging.opened;
      return null;
    },
    {},
    {
      log: (line) => {
        lines += line;
      },
    },
  );
  interval.mock.restore();
  await begun.opened;
  // Later than any renewal, so that the worker cannot claim the event again meanwhile.
  await sql`update webhook.work set due_at = now() + interval '1 day'`;
  await sql`alter table webhook.work rename to absent`;
  for (const renew of renewals) renew();
  await until(() => lines.includes('leases could not be renewed'));
  await sql`alter table webhook.absent rename to work`;
  for (const renew of renewals) renew();
  const lease = sql`now() + make_interval(secs => ${LEASE_SECONDS})`;
  await untilSql(
    async () => (await sql`select from webhook.work where due_at <= ${lease}`).length === 1,
    'the lease is renewed',
  );
  hanging.open();
  await queue.until(id, 'done');
  // Neither claimed a second time nor ended by its time limit.
  assert.deepEqual(await stateOf(id), DONE);
  await worker.stop();
});

test('a claim that ends after the time for attempts has run out begins none', async (t) => {
  const [id = ''] = await fresh(1);
  const blocker = connect(queue.databaseUrl);
  await blocker`begin`;
  await blocker`lock table webhook.work in access exclusive mode`;
  let calls = 0;
  const worker = queue.startWorker(async () => {
    calls += 1;
    return null;
  });
  await untilLocked(sql, 1);
  const endGrace = holdTimers(t, GRACE_MS);
  const stopping = worker.stop(GRACE_MS);
  endGrace();
  await blocker.end();
  await stopping;
  assert.equal(calls, 0);
  assert.deepEqual(await stateOf(id), RETURNED);
  assert.deepEqual(idsOf(await claim()), [id], 'it is due at once');
});

test('a shutdown claims nothing, finishes attempts, and returns the others without counting them', async (t) => {
  const [finishing = '', stuck = '', ...untouched] = await fresh(5);
  await sql`update webhook.work set due_at = now() + interval '1 hour'
    where event_id in ${sql(untouched)}`;
  const counted: string[] = [];
  const counter: Metrics['counter'] =
    () =>
    (labels = []) =>
      counted.push(...labels);
  const begun = new Set<string>();
  const finish = latch();
  const worker = queue.startWorker(
    async ({ id }, stop) => {
      begun.add(id);
      if (id === finishing) await finish.opened;
      else await new Promise((resolve) => stop.addEventListener('abort', resolve));
      return id === finishing ? null : FAILED;
    },
    {},
    { metrics: { ...createMetrics(), counter } },
  );
  await until(() => begun.size === 2, 'both are under way');
  const endGrace = holdTimers(t, GRACE_MS);
  const stopped = worker.stop(GRACE_MS);
  await sql`update webhook.work set due_at = now() where event_id in ${sql(untouched)}`;
  worker.notify();
  finish.open();
  await queue.until(finishing, 'done');
  assert.equal(endGrace(), 1);
  await stopped;
  assert.deepEqual(await stateOf(finishing), DONE);
  assert.deepEqual(await stateOf(stuck), RETURNED);
  assert.deepEqual([...begun].sort(), [finishing, stuck].sort());
  assert.deepEqual(counted, ['done'], 'an interrupted attempt has neither succeeded nor failed');
  // Due for another replica at once, without waiting for a lease.
  assert.deepEqual(idsOf(await claim()), [stuck, ...untouched].sort());
});

test('after a database outage everything is delivered', async (t) => {
  await fresh(20);
  const proxy = await startProxy(t, queue.databaseUrl);
  const begun = new Set<string>();
  const cut = latch();
  const lines: string[] = [];
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
  for (const said of ['the outcome of an attempt could not be stored', 'could not be claimed'])
    await until(() => lines.some((line) => line.includes(said)), said);
  await proxy.restore();
  const ended = async () => (await sql`select from webhook.outcomes where status = 'done'`).length;
  await untilSql(async () => (await ended()) === 10, 'those that were not under way are done');
  await endLeases();
  worker.notify();
  await queue.nothingWaits();
  assert.equal(await ended(), 20);
  await worker.stop();
});
