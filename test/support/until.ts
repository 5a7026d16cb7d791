import { setTimeout as sleep } from 'node:timers/promises';

/** For a test that waits for other processes: it ends if it fails, and stops what it started. */
export const bounded = { timeout: 240_000 };

/** Only keeps a broken test from waiting for ever. */
const LIMIT_MS = 120_000;
const LONGEST_PAUSE_MS = 50;

/**
 * Waits before the next look. The pauses grow, because each look costs processor time: in a long
 * wait, by a twentieth of the time waited so far.
 * @param begun when the wait began, by `Date.now()`
 * @param what is missing
 */
export async function pause(begun: number, what: () => string): Promise<void> {
  const waited = Date.now() - begun;
  if (waited > LIMIT_MS) throw new Error(`timed out waiting ${what()}`);
  await sleep(Math.min(5 + waited / 20, LONGEST_PAUSE_MS));
}

/**
 * Waits for another process.
 * @param what is missing, as text or as a function for what is known only at the end
 */
export async function until(
  condition: () => boolean,
  what: string | (() => string) = condition.toString(),
): Promise<void> {
  const begun = Date.now();
  const missing = () => `for ${typeof what === 'string' ? what : what()}`;
  while (!condition()) await pause(begun, missing);
}
