import type { Sql } from '../../db/pool.ts';

/** Revokes the tokens, which may have been revoked or replaced since a backup. @returns how many of each role */
export function revokeRestored(sql: Sql, withSenders: boolean): Promise<Array<{ role: string; revoked: number }>> {
  return sql<Array<{ role: string; revoked: number }>>`
    with revoked as (
      update webhook.tokens set revoked_at = now()
      where revoked_at is null and (role <> 'sender' or ${withSenders}) returning role)
    select role, count(*)::int as revoked from revoked group by role order by role`;
}
