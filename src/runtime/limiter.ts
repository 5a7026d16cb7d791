import { Overloaded } from './errors.ts';

/** Runs so much work at once and queues so much more. The rest is rejected before it starts. */
export interface Limiter {
  /**
   * Runs the work when a slot is free. Throws `Overloaded` at once if the queue is full.
   * @param hasPriority waits in a second queue of the same length that is served first
   */
  run<T>(work: () => Promise<T>, hasPriority?: boolean): Promise<T>;
  readonly running: number;
  readonly waiting: number;
}

/** @param slots how much runs at once  @param queueLength how much may wait, first come first served  @param what for the error */
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
      if (running >= slots) {
        if (queue.length >= queueLength) throw new Overloaded(`too many are waiting for ${what}`);
        // Finished work hands its slot over: `running` does not change, and a newcomer cannot slip in between.
        await new Promise<void>((resolve) => queue.push(resolve));
      } else {
        running += 1;
      }
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

/** Runs work of the same key one after the other, and work of different keys side by side. */
export interface KeyedQueue {
  /** Throws `Overloaded` at once if the queue of this key is full. */
  run<T>(key: string, work: () => Promise<T>): Promise<T>;
}

/** @param length how much may be under way or waiting for each key */
export function createKeyedQueue(length: number, what: string): KeyedQueue {
  const limiters = new Map<string, Limiter>();
  return {
    async run(key, work) {
      const limiter = limiters.get(key) ?? createLimiter(1, length - 1, what);
      limiters.set(key, limiter);
      return limiter.run(work).finally(() => {
        if (limiter.running === 0) limiters.delete(key);
      });
    },
  };
}
