import type { Sql } from '../../db/pool.ts';
import { countAttempt, type Limit, throttleState } from '../../db/throttle.ts';
import { SCHEMA } from '../migrations.ts';

/** Counts a failure under each limit, within a transaction. */
export async function countFailure(sql: Sql, limits: readonly Limit[]) {
  for (const limit of limits) await countAttempt(sql, SCHEMA.name, limit);
  return throttleState(sql, SCHEMA.name, limits);
}

/** A success clears the key's failures and makes it known. */
export async function clearFailures(sql: Sql, key: Buffer) {
  await sql`
    insert into identity.throttles (key, attempts, window_ends_at, known_until)
    values (${key}, 0, now(), now() + interval '90 days')
    on conflict (key) do update set attempts = 0, window_ends_at = excluded.window_ends_at,
      blocked_until = null, was_blocked = false, known_until = excluded.known_until`;
}
