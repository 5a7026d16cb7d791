import { setTimeout as sleep } from 'node:timers/promises';

/** For a test that waits for other processes: where it fails, it ends, and what it started ends with it. */
export const bounded = { timeout: 60_000 };

/** Waits for what another process does. The limit only keeps a broken test from waiting for ever. */
export async function until(condition: () => boolean, what = condition.toString()): Promise<void> {
  const limit = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > limit) throw new Error(`waited in vain for ${what}`);
    await sleep(5);
  }
}
