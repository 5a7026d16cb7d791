/** Work that Unicode normalization is given, counted instead of timed. */
import { mock } from 'node:test';

/**
 * For texts with a run of combining marks, the time grows with the square of the run.
 * @returns the longest run of combining marks in any text that is normalized meanwhile
 */
export async function longestRunNormalized(work: () => unknown): Promise<number> {
  const { normalize } = String.prototype;
  let longest = 0;
  const watch = mock.method(
    String.prototype,
    'normalize',
    function watched(this: string, form?: string) {
      // `match`, not a pattern with a limit: its own work is linear.
      for (const [run] of String(this).matchAll(/[\p{M}\uff9e\uff9f]+/gu))
        longest = Math.max(longest, run.length);
      return normalize.call(this, form);
    },
  );
  try {
    await work();
  } finally {
    watch.mock.restore();
  }
  return longest;
}

/** Two classes of marks, in the order that takes the most work to sort: 1,023 characters. */
export const LONG_RUN = '\u0344'.repeat(512) + '\u0323'.repeat(511);
