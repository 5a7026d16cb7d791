import { createHmac } from 'node:crypto';
import { arrayLiteral, removeBatch } from './sql.ts';
import type { Database, Sql } from './pool.ts';

/**
 * A limit on the attempts under one key.
 * - `window`: so many `attempts`, at least 2, in a window of `seconds` that begins with the first
 *   one.
 * - `consecutive`: after so many failures in a row, the next attempt waits 15 s, doubled with each
 *   further failure, at most 15 min. A success, or `seconds` without a failure, resets the count.
 */
export type Limit = Readonly<{
  key: Buffer;
  mode: 'window' | 'consecutive';
  attempts: number;
  seconds: number;
}>;

/** A limit, or the key of a success (`known`), which limits nothing. */
export type ThrottleRow = Readonly<{ key: Buffer; mode: Limit['mode'] | 'known' }>;

export interface ThrottleState {
  readonly wait: number; // seconds until the next attempt is allowed; 0 if it is allowed now
  /** Whether concurrent attempts had used up the limit before the one that was just counted. */
  readonly was_blocked: boolean;
  /**
   * Whether a success is recorded. Windows do not apply then: attackers cannot lock the owner out
   * (ASVS 6.1.1).
   */
  readonly known: boolean;
}

/**
 * The table stores only keyed digests: it does not disclose what was tried. Different parts have
 * different keys.
 */
export const throttleKey = (secret: string | Buffer, parts: readonly string[]) =>
  createHmac('sha256', secret).update(JSON.stringify(parts)).digest();

/** The strictest of the limits. */
export async function throttleState(sql: Sql, schema: string, limits: readonly ThrottleRow[]) {
  // Not as JSON: PostgreSQL would expect a hundred rows of it, and read the whole table.
  const keys = arrayLiteral(limits.map(({ key }) => key));
  const modes = arrayLiteral(limits.map(({ mode }) => mode));
  const [state] = await sql<[ThrottleState]>`
    select greatest(0, max(extract(epoch from blocked_until - now())))::float8 as wait,
      coalesce(bool_or(was_blocked), false) as was_blocked, coalesce(bool_or(known), false) as known
    from (select *, bool_or(known_until > now()) over () as known
      from unnest(${keys}::text::bytea[], ${modes}::text::text[]) as given (key, mode)
        join ${sql(schema)}.throttles using (key)) as rows
    where mode <> 'window' or known is not true`;
  return state;
}

/** Counts nothing. */
export const readThrottle = (db: Database, schema: string, limits: readonly ThrottleRow[]) =>
  db.read((sql) => throttleState(sql, schema, limits));

/**
 * One upsert, so that no concurrent attempt is lost. A fixed window ends once, and blocks until
 * then. Each further failure in a row begins another window and another delay, whose exponent is
 * bounded because 2 ^ 1024 is an error.
 */
export const countAttempt = (
  sql: Sql,
  schema: string,
  { key, mode, attempts, seconds }: Limit,
) => sql`
  insert into ${sql(schema)}.throttles as t (key, attempts, window_ends_at)
  values (${key}, 1, now() + make_interval(secs => ${seconds}::int4))
  on conflict (key) do update
  set (attempts, window_ends_at, blocked_until, was_blocked) = (
    select counted,
      case when is_fixed then t.window_ends_at else excluded.window_ends_at end,
      case
        when counted < ${attempts}::int4 then null
        when is_fixed then t.window_ends_at
        else now() + make_interval(
          secs => least(900, 15 * 2 ^ least(counted - ${attempts}::int4, 10)))
      end,
      coalesce(t.blocked_until > now(), false)
    from (
      select case when t.window_ends_at > now() then t.attempts else 0 end + 1 as counted,
        t.window_ends_at > now() and ${mode === 'window'} as is_fixed
    ) as state
  )`;

/**
 * Counts an attempt before it is made, if there is one left.
 * @returns 0 if it was counted, otherwise the seconds until the next attempt is allowed
 */
export async function takeAttempt(db: Database, schema: string, limit: Limit) {
  const taken = await db.write(
    (sql) => sql`
      ${countAttempt(sql, schema, limit)}
      where (t.blocked_until > now()) is not true`,
  );
  if (taken.count === 1) return 0;
  const { wait } = await readThrottle(db, schema, [limit]);
  // The wait may have ended since. The attempt was not counted all the same.
  return Math.max(1, wait);
}

/** Undoes `takeAttempt` for attempts that did not fail. */
export async function giveBackAttempts(db: Database, schema: string, keys: readonly Buffer[]) {
  await db.write(
    (sql) => sql`
    update ${sql(schema)}.throttles
    set attempts = attempts - 1, blocked_until = null
    where attempts > 0
      and key = any(${arrayLiteral(keys)}::text::bytea[])`,
  );
}

/** Removes rows that no longer count. @returns how many; at most `max` */
export const removeForgotten = (db: Database, schema: string, max: number) =>
  removeBatch(db, `${schema}.throttles`, 'key', (sql) => {
    const end = sql`greatest(window_ends_at, known_until)`;
    return sql`
      select key
      from ${sql(schema)}.throttles
      where ${end} <= now()
      order by ${end}
      limit ${max}`;
  });
