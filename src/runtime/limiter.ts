import { Overloaded } from './errors.ts';

/** Limits how much work runs at the same time and how much waits. Any more is rejected before it starts. */
export interface Limiter {
  /**
   * Runs the work when a slot is free, first come, first served. Throws `Overloaded` at once if the queue is full.
   * @param hasPriority waits in a second queue of the same length that is served first
   */
  run<T>(work: () => Promise<T>, hasPriority?: boolean): Promise<T>;
  readonly running: number;
  readonly waiting: number;
}

/** @param what is waited for, as in "too many are waiting for a password hash" */
export function createLimiter(slots: number, queueLength: number, what: string): Limiter {
  let running = 0;
  const priority: Array<() => void> = [];
  const others: Array<() => void> = [];
  return {
    get running() {
      return running;
    },
    get waiting() {
      return priority.length + others.length;
    },
    async run(work, hasPriority = false) {
      const queue = hasPriority ? priority : others;
      if (running < slots) running += 1;
      else if (queue.length >= queueLength) throw new Overloaded(`too many are waiting for ${what}`);
      // Finished work hands over its slot: `running` does not change, so that nothing else can take it.
      else await new Promise<void>((resolve) => queue.push(resolve));
      try {
        return await work();
      } finally {
        const next = priority.shift() ?? others.shift();
        if (next) next();
        else running -= 1;
      }
    },
  };
}
