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
import { stopClock } from '../../support/clock.ts';
import { untilSql } from '../../support/connections.ts';
import { createWaits, holdStatements } from '../../support/hold.ts';
import { latch, test, until } from '../../support/until.ts';
import { FAILED, fillQueue, openWorkQueue, type TestToken } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, fresh } = queue;
const other = await queue.addToken('other');
const third = await queue.addToken('third');
const failing = () => findFailing(database, 'test');
const probe = async (limit = 1, except: string | null = null) => {
  const events = await claimProbes(database, limit, except);
  return events.map(({ id }) => id);
};

/** Moves the target's failures into the past, and makes its probe due. */
const fail = (seconds: number, failures = 10) => sql`
  insert into webhook.failing_targets (target, failures, failing_since)
  values ('test', ${failures}, now() - make_interval(secs => ${seconds}))
  on conflict (target) do update set failures = excluded.failures,
    failing_since = excluded.failing_since, probe_at = now()`;

test('a target counts as failing from ten failures on, over at least a minute, until a success', async () => {
  await fresh(0);
  const isOpen = async () => (await failing())?.is_open;
  assert.equal(await isOpen(), undefined);
  await addFailures(database, 'test', 50, null);
  assert.equal(await isOpen(), false, 'for less than a minute');
  await fail(61, 8);
  await addFailures(database, 'test', 1, null);
  assert.equal(await isOpen(), false, 'nine failures');
  await addFailures(database, 'test', 1, null);
  assert.equal(await isOpen(), true);
  assert.equal(await findFailing(database, 'another'), undefined);
  await clearFailures(database, 'another');
  assert.equal(await isOpen(), true);
  await clearFailures(database, 'test');
  assert.equal(await isOpen(), undefined);
});

test('failures count for one sender until those of another come', async () => {
  await fresh(0);
  const senders: Array<string | null | undefined> = [];
  for (const { id } of [queue.token, queue.token, other, other]) {
    await addFailures(database, 'test', 1, id);
    senders.push((await failing())?.token_id);
  }
  assert.deepEqual(senders, [queue.token.id, queue.token.id, null, null]);
});

