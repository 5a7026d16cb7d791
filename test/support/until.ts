import { setTimeout as sleep } from 'node:timers/promises';

/** For a test that waits for other processes: it ends if it fails, and stops what it started. */
export const bounded = { timeout: 240_000 };

/**
 * Waits for another process. The limit only keeps a broken test from waiting for ever.
 * @param what is missing, as text or as a function for what is known only at the end
 */
export async function until(
  condition: () => boolean,
  what: string | (() => string) = condition.toString(),
): Promise<void> {
  const limit = Date.now() + 120_000;
  while (!condition()) {
    const text = () => (typeof what === 'string' ? what : what());
    if (Date.now() > limit) throw new Error(`timed out waiting for ${text()}`);
    await sleep(5);
  }
}
