import { createLimiter, type Limiter } from './limiter.ts';

/** Runs work with the same key one after the other, and work with different keys at the same time. */
export interface KeyedQueue {
  /** Throws `Overloaded` at once if the queue of this key is full. */
  run<T>(key: string, work: () => Promise<T>): Promise<T>;
}

/** @param length how much may run or wait for each key  @param what as for a limiter */
export function createKeyedQueue(length: number, what: string): KeyedQueue {
  const limiters = new Map<string, Limiter>();
  return {
    async run(key, work) {
      const limiter = limiters.get(key) ?? createLimiter(1, length - 1, what);
      limiters.set(key, limiter);
      try {
        return await limiter.run(work);
      } finally {
        if (limiter.running === 0 && limiters.get(key) === limiter) limiters.delete(key);
      }
    },
  };
}
