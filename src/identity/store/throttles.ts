import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { type FailureCount, KNOWN_SECONDS, THROTTLES } from '../rules.ts';
import { audited, type AuditEntry } from './audit.ts';

/** One row of the throttles for each scope, by its keyed digest. */
export type ThrottleKeys = Readonly<Record<keyof typeof THROTTLES, Buffer>>;

/** What keys the digests; made with the table, so that all replicas have the same. */
export async function readThrottleSecret(database: Database): Promise<Buffer> {
  const [row] = await database.read((sql) => sql<[{ secret: Buffer }]>`select secret from identity.throttle_secret`);
  return row.secret;
}

const asked = (sql: Sql, { pair, account, network }: ThrottleKeys): Fragment => sql`
  (values
    ('pair', ${pair}::bytea, ${THROTTLES.pair.limit}::int, ${THROTTLES.pair.seconds}::int),
    ('account', ${account}::bytea, ${THROTTLES.account.limit}::int, ${THROTTLES.account.seconds}::int),
    ('network', ${network}::bytea, ${THROTTLES.network.limit}::int, ${THROTTLES.network.seconds}::int)
  ) as asked (scope, key, most, seconds)`;

/** @param without how many of the latest failures are left out */
const counts = (sql: Sql, keys: ThrottleKeys, table: Fragment, without: Fragment): Fragment => sql`
  select asked.scope, skip.n as without, cardinality(t.failures) - skip.n as failures,
    extract(epoch from now() - t.failures[1 + skip.n])::float8 as latest,
    extract(epoch from now() - t.failures[asked.most + skip.n])::float8 as limiting,
    coalesce(t.succeeded_at > now() - make_interval(secs => ${KNOWN_SECONDS}), false) as known
  from ${asked(sql, keys)} join ${table} t on t.key = asked.key cross join (values ${without}) as skip (n)`;

/** What stands against the next attempt. A scope without failures has no row. */
export async function readFailures(database: Database, keys: ThrottleKeys): Promise<FailureCount[]> {
  return database.read((sql) => sql<FailureCount[]>`${counts(sql, keys, sql`identity.throttles`, sql`(0)`)}`);
}

/**
 * Counts a failure in all three scopes, with its line in the trail, in one statement.
 * @returns what stood against this attempt (others may have failed since it was let in), and what stands against the next
 */
export async function countFailure(database: Database, entry: AuditEntry, userId: string | null, keys: ThrottleKeys): Promise<{ before: FailureCount[]; after: FailureCount[] }> {
  const rows = await database.write(async (sql) => {
    const failed = sql`
      insert into identity.throttles as t (key, failures, forget_at)
      select asked.key, array[now()], now() + make_interval(secs => asked.seconds) from ${asked(sql, keys)} order by asked.key
      on conflict (key) do update set
        failures = array(select f from unnest(now() || t.failures) f where f > now() - (excluded.forget_at - now()) order by f desc),
        forget_at = greatest(t.forget_at, excluded.forget_at)
      returning key, failures, succeeded_at`;
    return audited<FailureCount & { without: number }>(
      sql,
      entry,
      sql`select ${userId}::uuid as id, ${userId}::uuid as user_id`,
      sql`, failed as (${failed})`,
      sql`${counts(sql, keys, sql`failed`, sql`(0), (1)`)}`,
    );
  });
  return { before: rows.filter((row) => row.without === 1), after: rows.filter((row) => row.without === 0) };
}

/** A part of a statement: the right password clears the pair's failures, and makes the network a known one. `change` has a row then. */
export const clearing = (sql: Sql, pair: Buffer): Fragment => sql`
  insert into identity.throttles (key, failures, succeeded_at, forget_at)
  select ${pair}::bytea, '{}', now(), now() + make_interval(secs => ${KNOWN_SECONDS}) from change
  on conflict (key) do update set failures = excluded.failures, succeeded_at = excluded.succeeded_at, forget_at = excluded.forget_at`;

/** Removes what no longer counts. @returns how many rows; at most `most` */
export async function removeForgotten(database: Database, most: number): Promise<number> {
  const result = await database.write(
    (sql) => sql`delete from identity.throttles where key in (select key from identity.throttles where forget_at < now() order by forget_at limit ${most})`,
  );
  return result.count;
}
