import { test as runTest, type TestContext } from 'node:test';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';

const TEST_LIMIT_MS = 240_000;

/**
 * A test that waits for other processes: it ends if it fails, and stops what it started.
 * @param skip why it cannot run here
 */
export function test(
  name: string,
  work: (t: TestContext) => Promise<void> | void,
  skip: string | false = false,
): void {
  void runTest(name, { timeout: TEST_LIMIT_MS, skip }, work);
}

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

/** A promise that the test resolves. */
export function latch(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

/**
 * A few turns of the event loop, so that what runs at the same time has another order each time.
 */
export async function someTurns(): Promise<void> {
  for (let left = Math.random() * 5; left > 1; left -= 1) await turn();
}
