import type { Sql } from './pool.ts';
import { type Limit, stateOf, type ThrottleState, upsert } from './throttle.ts';

const KNOWN_SECONDS = 90 * 86_400;

/** Counts a failure under each limit, within a transaction. */
export async function countFailure(sql: Sql, schema: string, limits: readonly Limit[]): Promise<ThrottleState> {
  for (const limit of limits) await sql`${upsert(sql, schema, limit)}`;
  return stateOf(sql, schema, limits);
}

/** A success clears the key's failures and makes it known. */
export async function clearFailures(sql: Sql, schema: string, key: Buffer): Promise<void> {
  await sql`
    insert into ${sql(schema)}.throttles (key, attempts, window_ends_at, known_until)
    values (${key}, 0, now(), now() + make_interval(secs => ${KNOWN_SECONDS}::int4))
    on conflict (key) do update set attempts = 0, window_ends_at = excluded.window_ends_at, blocked_until = null,
      was_blocked = false, known_until = excluded.known_until`;
}
