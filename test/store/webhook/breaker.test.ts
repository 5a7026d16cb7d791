/**
 * A failing target is probed with one event, from one replica, and paused delivery begins no
 * attempt on any.
 */
import assert from 'node:assert/strict';
import { after, type TestContext } from 'node:test';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { createBreaker } from '../../../src/webhook/breaker.ts';
import {
  addFailures,
  clearFailures,
  findFailing,
  findPause,
  pauseDelivery,
  resumeDelivery,
  takeProbe,
} from '../../../src/webhook/store/delivery.ts';
import { claimProbes } from '../../../src/webhook/store/probes.ts';
import { COMMON } from '../../../src/webhook/store/queue.ts';
import { claimWork } from '../../../src/webhook/store/work.ts';
import { stopClock } from '../../support/clock.ts';
import { untilSql } from '../../support/connections.ts';
import { test, until } from '../../support/until.ts';
import { FAILED, openWorkQueue, type TestToken } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database } = queue;
const claim = (limit = 100) => claimWork(database, limit);
const probe = async (limit = 1, except: string | null = null) => {
  const events = await claimProbes(database, limit, except);
  return events.map(({ id }) => id);
};
const nothingWaits = () =>
  untilSql(async () => (await sql`select from webhook.work`).length === 0, 'nothing waits');

/**
 * Begins without events, failures and a pause.
 * @returns the ids of so many new events, oldest first
 */
async function fresh(count: number): Promise<string[]> {
  await sql`truncate webhook.work, webhook.pages, webhook.page_tails, webhook.outcomes,
    webhook.failures,
    webhook.events, webhook.failing_targets, webhook.pause`;
  const ids: string[] = [];
  for (let n = 0; n < count; n += 1) ids.push(await queue.put());
  return ids;
}

/** Moves the target's failures into the past, and makes its probe due. */
const fail = (seconds: number, target = 'test', failures = 10) => sql`
  insert into webhook.failing_targets (target, failures, failing_since)
  values (${target}, ${failures}, now() - make_interval(secs => ${seconds}))
  on conflict (target) do update set failures = excluded.failures,
    failing_since = excluded.failing_since,
    probe_at = now()`;

test('a target counts as failing from ten failures on, over at least a minute, until a success', async () => {
  await fresh(0);
  const isOpen = async () => (await findFailing(database, 'test'))?.is_open;
  assert.equal(await isOpen(), undefined);
  await addFailures(database, 'test', 50, null);
  assert.equal(await isOpen(), false, 'for less than a minute');
  await fail(61, 'test', 8);
  await addFailures(database, 'test', 1, null);
  assert.equal(await isOpen(), false, 'nine failures');
  await addFailures(database, 'test', 1, null);
  assert.equal(await isOpen(), true);
  assert.equal(await findFailing(database, 'another'), undefined, 'the other target has none');
  await clearFailures(database, 'test');
  assert.equal(await isOpen(), undefined);
});

test('one of all replicas takes a probe, none without a due event, at growing intervals', async () => {
  await fresh(0);
  await fail(61);
  assert.equal(await takeProbe(database, 'test', COMMON.id), false, 'no event is due');
  await queue.put();
  for (const [seconds, pause] of [
    [61, 10],
    [600, 60],
    [86_400, 300],
  ] as const) {
    await fail(seconds);
    const taken = await Promise.all(
      Array.from({ length: 8 }, () => takeProbe(database, 'test', COMMON.id)),
    );
    assert.equal(taken.filter(Boolean).length, 1);
    // Counted from a moment since then.
    const [{ least, most }] = await sql<[{ least: number; most: number }]>`
      select extract(epoch from probe_at - now())::float8 as least,
        extract(epoch from probe_at - failing_since)::float8 - ${seconds}::int4 as most
      from webhook.failing_targets`;
    assert.ok(most >= pause && least <= pause + 1, `${least} to ${most} of ${pause}`);
  }
  await fail(61);
  await pauseDelivery(database, 'test');
  assert.equal(await takeProbe(database, 'test', COMMON.id), false, 'not while delivery is paused');
});

