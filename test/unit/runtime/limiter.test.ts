/** Slots, queues, priority, queues by key, and background jobs. */
import assert from 'node:assert/strict';
import { Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { BATCH_ROWS, removalJob, startJobs } from '../../../src/platform/runtime/jobs.ts';
import { createLimiter } from '../../../src/platform/runtime/limiter.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { createMetrics } from '../../../src/platform/runtime/metrics.ts';
import { createKeyedQueue } from '../../../src/secrets/service.ts';
import { test, until } from '../../support/until.ts';

/** Lets everything happen that is due. */
const settle = () => new Promise((resolve) => setImmediate(resolve));
const fail = () => Promise.reject(new RangeError('on purpose'));
const failAtOnce = () => {
  throw new RangeError('at once');
};

/** Numbered work that records when it starts, and ends when it is told to. */
function manualWork() {
  const started: number[] = [];
  const ends = new Map<number, () => void>();
  const work = (number: number) => () => {
    started.push(number);
    return new Promise<number>((resolve) => ends.set(number, () => resolve(number)));
  };
  const end = async (...numbers: readonly number[]) => {
    for (const number of numbers) {
      ends.get(number)?.();
      await settle();
    }
  };
  return { started, work, end };
}

test('limiter: work that has waited for too long is rejected, and leaves the queue', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const limiter = createLimiter(1, 2, 'a slot', 100);
  const { started, work, end } = manualWork();
  const first = limiter.run(work(1));
  const late = assert.rejects(limiter.run(work(2)), Overloaded);
  t.mock.timers.tick(50);
  const next = limiter.run(work(3));
  t.mock.timers.tick(50);
  await late;
  assert.equal(limiter.waiting(), 1);
  await end(1);
  t.mock.timers.tick(1_000);
  await end(3);
  assert.deepEqual(await Promise.all([first, next]), [1, 3]);
  assert.deepEqual(started, [1, 3]);
});

test('limiter: work beyond the slots waits in order, and beyond the queue is rejected', async () => {
  const limiter = createLimiter(2, 2, 'a slot');
  const { started, work, end } = manualWork();
  const results = [1, 2, 3, 4].map((number) => limiter.run(work(number)));
  const message = 'too many are waiting for a slot';
  await assert.rejects(limiter.run(work(5)), (error) => {
    assert.ok(error instanceof Overloaded);
    assert.equal(error.message, message);
    return true;
  });
  assert.deepEqual([started, limiter.running(), limiter.waiting()], [[1, 2], 2, 2]);
  await end(2);
  assert.deepEqual([started, limiter.running(), limiter.waiting()], [[1, 2, 3], 2, 1]);
  await end(1, 3, 4);
  assert.deepEqual(await Promise.all(results), [1, 2, 3, 4]);
  assert.deepEqual([started, limiter.running(), limiter.waiting()], [[1, 2, 3, 4], 0, 0]);
});

test('limiter: work that fails, or throws at once, frees its slot', async () => {
  const limiter = createLimiter(1, 1, 'a slot');
  const failed = assert.rejects(limiter.run(fail), RangeError);
  assert.equal(await limiter.run(async () => 'waited'), 'waited');
  await failed;
  for (let round = 0; round < 2; round += 1)
    await assert.rejects(limiter.run(failAtOnce), RangeError);
  assert.deepEqual([limiter.running(), limiter.waiting()], [0, 0]);
});

test('limiter: new work cannot take the slot that was handed to waiting work', async () => {
  const limiter = createLimiter(1, 5, 'a slot');
  const { started, work, end } = manualWork();
  let third: Promise<number> | undefined;
  const first = limiter.run(work(1)).then(() => {
    third = limiter.run(work(3));
  });
  const second = limiter.run(work(2));
  await end(1);
  await first;
  assert.deepEqual([started, limiter.running(), limiter.waiting()], [[1, 2], 1, 1]);
  await end(2, 3);
  await Promise.all([second, third]);
  assert.deepEqual(started, [1, 2, 3]);
});

test('limiter: work with priority has its own queue, which is served first', async () => {
  const limiter = createLimiter(1, 1, 'a slot');
  const told: Array<[string, boolean]> = [];
  const work = (name: string) => async (hasWaited: boolean) => {
    told.push([name, hasWaited]);
    await settle();
  };
  const all = [limiter.run(work('first')), limiter.run(work('other'))];
  all.push(limiter.run(work('priority'), true));
  assert.equal(limiter.waiting(), 2);
  for (const hasPriority of [false, true])
    await assert.rejects(limiter.run(settle, hasPriority), Overloaded);
  await Promise.all(all);
  // Work is told whether it had to wait.
  assert.deepEqual(told, [
    ['first', false],
    ['priority', true],
    ['other', true],
  ]);
});

test('limiter: shares are served in turn, and the full queue of one rejects no work of another', async () => {
  const limiter = createLimiter(1, 10, 'a slot');
  const flood = limiter.share();
  const few = limiter.share();
  const started: string[] = [];
  const work = (name: string) => async () => {
    started.push(name);
    await settle();
  };
  const all = Array.from({ length: 11 }, () => flood.run(work('flood'), true));
  await assert.rejects(flood.run(settle, true), Overloaded);
  all.push(few.run(work('few')), few.run(work('few')), few.run(work('few with priority'), true));
  assert.deepEqual([limiter.waiting(), limiter.running()], [13, 1]);
  await Promise.all(all);
  const begin = ['flood', 'flood', 'few with priority', 'flood', 'few', 'flood', 'few'];
  assert.deepEqual(started.slice(0, 7), begin);
  assert.deepEqual([limiter.waiting(), limiter.running()], [0, 0]);
});

