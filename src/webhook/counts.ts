import type { Database } from '../db/pool.ts';
import { type Bar, countByStatus, readBars } from './store/inbox.ts';
import type { Status } from './store/events.ts';

/** Events by status, and those of the last hour and day. */
export interface EventCounts {
  readonly counts: Readonly<Record<Status, number>>;
  readonly minutes: Bar[];
  readonly hours: Bar[];
}

/** A count is used for this time, and for 20 times as long as it took: counting takes a twentieth of a connection. */
const [USED_MS, USED_RATIO] = [2_000, 20];

/** @returns a function that counts the events. Calls share one count, however many operators look at the inbox */
export function createCounter(database: Database): () => Promise<EventCounts> {
  let [usedUntil, shared]: [number, Promise<EventCounts> | null] = [-Infinity, null];
  async function count(): Promise<EventCounts> {
    const startedAt = performance.now();
    try {
      const counts = await countByStatus(database);
      const [minutes, hours] = [await readBars(database, 'minute', 60), await readBars(database, 'hour', 24)];
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
