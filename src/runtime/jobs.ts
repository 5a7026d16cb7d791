import { describeError } from './errors.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

export interface Job {
  readonly name: string;
  readonly everySeconds: number;
  /** Does one small batch; true means there is more to do now. */
  readonly batch: () => Promise<boolean>;
}

/** Rows that one batch of housekeeping removes at most. */
export const BATCH_ROWS = 500;

/**
 * A job that removes rows in batches. Replicas may run it at once: a row that another one has removed is not there.
 * @param table with its schema  @param remove removes at most so many rows, and returns how many
 */
export function removalJob(metrics: Metrics, table: string, everySeconds: number, remove: (most: number) => Promise<number>): Job {
  const count = metrics.counter('gatehouse_rows_removed_total', 'Rows that housekeeping has removed, by table.', ['table']);
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
 * Runs each job in a loop of its own. A failing batch is logged and tried again at the next turn.
 * @returns stops between two batches, never inside one
 */
export function startJobs(jobs: readonly Job[], log: Log): { stop(): Promise<void> } {
  let isStopping = false;
  const wakeUps = new Set<() => void>();
  const sleep = (seconds: number) =>
    new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        wakeUps.delete(done);
        resolve();
      };
      const timer = setTimeout(done, seconds * 1000);
      timer.unref();
      wakeUps.add(done);
    });
  const loop = async (job: Job) => {
    // Replicas that start together do not all clean up in the same second.
    await sleep(job.everySeconds * Math.random());
    while (!isStopping) {
      let hasMore = false;
      try {
        hasMore = await job.batch();
      } catch (error) {
        log.warn('background job failed', { job: job.name, ...describeError(error) });
      }
      if (!hasMore && !isStopping) await sleep(job.everySeconds);
    }
  };
  const loops = jobs.map(loop);
  return {
    async stop() {
      isStopping = true;
      for (const wakeUp of [...wakeUps]) wakeUp();
      await Promise.all(loops);
    },
  };
}
