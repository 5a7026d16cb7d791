/** The clock that limits and waits of the services in this process are measured by. */
import type { TestContext } from 'node:test';

/**
 * Stops the clock until the test ends: a limit that refills with time does not refill because the
 * machine is slow.
 * @returns a function that lets seconds pass
 */
export function stopClock(t: TestContext): (seconds: number) => void {
  // Whole, so that a sum of whole seconds is exact.
  let now = Math.ceil(performance.now());
  t.mock.method(performance, 'now', () => now);
  return (seconds) => {
    now += seconds * 1_000;
  };
}

/** Longer than any test. */
const NEVER_MS = 2 ** 31 - 1;

/**
 * Lets the test say when time limits of this length are over, until it ends: by themselves they
 * never are, so that a slow machine reaches none of them. Other timers go on.
 * @returns ends those under way, and says how many these were
 */
export function holdTimers(t: TestContext, ms: number): () => number {
  const held = new Map<unknown, () => void>();
  const { setTimeout: start, clearTimeout: stop } = globalThis;
  const { timeout: createSignal } = AbortSignal;
  type Work = (...values: unknown[]) => void;
  t.mock.method(globalThis, 'setTimeout', (work: Work, length?: number, ...values: unknown[]) => {
    if (length !== ms) return start(work, length, ...values);
    const timer = start(() => {}, NEVER_MS).unref();
    held.set(timer, () => work(...values));
    return timer;
  });
  t.mock.method(globalThis, 'clearTimeout', (timer?: NodeJS.Timeout) => {
    held.delete(timer);
    stop(timer);
  });
  t.mock.method(AbortSignal, 'timeout', (length: number) => {
    if (length !== ms) return createSignal(length);
    const limit = new AbortController();
    held.set(limit, () => limit.abort());
    return limit.signal;
  });
  return () => {
    const ends = [...held.values()];
    held.clear();
    for (const end of ends) end();
    return ends.length;
  };
}
