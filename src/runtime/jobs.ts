import type { Log } from './log.ts';
import { describeTrouble } from './trouble.ts';

export interface Job {
  readonly name: string;
  readonly everySeconds: number;
  /** For what each process gathers by itself; else one of several workers does it. */
  readonly everywhere?: true;
  /** Does one small batch; true means there is more to do now. */
  readonly batch: () => Promise<boolean>;
}

/**
 * Runs each job in a loop of its own. A failing batch is logged and tried again at the next turn.
 * @returns stops between two batches, never inside one
 */
export function startJobs(jobs: readonly Job[], log: Log): { stop(): Promise<void> } {
  let stopping = false;
  const wake = new Set<() => void>();
  const sleep = (seconds: number) =>
    new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        wake.delete(done);
        resolve();
      };
      const timer = setTimeout(done, seconds * 1000);
      timer.unref();
      wake.add(done);
    });
  const loop = async (job: Job) => {
    // Replicas that start together do not all clean up in the same second.
    await sleep(job.everySeconds * Math.random());
    while (!stopping) {
      let more = false;
      try {
        more = await job.batch();
      } catch (error) {
        log.warn('background work failed', { job: job.name, ...describeTrouble(error) });
      }
      if (!more && !stopping) await sleep(job.everySeconds);
    }
  };
  const loops = jobs.map(loop);
  return {
    async stop() {
      stopping = true;
      for (const done of [...wake]) done();
      await Promise.all(loops);
    },
  };
}
