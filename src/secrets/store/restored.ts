import type { Sql } from '../../db/pool.ts';
import { noContent, readable } from '../store.ts';

/**
 * Deletes the secrets that may have been used up since a backup: those with a limit of reads, or all.
 * @returns how many
 */
export const deleteRestored = async (sql: Sql, all: boolean): Promise<number> =>
  (
    await sql`
  update secrets.secrets set ${noContent(sql)}, ending = 'deleted', ended_at = now()
  where ${readable(sql)} and (max_reads is not null or ${all})`
  ).count;

/** A token that was revoked or replaced since the backup is active again. @returns how many are now revoked */
export const revokeRestored = async (sql: Sql): Promise<number> =>
  (
    await sql`
  update secrets.tokens set revoked_at = now(), previous_digest = null where revoked_at is null`
  ).count;
