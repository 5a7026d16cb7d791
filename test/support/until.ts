import { setTimeout as sleep } from 'node:timers/promises';

/** For a test that waits for other processes: it ends if it fails, and stops what it started. */
export const bounded = { timeout: 60_000 };

/** Waits for another process. The limit only keeps a broken test from waiting for ever. */
export async function until(condition: () => boolean, what = condition.toString()): Promise<void> {
  const limit = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > limit) throw new Error(`timed out waiting for ${what}`);
    await sleep(5);
  }
}
