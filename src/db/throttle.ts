import { createHmac } from 'node:crypto';
import { arrayLiteral } from './batch.ts';
import type { Database, Fragment, Sql } from './pool.ts';

/**
 * A limit on the attempts under one key.
 * - `window`: so many `attempts`, at least 2, in a window of `seconds` that begins with the first one.
 * - `consecutive`: after so many failures in a row, the next attempt waits 15 s, doubled with each further failure, at
 *   most 15 min. A success, or `seconds` without a failure, resets the count.
 */
export type Limit = Readonly<{
  key: Buffer;
  mode: 'window' | 'consecutive';
  attempts: number;
  seconds: number;
}>;

export interface ThrottleState {
  readonly wait: number; // seconds until the next attempt is allowed; 0 if it is allowed now
  readonly was_blocked: boolean; // concurrent attempts had used up the limit before the one just counted
  /** Whether a success is recorded. Windows do not apply then: attackers cannot lock the owner out (ASVS 6.1.1). */
  readonly known: boolean;
}

const [FIRST_DELAY, MAX_DELAY] = [15, 900];
const KNOWN_SECONDS = 90 * 86_400;

/** The table stores only keyed digests: it does not disclose what was tried. Different parts have different keys. */
export const throttleKey = (secret: string | Buffer, parts: readonly string[]): Buffer =>
  createHmac('sha256', secret).update(JSON.stringify(parts)).digest();

/** The strictest of the limits. */
async function stateOf(sql: Sql, schema: string, limits: readonly Limit[]): Promise<ThrottleState> {
  const [keys, modes] = [
    arrayLiteral(limits.map(({ key }) => key)),
    arrayLiteral(limits.map(({ mode }) => mode)),
  ];
  const [state] = await sql<[ThrottleState]>`
    select greatest(0, max(extract(epoch from blocked_until - now())))::float8 as wait,
      coalesce(bool_or(was_blocked), false) as was_blocked, coalesce(bool_or(known), false) as known
    from (select *, bool_or(known_until > now()) over () as known
      from unnest(${keys}::text::bytea[], ${modes}::text::text[]) as given (key, mode)
        join ${sql(schema)}.throttles using (key)) as rows
    where mode = 'consecutive' or known is not true`;
  return state;
}

/** Counts nothing. */
export const readThrottle = (
  db: Database,
  schema: string,
  limits: readonly Limit[],
): Promise<ThrottleState> => db.read((sql) => stateOf(sql, schema, limits));

/** One upsert, so that no concurrent attempt is lost. */
export function upsert(
  sql: Sql,
  schema: string,
  { key, mode, attempts, seconds }: Limit,
): Fragment {
  const live = sql`t.window_ends_at > now()`;
  const count = sql`(case when ${live} then t.attempts else 0 end + 1)`;
  // The exponent is bounded because 2 ^ 1024 is an error.
  const delay = sql`least(${MAX_DELAY}::int4, ${FIRST_DELAY}::int4 * 2 ^ least(${count} - ${attempts}::int4, 10))`;
  const [end, blockedUntil] =
    mode === 'window'
      ? [
          sql`case when ${live} then t.window_ends_at else excluded.window_ends_at end`,
          sql`t.window_ends_at`,
        ]
      : [sql`excluded.window_ends_at`, sql`now() + make_interval(secs => ${delay})`];
  return sql`
    insert into ${sql(schema)}.throttles as t (key, attempts, window_ends_at)
    values (${key}, 1, now() + make_interval(secs => ${seconds}::int4))
    on conflict (key) do update set attempts = ${count}, window_ends_at = ${end},
      blocked_until = case when ${count} >= ${attempts}::int4 then ${blockedUntil} end,
      was_blocked = coalesce(t.blocked_until > now(), false)`;
}

/** Counts a failure under each limit, within a transaction. */
export async function countFailure(
  sql: Sql,
  schema: string,
  limits: readonly Limit[],
): Promise<ThrottleState> {
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
