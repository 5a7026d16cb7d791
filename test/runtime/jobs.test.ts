/** Background work: in loops that stop between two batches and outlive a batch that fails. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startJobs } from '../../src/runtime/jobs.ts';
import { createLog } from '../../src/runtime/log.ts';
import { Unavailable } from '../../src/runtime/errors.ts';
import { until } from '../support/until.ts';

/** The first turn comes at a random moment of this long. */
const SOON = 0.005;
/** Longer than any test: a turn that nobody should wait for. */
const NEVER = 1_000_000;

function memory() {
  const lines: Array<Record<string, unknown>> = [];
  return { lines, log: createLog('debug', (line) => lines.push(JSON.parse(line))) };
}

test('a job does batch after batch while there is more to do, and then turn after turn', async () => {
  const answers = [true, true, false];
  let batches = 0;
  const jobs = startJobs([{ name: 'sweep', everySeconds: SOON, batch: async () => answers[batches++] ?? false }], memory().log);
  await until(() => batches >= 6);
  await jobs.stop();
});

test('what is left to do does not wait for the next turn', async (t) => {
  // The first turn comes at once; the one after it never would.
  t.mock.method(Math, 'random', () => 0);
  let batches = 0;
  const jobs = startJobs([{ name: 'sweep', everySeconds: NEVER, batch: async () => ++batches < 3 }], memory().log);
  await until(() => batches === 3);
  await jobs.stop();
  assert.equal(batches, 3);
});

test('replicas that start together do not all begin in the same moment', async (t) => {
  const delays: unknown[] = [];
  t.mock.method(globalThis, 'setTimeout', (_done: () => void, delay: number) => {
    delays.push(delay);
    return { unref: () => {} };
  });
  const random = t.mock.method(Math, 'random', () => 0.25);
  startJobs([{ name: 'sweep', everySeconds: 60, batch: async () => false }], memory().log);
  random.mock.mockImplementation(() => 0.75);
  startJobs([{ name: 'sweep', everySeconds: 60, batch: async () => false }], memory().log);
  assert.deepEqual(delays, [15_000, 45_000]);
});

test('a batch that fails is logged without its message, and tried again', async () => {
  const { lines, log } = memory();
  let batches = 0;
  const batch = async () => {
    batches += 1;
    if (batches === 1) throw new RangeError('marked value');
    if (batches === 2) throw new Unavailable('the database did not answer (ECONNREFUSED)', true);
    return false;
  };
  const jobs = startJobs([{ name: 'sweep', everySeconds: SOON, batch }], log);
  await until(() => batches >= 4);
  await jobs.stop();
  assert.deepEqual(lines.map(({ level, message, job, error }) => ({ level, message, job, error })), [
    { level: 'warn', message: 'background job failed', job: 'sweep', error: 'RangeError' },
    { level: 'warn', message: 'background job failed', job: 'sweep', error: 'the database did not answer (ECONNREFUSED)' },
  ]);
  assert.ok(!JSON.stringify(lines).includes('marked'));
});

test('one job that fails or hangs keeps no other from its work', async () => {
  let batches = 0;
  let letGo = () => {};
  const jobs = startJobs(
    [
      { name: 'fails', everySeconds: SOON, batch: () => Promise.reject(new Error('on purpose')) },
      { name: 'hangs', everySeconds: SOON, batch: () => new Promise((resolve) => (letGo = () => resolve(false))) },
      { name: 'works', everySeconds: SOON, batch: async () => ++batches < 0 },
    ],
    memory().log,
  );
  await until(() => batches >= 3);
  letGo();
  await jobs.stop();
});

test('stopping waits for the batch under way, and begins no other although there is more to do', async () => {
  let batches = 0;
  let finish = () => {};
  const batch = () => {
    batches += 1;
    return new Promise<boolean>((resolve) => (finish = () => resolve(true)));
  };
  const jobs = startJobs([{ name: 'sweep', everySeconds: SOON, batch }], memory().log);
  await until(() => batches === 1);
  let isStopped = false;
  const stopped = jobs.stop().then(() => (isStopped = true));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isStopped, false, 'stopped in the middle of a batch');
  finish();
  await stopped;
  assert.equal(batches, 1);
});

test('stopping wakes a job that sleeps, before its first turn and between two', async (t) => {
  const early = startJobs([{ name: 'sweep', everySeconds: NEVER, batch: () => assert.fail('it must not begin') }], memory().log);
  await early.stop();

  t.mock.method(Math, 'random', () => 0);
  let batches = 0;
  const late = startJobs([{ name: 'sweep', everySeconds: NEVER, batch: async () => ++batches < 0 }], memory().log);
  await until(() => batches === 1);
  await late.stop();
  assert.equal(batches, 1);
});
