/** Background work in loops that stop between two batches and survive a batch that fails. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { BATCH_ROWS, removalJob, startJobs } from '../../../src/platform/runtime/jobs.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { createMetrics } from '../../../src/platform/runtime/metrics.ts';
import { until } from '../../support/until.ts';

/** An interval in seconds. The first run starts after a random part of it. */
const SOON = 0.005;
/** Longer than any test. */
const NEVER = 1_000_000;

function memory() {
  const lines: Array<Record<string, unknown>> = [];
  return { lines, log: createLog('debug', (line) => lines.push(JSON.parse(line))) };
}

test('a job runs batches while there is more to do, then again after its interval', async () => {
  const answers = [true, true, false];
  let batches = 0;
  const jobs = startJobs(
    [{ name: 'sweep', everySeconds: SOON, batch: async () => answers[batches++] ?? false }],
    memory().log,
    createMetrics(),
  );
  await until(() => batches >= 6);
  await jobs.stop();
});

test('remaining work does not wait for the interval', async (t) => {
  // The first run starts at once; a second one never would.
  t.mock.method(Math, 'random', () => 0);
  let batches = 0;
  const jobs = startJobs(
    [{ name: 'sweep', everySeconds: NEVER, batch: async () => ++batches < 3 }],
    memory().log,
    createMetrics(),
  );
  await until(() => batches === 3);
  await jobs.stop();
  assert.equal(batches, 3);
});

test('jobs of replicas that start together start at different times', async (t) => {
  const started: string[] = [];
  const start = (name: string, random: number) => {
    const mock = t.mock.method(Math, 'random', () => random);
    const batch = async () => {
      started.push(name);
      return false;
    };
    const jobs = startJobs([{ name, everySeconds: 60, batch }], memory().log, createMetrics());
    mock.mock.restore();
    return jobs;
  };
  // The first interval is a random part of the whole: one replica starts now, the other in half a
  // minute.
  const replicas = [start('later', 0.5), start('now', 0)];
  await until(() => started.length > 0);
  assert.deepEqual(started, ['now']);
  await Promise.all(replicas.map((jobs) => jobs.stop()));
});

test('a batch that fails is logged without a foreign message, counted, and repeated', async () => {
  const metrics = createMetrics();
  const { lines, log } = memory();
  let batches = 0;
  const batch = async () => {
    batches += 1;
    if (batches === 1) throw new RangeError('marked value');
    if (batches === 2) throw new Unavailable('the database did not answer (ECONNREFUSED)', true);
    return false;
  };
  const jobs = startJobs([{ name: 'sweep', everySeconds: SOON, batch }], log, metrics);
  await until(() => batches >= 4);
  await jobs.stop();
  assert.deepEqual(
    lines.map(({ level, message, job, error }) => ({ level, message, job, error })),
    [
      { level: 'warn', message: 'background job failed', job: 'sweep', error: 'RangeError' },
      {
        level: 'warn',
        message: 'background job failed',
        job: 'sweep',
        error: 'the database did not answer (ECONNREFUSED)',
      },
    ],
  );
  assert.ok(!JSON.stringify(lines).includes('marked'));
  assert.match(metrics.text(), /^gatehouse_jobs_failed_total\{name="sweep"\} 2$/m);
});

test('a job that fails or hangs does not stop the others', async () => {
  let batches = 0;
  let finish = () => {};
  const jobs = startJobs(
    [
      { name: 'fails', everySeconds: SOON, batch: () => Promise.reject(new Error('on purpose')) },
      {
        name: 'throws',
        everySeconds: SOON,
        batch: () => {
          throw new Error('on purpose');
        },
      },
      {
        name: 'hangs',
        everySeconds: SOON,
        batch: () =>
          new Promise((resolve) => {
            finish = () => resolve(false);
          }),
      },
      { name: 'works', everySeconds: SOON, batch: async () => ++batches < 0 },
    ],
    memory().log,
    createMetrics(),
  );
  await until(() => batches >= 3);
  finish();
  await jobs.stop();
});

test('stop waits for the running batch and starts no other', async () => {
  let batches = 0;
  let finish = () => {};
  const batch = () => {
    batches += 1;
    return new Promise<boolean>((resolve) => {
      finish = () => resolve(true);
    });
  };
  const jobs = startJobs(
    [{ name: 'sweep', everySeconds: SOON, batch }],
    memory().log,
    createMetrics(),
  );
  await until(() => batches === 1);
  let isStopped = false;
  const stopped = jobs.stop().then(() => {
    isStopped = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isStopped, false, 'stopped during a batch');
  finish();
  await stopped;
  assert.equal(batches, 1);
});

test('stop wakes a sleeping job, before its first run and between two', async (t) => {
  const early = startJobs(
    [{ name: 'sweep', everySeconds: NEVER, batch: () => assert.fail('it must not begin') }],
    memory().log,
    createMetrics(),
  );
  await early.stop();

  t.mock.method(Math, 'random', () => 0);
  let batches = 0;
  const late = startJobs(
    [{ name: 'sweep', everySeconds: NEVER, batch: async () => ++batches < 0 }],
    memory().log,
    createMetrics(),
  );
  await until(() => batches === 1);
  await late.stop();
  assert.equal(batches, 1);
});

test('a removal job repeats while batches are full, and counts the rows', async () => {
  const metrics = createMetrics();
  const limits: number[] = [];
  const removed = [BATCH_ROWS, 7, 0];
  const job = removalJob(metrics, 'identity.audit', 300, async (limit) => {
    limits.push(limit);
    return removed.shift() ?? 0;
  });
  assert.deepEqual([job.name, job.everySeconds], ['remove from identity.audit', 300]);
  const hasMore = [await job.batch(), await job.batch(), await job.batch()];
  assert.deepEqual(hasMore, [true, false, false]);
  assert.deepEqual(limits, [BATCH_ROWS, BATCH_ROWS, BATCH_ROWS]);
  assert.match(
    metrics.text(),
    new RegExp(`^gatehouse_rows_removed_total\\{table="identity.audit"\\} ${BATCH_ROWS + 7}$`, 'm'),
  );
});
