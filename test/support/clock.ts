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
