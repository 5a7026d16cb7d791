import type { Database, Sql } from '../../db/pool.ts';
import type { Caller } from '../caller.ts';

export type Token = Readonly<{
  id: string;
  name: string;
  role: 'sender' | 'operator';
  created_at: Date;
  revoked_at: Date | null;
  previous_until: Date | null;
}>;

/** By the digest of a token, or of the one that it has replaced while that is still valid. */
export async function findToken(database: Database, sent: Buffer): Promise<Caller | null> {
  const [row] = await database.read(
    (sql) => sql<Array<Pick<Token, 'id' | 'role'>>>`
    select id, role from secrets.tokens where revoked_at is null
      and (digest = ${sent} or (previous_digest = ${sent} and previous_until > now()))`,
  );
  return row ? { role: row.role, creator: `token:${row.id}` } : null;
}

export const listTokens = (database: Database) =>
  database.list(
    (sql) => sql<Token[]>`
    select id, name, role, created_at, revoked_at,
      case when revoked_at is null and previous_until > now() then previous_until end
        as previous_until
    from secrets.tokens order by created_at, id`,
  );

/** A token that was revoked or replaced since the backup is active again. */
export const revokeRestored = (sql: Sql) =>
  sql`update secrets.tokens set revoked_at = now() where revoked_at is null`;
