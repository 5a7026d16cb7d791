import { createLimiter, type Limiter } from './limiter.ts';

/**
 * Runs work with the same key one after the other, and work with different keys at the same time.
 * @param length how much may run or wait for each key; beyond it, `Overloaded` is thrown  @param what as for a limiter
 */
export function createKeyedQueue(length: number, what: string) {
  const limiters = new Map<string, Limiter>();
  return <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const limiter = limiters.get(key) ?? createLimiter(1, length - 1, what);
    limiters.set(key, limiter);
    return limiter.run(work).finally(() => {
      if (limiter.running() === 0 && limiters.get(key) === limiter) limiters.delete(key);
    });
  };
}
