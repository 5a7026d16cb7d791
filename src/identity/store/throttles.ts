import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { clearFailures, countFailure, type Limit, type ThrottleState } from '../../db/throttle.ts';
import { SCHEMA } from '../migrations.ts';
import { type AuditEntry, audited } from './audit.ts';

/** Keys the digests in the table. */
export async function readThrottleSecret(database: Database): Promise<Buffer> {
  const [row] = await database.read((sql) => sql<[{ secret: Buffer }]>`select secret from identity.throttle_secret`);
  return row.secret;
}

/** Counts a failure under all limits, with its row in the trail, and a row for the delay that begins. */
export async function recordFailure(
  database: Database, entry: AuditEntry, userId: string | null, limits: readonly Limit[],
): Promise<ThrottleState> {
  const subject = (sql: Sql) => sql`select ${userId}::uuid as id, ${userId}::uuid as user_id`;
  const [counted] = await database.write((sql) => {
    const { parts, state } = countFailure(sql, SCHEMA, limits);
    return audited<ThrottleState>(sql, entry, subject(sql), parts, state);
  });
  if (!counted) throw new Error('internal error: the throttle returned no state');
  const delay = { event: 'login.throttled', actor: entry.actor, detail: `for ${Math.ceil(counted.wait)} s` } as const;
  // None for attempts during the delay: attackers could fill the disk.
  if (counted.wait > 0) await database.write((sql) => audited(sql, delay, subject(sql)));
  return counted;
}

/** Part of an audited statement: a right password clears the failures under this key, if there is a change. */
export const cleared = (sql: Sql, key: Buffer): Fragment =>
  sql`, cleared as (${clearFailures(sql, SCHEMA, key, sql`exists (select from change)`)})`;
