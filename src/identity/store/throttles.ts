import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { clearFailures, countFailure, type Limit, type ThrottleState } from '../../db/throttle.ts';
import { SCHEMA } from '../migrations.ts';
import { audited, type AuditEntry } from './audit.ts';

/** Keys the digests in the table. */
export async function readThrottleSecret(database: Database): Promise<Buffer> {
  const [row] = await database.read((sql) => sql<[{ secret: Buffer }]>`select secret from identity.throttle_secret`);
  return row.secret;
}

/** Counts a failure under all limits, with its row in the trail. */
export async function recordFailure(
  database: Database, entry: AuditEntry, userId: string | null, limits: readonly Limit[],
): Promise<ThrottleState> {
  const [state] = await database.write((sql) => {
    const { parts, state } = countFailure(sql, SCHEMA, limits);
    return audited<ThrottleState>(sql, entry, sql`select ${userId}::uuid as id, ${userId}::uuid as user_id`, parts, state);
  });
  if (!state) throw new Error('internal error: the throttle returned no state');
  return state;
}

/** Part of an audited statement: a right password clears the failures under this key, if there is a change. */
export const cleared = (sql: Sql, key: Buffer): Fragment =>
  sql`, cleared as (${clearFailures(sql, SCHEMA, key, sql`exists (select from change)`)})`;
