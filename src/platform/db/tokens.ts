import type { Database, Sql } from './pool.ts';

/** A new row of a table `tokens`. The token itself is not stored. */
export type NewToken = Readonly<{
  id: string;
  name: string;
  role: 'sender' | 'operator';
  digest: Buffer;
}>;

export const insertToken = (sql: Sql, schema: string, token: NewToken) =>
  sql`insert into ${sql(schema)}.tokens ${sql(token)}`;

/**
 * Replaces an active token. The old one stays valid for `overlap` seconds, and one before it ends.
 * @param digest of the new token
 * @returns whether there is an active token with this id
 */
export async function replaceToken(
  database: Database,
  schema: string,
  id: string,
  digest: Buffer,
  overlap: number,
) {
  const { count } = await database.write(
    (sql) => sql`
    update ${sql(schema)}.tokens
    set previous_digest = digest,
      previous_until = now() + make_interval(secs => ${overlap}), digest = ${digest}
    where id = ${id} and revoked_at is null`,
  );
  return count === 1;
}

/**
 * Idempotent: the time of the first revocation is kept.
 * @returns whether the token exists
 */
export async function revokeToken(database: Database, schema: string, id: string) {
  const { count } = await database.write(
    (sql) => sql`
    update ${sql(schema)}.tokens
    set revoked_at = coalesce(revoked_at, now())
    where id = ${id}`,
  );
  return count === 1;
}