test('a probe takes what has not failed yet, of each sender in turn, also of a page', async () => {
  const [failed = ''] = await fresh(40);
  await sql`update webhook.work set attempts = 1, due_at = now() where event_id <> ${failed}`;
  assert.deepEqual(await probe(), [failed], 'first what was never attempted');
  const other = await queue.addToken('other');
  const rare = await queue.put({ token: other });
  const chosen = new Set<string>();
  for (let round = 0; round < 40 && !chosen.has(rare); round += 1) {
    for (const id of await probe()) chosen.add(id);
    await sql`update webhook.work set due_at = now(), lease = null`;
  }
  assert.ok(chosen.has(rare), 'half of the probes are of the other sender');
  assert.deepEqual(await probe(10, queue.token.id), [rare], 'only of other senders');
  assert.deepEqual(await probe(10, other.id).then((ids) => ids.includes(rare)), false);
  await fresh(0);
  const paged = await queue.put({ order_key: 'page' });
  const next = await queue.put({ order_key: 'page' });
  assert.deepEqual(await probe(2), [paged], 'the head of a page alone');
  assert.equal((await claim()).length, 0, 'not due during its lease');
  assert.notEqual(next, paged);
  await fresh(1);
  await pauseDelivery(database, 'test');
  assert.deepEqual(await probe(), [], 'not while delivery is paused');
});

/** Stores events of `token` at once, older ones first. @returns their ids */
async function putMany(token: TestToken, count: number, orderKey = 'none'): Promise<string[]> {
  const rows = await sql<Array<{ id: string }>>`
    with event as (
      insert into webhook.events (id, token_id, event, body, received_at)
      select gen_random_uuid(), ${token.id}, 'many', '', clock_timestamp()
      from generate_series(1, ${count}::int4) n
      returning id, token_id, received_at
    ), numbered as (
      select *, case when ${orderKey} <> 'none' then ${orderKey} || id end as order_key
      from event
    ), page as (
      insert into webhook.pages (order_key, token_id)
      select order_key, token_id from numbered where order_key is not null
    ), work as (
      insert into webhook.work (event_id, token_id, received_at, due_at, order_key, seq)
      select id, token_id, received_at, received_at, order_key, 1 from numbered
    )
    select id from event`;
  return rows.map(({ id }) => id);
}

for (const [what, orderKey] of [
  ['events', 'none'],
  ['heads of pages', 'page '],
] as const)
  test(`${what} of one sender, however many, hide no event of another`, async () => {
    const first = queue.token;
    const second = await queue.addToken('second');
    const third = await queue.addToken('third');
    await fresh(0);
    await putMany(first, 150, orderKey);
    await putMany(second, 150, orderKey);
    const good = await putMany(third, 1, orderKey);
    await putMany(first, 150, orderKey);
    await putMany(second, 150, orderKey);
    const probed = await probe(3);
    assert.ok(
      good.every((id) => probed.includes(id)),
      'one event of each sender',
    );

    await fresh(0);
    await putMany(first, 150, orderKey);
    const others = await putMany(third, 2, orderKey);
    await putMany(first, 150, orderKey);
    assert.deepEqual((await probe(10, first.id)).sort(), others.sort(), 'all of the other sender');
  });

test('failures count for one sender until those of another come', async () => {
  await fresh(0);
  const sender = async () => (await findFailing(database, 'test'))?.token_id;
  const other = await queue.addToken('other');
  await addFailures(database, 'test', 1, queue.token.id);
  await addFailures(database, 'test', 1, queue.token.id);
  assert.equal(await sender(), queue.token.id);
  await addFailures(database, 'test', 1, other.id);
  assert.equal(await sender(), null);
  await addFailures(database, 'test', 1, other.id);
  assert.equal(await sender(), null);
});