test('one of all replicas takes a probe, none without a due event, at growing intervals', async () => {
  await fresh(0);
  await fail(61);
  const take = () => takeProbe(database, 'test', COMMON.id);
  assert.equal(await take(), false, 'no event is due');
  await queue.put({ order_key: 'page' });
  assert.equal(await take(), true, 'the first event of a page is');
  await queue.clear();
  await queue.put();
  for (const [seconds, pause] of [
    [61, 10],
    [600, 60],
    [86_400, 300],
  ] as const) {
    await fail(seconds);
    const taken = await Promise.all(Array.from({ length: 8 }, take));
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
  assert.equal(await take(), false, 'not while delivery is paused');
});

test('a probe is taken only of its target, and only if an event of its queue is due', async () => {
  await fresh(0);
  await fail(61);
  await sql`insert into webhook.failing_targets (target, failures) values ('another', 10)`;
  const probesDue = () => sql`
    select target from webhook.failing_targets where probe_at <= now() order by target`;
  const take = () => takeProbe(database, 'test', other.id);
  for (const order_key of [null, 'page']) {
    await queue.put({ order_key });
    assert.equal(await take(), false, 'not for events of another queue');
    for (const table of ['work', 'pages'])
      await sql`update webhook.${sql(table)} set queue = ${other.id}, due_at = now() + '1 hour'`;
    assert.equal(await take(), false, 'not for retries that wait');
  }
  await sql`update webhook.work set due_at = now() where order_key is null`;
  assert.equal(await take(), true);
  assert.deepEqual([...(await probesDue())], [{ target: 'another' }]);
});

test('an event that another replica claims meanwhile is not taken as a probe', async (t) => {
  const own = await openWorkQueue(t);
  await own.put();
  await createWaits(own.sql);
  const hold = await holdStatements(t, own.databaseUrl);
  // Between the view of the data and the lock of the row.
  await own.sql`
    create or replace view webhook.unordered as
    select event_id, token_id, queue, due_at from webhook.work
    where order_key is null and wait_for(1)::text = ''`;
  const probes = claimProbes(own.database, 1, null);
  await hold.met();
  await own.sql`update webhook.work set due_at = now() + interval '30 seconds'`;
  await hold.release();
  assert.deepEqual([...(await probes)], []);
});

test('a probe takes what has not failed yet, of each sender in turn, also of a page', async () => {
  const [failed = ''] = await fresh(40);
  await sql`update webhook.work set attempts = 1, due_at = now() where event_id <> ${failed}`;
  assert.deepEqual(await probe(), [failed], 'first what was never attempted');
  const rare = await queue.put({ token: other });
  const chosen = new Set<string>();
  for (let round = 0; round < 40 && !chosen.has(rare); round += 1) {
    for (const id of await probe()) chosen.add(id);
    await sql`update webhook.work set due_at = now(), lease = null`;
  }
  assert.ok(chosen.has(rare), 'half of the probes are of the other sender');
  assert.deepEqual(await probe(10, queue.token.id), [rare]);
  assert.ok(!(await probe(10, other.id)).includes(rare));
  await fresh(0);
  const paged = await queue.put({ order_key: 'page' });
  await queue.put({ order_key: 'page' });
  assert.deepEqual(await probe(2), [paged], 'the head of a page alone');
  assert.equal((await queue.claim()).length, 0, 'not due during its lease');
  await fresh(1);
  await pauseDelivery(database, 'test');
  assert.deepEqual(await probe(), [], 'not while delivery is paused');
});

test('events of one sender, however many, with pages or without, hide no event of another', async () => {
  for (const isOrdered of [false, true]) {
    /** Events of the third sender, between those of others. @returns their ids */
    const between = async (others: readonly TestToken[], count: number) => {
      await fresh(0);
      const fill = (tokens: readonly TestToken[], number: number, minutesAgo: number) => {
        const ids = tokens.map(({ id }) => id);
        return fillQueue(sql, ids, number, { isOrdered, minutesAgo });
      };
      await fill(others, 150, 60);
      const ids = await fill([third], count, 50);
      await fill(others, 150, 40);
      return ids;
    };
    const [good = ''] = await between([queue.token, other], 1);
    assert.ok((await probe(3)).includes(good), 'one event of each sender');
    const both = await between([queue.token], 2);
    assert.deepEqual((await probe(10, queue.token.id)).sort(), both.sort());
  }
});

test('the failing events of one sender do not stop the events of another', async () => {
  const bad = await fresh(30);
  await sql`
    insert into webhook.failing_targets (target, failures, token_id, failing_since, probe_at)
    values ('test', 50, ${queue.token.id}, now() - interval '1 day', now() + interval '1 day')`;
  const good = [await queue.put({ token: other }), await queue.put({ token: other })];
  const attempts: string[] = [];
  const worker = queue.startWorker(
    async ({ id }) => {
      attempts.push(id);
      return bad.includes(id) ? FAILED : null;
    },
    { pausesMs: [3_600_000] },
  );
  for (const id of good) await queue.until(id, 'done');
  // Their success lets the others through, too.
  assert.deepEqual(attempts.filter((id) => good.includes(id)).sort(), [...good].sort());
  await worker.stop();
});

test('a target that rejects an event is not counted as failing', async () => {
  await fresh(20);
  let answer_status = 422;
  const worker = queue.startWorker(async () => ({ ...FAILED, answer_status }), { maxAttempts: 1 });
  await queue.nothingWaits();
  answer_status = 503;
  await queue.put();
  await queue.nothingWaits();
  worker.notify();
  await untilSql(async () => (await failing()) !== undefined, 'a failure is stored');
  assert.equal((await failing())?.failures, 1);
  await worker.stop();
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
  await fresh(30);
  await fail(3_600);
  let isWorking = false;
  let calls = 0;
  const lines: string[] = [];
  const deliver = async () => {
    calls += 1;
    return isWorking ? null : FAILED;
  };
  const workers = [1, 2].map(() =>
    queue.startWorker(deliver, { pausesMs: [3_600_000] }, { log: (line) => lines.push(line) }),
  );
  await until(() => calls === 1, 'the probe');
  await untilSeen(workers, async () => (await failing())?.failures === 11, 'its failure is stored');
  await letLook(...workers);
  assert.equal(calls, 1, 'no other attempt');
  const attempted = await sql`select from webhook.work where attempts > 0`;
  assert.equal(attempted.length, 1, 'the others have used no attempt up');
  assert.ok(lines.some((line) => line.includes('it is only probed')));
  isWorking = true;
  await sql`update webhook.failing_targets set probe_at = now()`;
  await untilSeen(
    workers,
    async () => (await sql`select from webhook.outcomes`).length === 29,
    'all others are done',
  );
  await untilSeen(workers, async () => (await failing()) === undefined, 'no failures are left');
  await until(() => lines.some((line) => line.includes('works again')), 'the log says so');
  await Promise.all(workers.map((worker) => worker.stop()));
});

test('between two looks at the state, an open breaker admits nothing', async (t) => {
  const pass = stopClock(t);
  await fresh(2);
  await fail(61);
  const log = createLog('error', () => {});
  const breaker = createBreaker(database, 'test', COMMON.id, log);
  const probing = { limit: 1, except: null };
  assert.deepEqual(await breaker.admit(), probing);
  await sql`update webhook.failing_targets set probe_at = now()`;
  assert.equal(await breaker.admit(), 'none');
  pass(1);
  assert.deepEqual(await breaker.admit(), probing);
});

test('what happened during a database outage is counted after it', async (t) => {
  const pass = stopClock(t);
  await fresh(0);
  const lines: string[] = [];
  const log = createLog('debug', (line) => lines.push(line));
  const breaker = createBreaker(database, 'test', COMMON.id, log);
  /** The state is not read more than once a second. */
  const admitUntil = (condition: () => Promise<boolean> | boolean, what: string) =>
    untilSql(async () => {
      pass(1);
      await breaker.admit();
      return condition();
    }, what);
  async function duringOutage(...attempts: ReadonlyArray<readonly [boolean, TestToken]>) {
    await sql`alter table webhook.failing_targets rename to absent`;
    for (const [isSuccess, { id }] of attempts) breaker.record(isSuccess, id);
    const known = lines.length;
    await admitUntil(() => lines.length > known, 'the outage is noticed');
    await sql`alter table webhook.absent rename to failing_targets`;
  }
  const { token } = queue;
  await duringOutage([false, token], [true, token], [false, token], [false, token]);
  breaker.record(false, other.id);
  await admitUntil(async () => (await failing()) !== undefined, 'failures are stored');
  const { failures, token_id } = (await failing()) ?? {};
  assert.deepEqual([failures, token_id], [3, null], 'since the success, of two senders');
  await duringOutage([true, token]);
  await admitUntil(async () => (await failing()) === undefined, 'the success has cleared them');
});

test('while delivery is paused nothing is claimed, on any replica, and attempts under way end', async (t) => {
  const { letLook } = lookingOf(t);
  const [first = ''] = await fresh(1);
  const begun = new Set<string>();
  const finish = latch();
  const worker = queue.startWorker(async ({ id }) => {
    begun.add(id);
    await finish.opened;
    return null;
  });
  await until(() => begun.size === 1, 'it is under way');
  assert.equal(await pauseDelivery(database, 'an operator'), true);
  assert.equal(await pauseDelivery(database, 'another'), false, 'paused already');
  assert.equal((await findPause(database))?.paused_by, 'an operator');
  const waiting = [await queue.put(), await queue.put({ order_key: 'page' })];
  assert.equal((await queue.claim()).length, 0);
  finish.open();
  await queue.until(first, 'done');
  await letLook(worker);
  assert.deepEqual([...begun], [first]);
  assert.deepEqual([await resumeDelivery(database), await resumeDelivery(database)], [true, false]);
  await queue.nothingWaits();
  assert.deepEqual([...begun].sort(), [first, ...waiting].sort());
  await worker.stop();
});
