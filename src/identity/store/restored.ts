import type { Sql } from '../../db/pool.ts';
import { audited, COMMAND_LINE } from './audit.ts';
import { endSessions } from './sessions.ts';

/**
 * Ends what was valid at the time of a backup and may have ended since: all sessions, recovery codes, which may have
 * been used, and, if asked for, API keys.
 */
export async function endRestored(sql: Sql, withKeys: boolean) {
  await sql`select from identity.global_revocation for update`;
  const sessions = await endSessions(sql, COMMAND_LINE, null);
  const entry = { event: 'key.revoked', actor: COMMAND_LINE, detail: 'after a restore' } as const;
  const keys = withKeys
    ? await audited(
        sql,
        entry,
        sql`
        update identity.api_keys set revoked = true, updated_at = now()
        where not revoked and deleted_at is null returning id, user_id`,
      )
    : [];
  await sql`delete from identity.pending_sign_ins`;
  const codes = await sql`delete from identity.recovery_codes`;
  return { sessions, keys: keys.length, codes: codes.count };
}