test('the failing events of one sender do not stop the events of another', async () => {
  await fresh(0);
  const other = await queue.addToken('other');
  await sql`
      insert into webhook.failing_targets (target, failures, token_id, failing_since, probe_at)
      values ('test', 50, ${queue.token.id}, now() - interval '1 day', now() + interval '1 day')`;
  const bad: string[] = [];
  for (let n = 0; n < 30; n += 1) bad.push(await queue.put());
  const good = [await queue.put({ token: other }), await queue.put({ token: other })];
  const attempts: string[] = [];
  const worker = queue.startWorker(
    async ({ id }) => {
      attempts.push(id);
      return bad.includes(id) ? FAILED : null;
    },
    { pausesMs: [3_600_000] },
  );
  await untilSql(
    async () => (await sql`select from webhook.outcomes`).length === good.length,
    'the good events are delivered',
  );
  assert.deepEqual(attempts.filter((id) => good.includes(id)).sort(), [...good].sort());
  await worker.stop();
});

test('a target that rejects an event is not counted as failing', async () => {
  await fresh(20);
  const answer = { ...FAILED, answer_status: 422 };
  const worker = queue.startWorker(async () => answer, { maxAttempts: 1 });
  await nothingWaits();
  worker.notify();
  const unavailable = { ...FAILED, answer_status: 503 };
  await worker.stop();
  assert.equal(await findFailing(database, 'test'), undefined);
  await queue.put();
  const next = queue.startWorker(async () => unavailable, { maxAttempts: 1 });
  await nothingWaits();
  next.notify();
  await untilSql(
    async () => (await findFailing(database, 'test'))?.failures === 1,
    'only a failure of the target counts',
  );
  await next.stop();
});

type Workers = ReadonlyArray<ReturnType<typeof queue.startWorker>>;

/** Moves the clock: a worker looks at the state of its target at most once a second. */
function lookingOf(t: TestContext) {
  const pass = stopClock(t);
  const untilSeen = (workers: Workers, condition: () => Promise<boolean>, what: string) =>
    untilSql(async () => {
      pass(1);
      for (const { notify } of workers) notify();
      return condition();
    }, what);
  /** Lets each look twice. By the second look, the first one has had its effect. */
  async function letLook(...workers: Workers): Promise<void> {
    const seen = workers.map(({ looks }) => looks());
    const haveLooked = async () =>
      workers.every(({ looks }, index) => looks() > (seen[index] ?? 0) + 1);
    await untilSeen(workers, haveLooked, 'each has looked twice');
  }
  return { untilSeen, letLook };
}

test('a failing target gets probes only; the first success lets all events through', async (t) => {
  const { untilSeen, letLook } = lookingOf(t);
  const ids = await fresh(30);
  await fail(3_600);
  let isWorking = false;
  let calls = 0;
  const lines: string[] = [];
  const start = () =>
    queue.startWorker(
      async () => {
        calls += 1;
        return isWorking ? null : FAILED;
      },
      { pausesMs: [3_600_000] },
      { log: (line) => lines.push(line) },
    );
  const workers = [start(), start(), start()];
  await until(() => calls === 1, 'the probe');
  await untilSeen(
    workers,
    async () => (await findFailing(database, 'test'))?.failures === 11,
    'its failure is stored',
  );
  await letLook(...workers);
  assert.equal(calls, 1, 'no other attempt');
  const attempts = await sql`select from webhook.work where attempts > 0`;
  assert.equal(attempts.length, 1, 'the others have used no attempt up');
  assert.ok(lines.some((line) => line.includes('it is only probed')));
  isWorking = true;
  await sql`update webhook.failing_targets set probe_at = now()`;
  await untilSeen(
    workers,
    async () => (await sql`select from webhook.outcomes`).length === ids.length - 1,
    'all others are done',
  );
  await untilSeen(
    workers,
    async () => (await findFailing(database, 'test')) === undefined,
    'nothing is left of the failures',
  );
  await until(() => lines.some((line) => line.includes('works again')), 'the log says so');
  await Promise.all(workers.map((worker) => worker.stop()));
});

