import { randomUUID } from 'node:crypto';
import { digest, randomToken } from '../../crypto/token.ts';
import type { Database } from '../../db/pool.ts';
import { type Caller, PREFIX } from '../caller.ts';

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

/** @returns its id, and the token itself, which is not stored */
export async function createToken(
  database: Database,
  { name, role }: Pick<Token, 'name' | 'role'>,
) {
  const [id, token] = [randomUUID(), PREFIX + randomToken()];
  await database.write(
    (sql) => sql`insert into secrets.tokens ${sql({ id, name, role, digest: digest(token) })}`,
  );
  return { id, token };
}

export const listTokens = (database: Database) =>
  database.list(
    (sql) => sql<Token[]>`
    select id, name, role, created_at, revoked_at,
      case when revoked_at is null and previous_until > now() then previous_until end as previous_until
    from secrets.tokens order by created_at, id`,
  );

/**
 * The old token stays valid for `overlap` seconds, and one before it ends.
 * @returns the new one, or null if no active token has this id
 */
export async function rotateToken(
  database: Database,
  id: string,
  overlap: number,
): Promise<string | null> {
  const token = PREFIX + randomToken();
  const { count } = await database.write(
    (sql) => sql`
    update secrets.tokens set previous_digest = digest, previous_until = now() + make_interval(secs => ${overlap}),
      digest = ${digest(token)} where id = ${id} and revoked_at is null`,
  );
  return count === 1 ? token : null;
}

/** Idempotent. @returns whether the token exists */
export const revokeToken = async (database: Database, id: string): Promise<boolean> =>
  (
    await database.write(
      (sql) => sql`
    update secrets.tokens set revoked_at = coalesce(revoked_at, now()), previous_digest = null
    where id = ${id}`,
    )
  ).count === 1;
