import type { Database } from '../db/pool.ts';
import { countByStatus, readBars } from './store/inbox.ts';

/** A count is used for this time, and for 20 times as long as it took: counting takes a twentieth of a connection. */
const [USED_MS, USED_RATIO] = [2_000, 20];

/**
 * @returns a function that counts the events by status, and over the last hour and day. Calls share one count,
 * however many operators look at the inbox
 */
export function createCounter(database: Database) {
  let [usedUntil, shared]: [number, ReturnType<typeof count> | null] = [-Infinity, null];
  async function count() {
    const startedAt = performance.now();
    try {
      const counts = await countByStatus(database);
      const [minutes, hours] = [
        await readBars(database, 'minute', 60),
        await readBars(database, 'hour', 24),
      ];
      return { counts, minutes, hours };
    } finally {
      const now = performance.now();
      usedUntil = now + Math.max(USED_MS, USED_RATIO * (now - startedAt));
    }
  }
  return () => {
    if (shared && performance.now() < usedUntil) return shared;
    usedUntil = Infinity;
    return (shared = count());
  };
}
