import type { Database } from '../../db/pool.ts';
import { countFailure, type Limit } from '../../db/throttle.ts';
import { SCHEMA } from '../migrations.ts';
import { type AuditEntry, insertAudit } from './audit.ts';

/** Keys the digests in the table. */
export async function readThrottleSecret(database: Database): Promise<Buffer> {
  const [row] = await database.read((sql) => sql<[{ secret: Buffer }]>`select secret from identity.throttle_secret`);
  return row.secret;
}

/** Counts a failure under all limits, with its row in the trail, and a row for the delay that begins. */
export function recordFailure(database: Database, entry: AuditEntry, userId: string | null, limits: readonly Limit[]) {
  const subject = { userId, targetId: userId, count: 1 };
  return database.transaction(async (sql) => {
    const state = await countFailure(sql, SCHEMA, limits);
    await insertAudit(sql, entry, subject);
    const delay = { event: 'login.throttled', actor: entry.actor, detail: `for ${Math.ceil(state.wait)} s` } as const;
    // None for attempts during the delay: attackers could fill the disk.
    if (state.wait > 0) await insertAudit(sql, delay, subject);
    return state;
  });
}
