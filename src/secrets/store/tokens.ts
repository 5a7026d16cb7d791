import type { Database } from '../../db/pool.ts';
import type { Caller } from '../caller.ts';

export interface Token {
  readonly id: string;
  readonly name: string;
  readonly role: 'sender' | 'operator';
  readonly created_at: Date;
  readonly revoked_at: Date | null;
  readonly previous_until: Date | null;
}

/** By the digest of a token, or of the one that it has replaced while that is still valid. */
export async function findToken(database: Database, digest: Buffer): Promise<Caller | null> {
  const [row] = await database.read((sql) => sql<Array<Pick<Token, 'id' | 'role'>>>`
    select id, role from secrets.tokens where revoked_at is null
      and (digest = ${digest} or (previous_digest = ${digest} and previous_until > now()))`);
  return row ? { role: row.role, creator: `token:${row.id}` } : null;
}

type NewToken = Pick<Token, 'id' | 'name' | 'role'> & Readonly<{ digest: Buffer }>;

export const insertToken = (database: Database, token: NewToken) =>
  database.write((sql) => sql`insert into secrets.tokens ${sql({ ...token })}`);

export const listTokens = (database: Database) =>
  database.list((sql) => sql<Token[]>`
    select id, name, role, created_at, revoked_at,
      case when revoked_at is null and previous_until > now() then previous_until end as previous_until
    from secrets.tokens order by created_at, id`);

/** The old token stays valid for `overlap` seconds, and one before it ends. @returns whether the token is active */
export async function replaceToken(database: Database, id: string, digest: Buffer, overlap: number): Promise<boolean> {
  const { count } = await database.write((sql) => sql`
    update secrets.tokens set previous_digest = digest, previous_until = now() + make_interval(secs => ${overlap}),
      digest = ${digest} where id = ${id} and revoked_at is null`);
  return count === 1;
}

/** Idempotent. @returns whether the token exists */
export async function revokeToken(database: Database, id: string): Promise<boolean> {
  const { count } = await database.write((sql) => sql`
    update secrets.tokens set revoked_at = coalesce(revoked_at, now()), previous_digest = null where id = ${id}`);
  return count === 1;
}
