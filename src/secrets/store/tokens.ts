import type { Database } from '../../platform/db/pool.ts';

/** How named tokens begin: no other token needs the database. */
export const PREFIX = 'share:';

type Token = Readonly<{ id: string; role: 'sender' | 'operator' }>;

/** By the digest of a token, or of the one that it has replaced while that is still valid. */
export async function findToken(database: Database, sent: Buffer) {
  const [row] = await database.read(
    (sql) => sql<Token[]>`
    select id, role
    from secrets.tokens
    where revoked_at is null
      and (digest = ${sent} or (previous_digest = ${sent} and previous_until > now()))`,
  );
  return row ?? null;
}
