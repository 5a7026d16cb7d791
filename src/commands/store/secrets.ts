import type { Database, Sql } from '../../platform/db/pool.ts';
import { openSql, withdrawnSql } from '../../secrets/store/requests.ts';
import { noContentSql, readableSql } from '../../secrets/store/secrets.ts';

export type Token = Readonly<{
  id: string;
  name: string;
  role: 'sender' | 'operator';
  created_at: Date;
  revoked_at: Date | null;
  previous_until: Date | null;
}>;

export const listTokens = (database: Database) =>
  database.list(
    (sql) => sql<Token[]>`
    select id, name, role, created_at, revoked_at,
      case when revoked_at is null and previous_until > now() then previous_until end
        as previous_until
    from secrets.tokens
    order by created_at, id`,
  );

/** A token that was revoked or replaced since the backup is active again. */
export const revokeRestored = (sql: Sql) =>
  sql`update secrets.tokens set revoked_at = now() where revoked_at is null`;

/**
 * Deletes the secrets that may have been used up since a backup: those with a limit of reads, or
 * all.
 */
export const deleteRestored = (sql: Sql, all: boolean) => sql`
  update secrets.secrets
  set ${noContentSql(sql)}, ending = 'deleted', ended_at = now()
  where ${readableSql(sql)}
    and (max_reads is not null or ${all})`;

/** A request that was answered or withdrawn since the backup is open again. */
export const withdrawRestored = (sql: Sql) => sql`
  update secrets.requests set ${withdrawnSql(sql)}
  where ${openSql(sql)}`;