test('failures of several replicas add up, and successes among them keep the target open', async () => {
  await fresh(40);
  const workers = [1, 2].map(() => queue.startWorker(async () => FAILED, { maxAttempts: 1 }));
  await nothingWaits();
  for (const worker of workers) worker.notify();
  await untilSql(
    async () => (await findFailing(database, 'test'))?.failures === 40,
    'all failures are counted',
  );
  await Promise.all(workers.map((worker) => worker.stop()));
  await fresh(1);
  await fail(30, 'test', 40);
  const worker = queue.startWorker(async () => null);
  await nothingWaits();
  worker.notify();
  await untilSql(
    async () => (await findFailing(database, 'test')) === undefined,
    'a success clears them',
  );
  await worker.stop();
});

test('what happened during a database outage is counted after it', async (t) => {
  const pass = stopClock(t);
  const lines: string[] = [];
  const log = createLog('debug', (line) => lines.push(line));
  const breaker = createBreaker(database, 'test', COMMON.id, log);
  const other = await queue.addToken('another sender');
  /** The state is not read more than once a second. */
  const admitUntil = (condition: () => Promise<boolean> | boolean, what: string) =>
    untilSql(async () => {
      pass(1);
      await breaker.admit();
      return condition();
    }, what);
  async function duringOutage(work: () => void) {
    await sql`alter table webhook.failing_targets rename to absent`;
    work();
    const known = lines.length;
    await admitUntil(() => lines.length > known, 'the outage is noticed');
    await sql`alter table webhook.absent rename to failing_targets`;
  }

  await fresh(0);
  await duringOutage(() => {
    for (let failures = 1; failures <= 3; failures += 1) breaker.record(false, queue.token.id);
  });
  breaker.record(false, other.id);
  await admitUntil(
    async () => (await findFailing(database, 'test')) !== undefined,
    'failures are stored',
  );
  const failing = await findFailing(database, 'test');
  assert.deepEqual([failing?.failures, failing?.token_id], [4, null], 'of two senders');

  await duringOutage(() => breaker.record(true, queue.token.id));
  await admitUntil(
    async () => (await findFailing(database, 'test')) === undefined,
    'the success has cleared them',
  );
});

test('while delivery is paused nothing is claimed, on any replica and after a restart', async (t) => {
  const { letLook } = lookingOf(t);
  const ids = await fresh(5);
  await queue.put({ order_key: 'page' });
  assert.equal(await pauseDelivery(database, 'an operator'), true);
  assert.equal(await pauseDelivery(database, 'another'), false, 'paused already');
  assert.equal((await findPause(database))?.paused_by, 'an operator');
  assert.equal((await claim()).length, 0);
  const delivered = new Set<string>();
  const worker = queue.startWorker(async ({ id }) => {
    delivered.add(id);
    return null;
  });
  const late = await queue.put();
  await letLook(worker);
  assert.deepEqual([...delivered], []);
  assert.equal(await resumeDelivery(database), true);
  assert.equal(await resumeDelivery(database), false);
  await nothingWaits();
  assert.ok([...ids, late].every((id) => delivered.has(id)) && delivered.size === 7);
  await worker.stop();
});

test('an attempt under way when delivery is paused ends and is stored', async () => {
  const [id = ''] = await fresh(1);
  let finish = (): void => {};
  let calls = 0;
  const worker = queue.startWorker(async () => {
    calls += 1;
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    return null;
  });
  await until(() => calls === 1, 'it is under way');
  await pauseDelivery(database, 'test');
  finish();
  await untilSql(async () => (await queue.stateOf(id)).status === 'done', 'it is done');
  await resumeDelivery(database);
  await worker.stop();
});
