import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { describeError } from './errors.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** Background work that repeats. */
export type Job = Readonly<{
  name: string;
  everySeconds: number;
  /** Does one small batch. True means that there is more to do now. */
  batch: () => Promise<boolean | void>;
}>;

export const BATCH_ROWS = 500; // how many rows one batch removes at most

/**
 * A job that removes rows in batches. Replicas may run it at the same time.
 * @param table with its schema
 * @param remove removes at most `limit` rows, and returns how many it removed
 */
export function removalJob(
  metrics: Metrics,
  table: string,
  everySeconds: number,
  remove: (limit: number) => Promise<number>,
) {
  const count = metrics.counter(
    'gatehouse_rows_removed_total',
    'Rows removed by background jobs.',
    ['table'],
  );
  return {
    name: `remove from ${table}`,
    everySeconds,
    async batch() {
      const removed = await remove(BATCH_ROWS);
      count([table], removed);
      return removed === BATCH_ROWS;
    },
  };
}

/**
 * Runs each job in a loop of its own. A batch that fails is logged, counted and repeated after the
 * interval.
 * @returns `stop` waits for the batch in progress
 */
export function startJobs(jobs: readonly Job[], log: Log, metrics: Metrics) {
  // Not `job`, which Prometheus sets itself.
  const countFailure = metrics.counter(
    'gatehouse_jobs_failed_total',
    'Runs of background jobs that failed.',
    ['name'],
  );
  const stopping = new AbortController();
  const { signal } = stopping;
  setMaxListeners(0, signal);
  const pause = (seconds: number) =>
    sleep(seconds * 1000, undefined, { signal, ref: false }).catch(() => {});
  const loops = jobs.map(async ({ name, everySeconds, batch }) => {
    // Replicas that start together must not all run their jobs in the same second.
    await pause(everySeconds * Math.random());
    while (!signal.aborted) {
      try {
        if (await batch()) continue;
      } catch (error) {
        countFailure([name]);
        log.warn('background job failed', { job: name, ...describeError(error) });
      }
      await pause(everySeconds);
    }
  });
  return {
    async stop() {
      stopping.abort();
      await Promise.all(loops);
    },
  };
}
