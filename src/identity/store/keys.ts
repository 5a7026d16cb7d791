import { alignToKeys, batched, hexArrayLiteral } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import type { ApiKey } from '../model.ts';
import { type Actor, audited, isAllowed } from './audit.ts';
import { countRows, idsOfPage, type JoinedUser, joinedUser, type Page, type PageOf, userOf } from './rows.ts';

const keyColumns = (sql: Sql): Fragment => sql`
  k.id, k.key_prefix, k.name, k.user_id, k.revoked, k.expires_at, coalesce(k.expires_at <= now(), false) as expired,
  k.last_used_at, coalesce(k.last_used_at < now() - interval '1 minute', true) as last_seen_is_old,
  k.created_at, k.updated_at, k.deleted_at, ${joinedUser(sql)}`;

type KeyRow = Omit<ApiKey, 'user'> & JoinedUser;
const keyOf = (row: KeyRow): ApiKey => ({ ...row, user: row.u_id ? userOf(row) : null });

export type KeyRequest = Readonly<{ name: string; userId: string | null; expiresAt: Date | null }>;
type NewKey = KeyRequest & Readonly<{ id: string; digest: Buffer; prefix: string }>;

/** @returns false if the user is gone, or the key would have expired already by the database's clock */
export async function insertKey(database: Database, actor: Actor, key: NewKey): Promise<boolean> {
  const rows = await database.write((sql) => {
    const { id, userId, expiresAt } = key;
    return audited(sql, { event: 'key.created', actor, target: userId }, sql`
      insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, expires_at)
      select ${id}::uuid, ${key.digest}::bytea, ${key.prefix}::text, ${key.name}::text, ${userId}::uuid,
        ${expiresAt}::timestamptz
      where ${isAllowed(sql)} and coalesce(${expiresAt}::timestamptz > now(), true) returning id, user_id`);
  });
  return rows.length === 1;
}

/** By the digest in hexadecimal. */
export const findKeyByDigest = batched(
  async (database: Database, digests: readonly string[]): Promise<Array<ApiKey | null>> => {
    const rows = await database.read((sql) => sql<Array<KeyRow & { digest: string }>>`
      select encode(k.key_digest, 'hex') as digest, ${keyColumns(sql)}
      from identity.api_keys k left join identity.users u on u.id = k.user_id
      where k.key_digest = any (${hexArrayLiteral(digests)}::text::bytea[]) and k.deleted_at is null`);
    return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && keyOf(row));
  },
);

export async function findKeyById(database: Database, id: string): Promise<ApiKey | null> {
  const [row] = await database.read((sql) => sql<KeyRow[]>`
    select ${keyColumns(sql)} from identity.api_keys k left join identity.users u on u.id = k.user_id
    where k.id = ${id} and k.deleted_at is null`);
  return row ? keyOf(row) : null;
}

/** Newest first, of one user or (null) of all. */
export function listKeys(database: Database, page: Page, userId: string | null): Promise<PageOf<ApiKey>> {
  return database.list(async (sql) => {
    const where = sql`x.deleted_at is null ${userId === null ? sql`` : sql`and x.user_id = ${userId}`}`;
    const table = sql`identity.api_keys`;
    const rows = await sql<KeyRow[]>`
      select ${keyColumns(sql)} from (${idsOfPage(sql, table, where, page)}) page
      join ${table} k on k.id = page.id left join identity.users u on u.id = k.user_id
      order by k.created_at desc, k.id desc`;
    return { rows: rows.map(keyOf), total: await countRows(sql, table, where) };
  });
}

/** @returns 1, or 0 if it was revoked before */
export async function revokeKey(
  database: Database, actor: Actor, { id, user_id: target }: Pick<ApiKey, 'id' | 'user_id'>,
): Promise<number> {
  const rows = await database.write((sql) => audited(sql, { event: 'key.revoked', actor, target }, sql`
    update identity.api_keys set revoked = true, updated_at = now()
    where id = ${id} and deleted_at is null and not revoked and ${isAllowed(sql)} returning id, user_id`));
  return rows.length;
}
