import type { Sql } from './pool.ts';

/** By how much the clock of the server is ahead of this machine's, and how exactly. */
export async function compareClocks(sql: Sql) {
  const before = performance.now();
  const [clock] = await sql<[{ now: number }]>`
    select extract(epoch from clock_timestamp())::float8 * 1000 as now`;
  const uncertaintyMs = (performance.now() - before) / 2;
  // Not `performance.timeOrigin`, which does not follow a clock that is set.
  return { aheadMs: clock.now - (Date.now() - uncertaintyMs), uncertaintyMs };
}