test('keyed queue: work with one key runs in order, and with another at the same time', async () => {
  const queue = createKeyedQueue(2, 'a key');
  const { started, work, end } = manualWork();
  const results = [queue('a', work(1)), queue('a', work(2)), queue('b', work(3))];
  await settle();
  assert.deepEqual(started, [1, 3]);
  // Full for its key only.
  await assert.rejects(queue('a', work(4)), { message: 'too many are waiting for a key' });
  await end(1);
  // Work that arrives when other work has just begun to run waits for it.
  results.push(queue('a', work(5)));
  await settle();
  assert.deepEqual(started, [1, 3, 2]);
  await end(2, 3, 5);
  assert.deepEqual(await Promise.all(results), [1, 2, 3, 5]);
  assert.equal(await queue('a', async () => 'again'), 'again');
});

test('keyed queue: work that fails does not stop the work behind it', async () => {
  const queue = createKeyedQueue(3, 'a key');
  const failed = [fail, failAtOnce].map((work) => assert.rejects(queue('a', work), RangeError));
  assert.equal(await queue('a', async () => 'done'), 'done');
  await Promise.all(failed);
});

/** An interval in seconds. The first run starts after a random part of it. */
const SOON = 0.005;
/** Longer than any test. */
const NEVER = 1_000_000;

type Batch = () => Promise<boolean>;
const start = (
  batches: readonly Batch[],
  everySeconds = SOON,
  log = createLog('silent', () => {}),
) => {
  const metrics = createMetrics();
  const named = batches.map((batch) => ({ name: 'sweep', everySeconds, batch }));
  return { metrics, ...startJobs(named, log, metrics) };
};

test('a job runs batches while there is more to do, then again after its interval', async (t) => {
  const answers = [true, true, false];
  let batches = 0;
  const soon = start([async () => answers[batches++] ?? false]);
  await until(() => batches >= 6);
  await soon.stop();
  // The first run starts at once, and remaining work does not wait: another run never would start.
  t.mock.method(Math, 'random', () => 0);
  batches = 0;
  const never = start([async () => ++batches < 3], NEVER);
  await until(() => batches === 3);
  await never.stop();
  assert.equal(batches, 3);
});

test('jobs of replicas that start together start at different times', async (t) => {
  const started: string[] = [];
  const replicas = [0.5, 0].map((random) => {
    t.mock.method(Math, 'random', () => random);
    const batch = async () => started.push(`after ${random}`) === 0;
    return start([batch], NEVER);
  });
  await until(() => started.length > 0);
  await Promise.all(replicas.map((jobs) => jobs.stop()));
  assert.deepEqual(started, ['after 0']);
});

test('a batch that fails is logged without a foreign message, counted, and repeated', async () => {
  const lines: Array<Record<string, unknown>> = [];
  let batches = 0;
  const batch = async () => {
    batches += 1;
    if (batches === 1) throw new RangeError('marked value');
    if (batches === 2) throw new Unavailable('the database did not answer', true);
    return false;
  };
  const log = createLog('debug', (line) => lines.push(JSON.parse(line)));
  const { metrics, stop } = start([batch], SOON, log);
  await until(() => batches >= 4);
  await stop();
  assert.deepEqual(
    lines.map(({ level, message, job, error }) => [level, message, job, error]),
    ['RangeError', 'the database did not answer'].map((error) => {
      return ['warn', 'background job failed', 'sweep', error];
    }),
  );
  assert.ok(!JSON.stringify(lines).includes('marked'));
  assert.match(metrics.text(), /^gatehouse_jobs_failed_total\{name="sweep"\} 2$/m);
});

test('a job that fails or hangs does not stop the others', async () => {
  let batches = 0;
  let finish = (_: boolean) => {};
  const hang = () =>
    new Promise<boolean>((resolve) => {
      finish = resolve;
    });
  const jobs = start([fail, failAtOnce, hang, async () => ++batches < 0]);
  await until(() => batches >= 3);
  finish(false);
  await jobs.stop();
});

test('stop waits for the running batch and starts no other', async () => {
  const { started, work, end } = manualWork();
  const jobs = start([() => work(1)().then(() => true)]);
  await until(() => started.length === 1);
  let isStopped = false;
  const stopped = jobs.stop().then(() => {
    isStopped = true;
  });
  await settle();
  assert.equal(isStopped, false, 'stopped during a batch');
  await end(1);
  await stopped;
  assert.deepEqual(started, [1]);
});

test('a removal job repeats while batches are full, and counts the rows', async () => {
  const metrics = createMetrics();
  const removed = [BATCH_ROWS, 7, 0];
  const job = removalJob(metrics, 'identity.audit', 300, async (limit) => {
    assert.equal(limit, BATCH_ROWS);
    return removed.shift() ?? 0;
  });
  assert.deepEqual([job.name, job.everySeconds], ['remove from identity.audit', 300]);
  assert.deepEqual([await job.batch(), await job.batch(), await job.batch()], [true, false, false]);
  const counted = `gatehouse_rows_removed_total{table="identity.audit"} ${BATCH_ROWS + 7}\n`;
  assert.ok(metrics.text().endsWith(counted));
});
