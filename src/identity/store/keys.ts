import { hexArrayLiteral, batched, alignToKeys } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { type Page, type Part, spanOf } from '../paging.ts';
import type { ApiKey } from '../rules.ts';
import { type Actor, audited, type AuditEntry } from './audit.ts';
import { counting, idsOf, inOrder, type JoinedUser, joinedUser, totalOf, userOf } from './rows.ts';

const keyColumns = (sql: Sql): Fragment => sql`
  k.id, k.key_prefix, k.name, k.user_id, k.revoked, k.expires_at, coalesce(k.expires_at <= now(), false) as expired,
  k.last_used_at, coalesce(k.last_used_at < now() - interval '1 minute', true) as last_seen_is_old,
  k.created_at, k.updated_at, k.deleted_at, ${joinedUser(sql)}`;

type KeyRow = Omit<ApiKey, 'user'> & JoinedUser;
const keyOf = (row: KeyRow): ApiKey => ({ ...row, user: row.u_id ? userOf(row) : null });

export interface NewKey {
  readonly id: string;
  readonly digest: Buffer;
  readonly prefix: string;
  readonly name: string;
  readonly userId: string | null;
  readonly expiresAt: Date | null;
}

/** The user's row is locked against a deletion under way. @returns false when the key would have expired already, by the database's clock, or its user is gone */
export async function insertKey(database: Database, actor: Actor, key: NewKey): Promise<boolean> {
  const rows = await database.write((sql) =>
    audited(
      sql,
      { event: 'key.created', actor },
      sql`
        insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, expires_at)
        select ${key.id}::uuid, ${key.digest}::bytea, ${key.prefix}::text, ${key.name}::text, ${key.userId}::uuid, ${key.expiresAt}::timestamptz
        ${key.userId === null ? sql`where` : sql`from identity.users u where u.id = ${key.userId} and u.deleted_at is null and`}
          (${key.expiresAt}::timestamptz is null or ${key.expiresAt}::timestamptz > now())
        ${key.userId === null ? sql`` : sql`for share of u`}
        returning id, user_id`,
      sql`, counted as (${counting(sql, 'api_keys', 1)})`,
    ),
  );
  return rows.length === 1;
}

export const findKeyByDigest = batched(
  async (database: Database, keys: readonly Buffer[]): Promise<Array<ApiKey | null>> => {
    const digests = keys.map((key) => key.toString('hex'));
    const rows = await database.read(
      (sql) => sql<Array<KeyRow & { digest: string }>>`
        select encode(k.key_digest, 'hex') as digest, ${keyColumns(sql)}
        from identity.api_keys k left join identity.users u on u.id = k.user_id
        where k.key_digest = any (${hexArrayLiteral(digests)}::text::bytea[]) and k.deleted_at is null`,
    );
    return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && keyOf(row));
  },
);

export async function findKeyById(database: Database, id: string): Promise<ApiKey | null> {
  const [row] = await database.read(
    (sql) => sql<KeyRow[]>`
      select ${keyColumns(sql)} from identity.api_keys k left join identity.users u on u.id = k.user_id
      where k.id = ${id} and k.deleted_at is null`,
  );
  return row ? keyOf(row) : null;
}

/** Newest first, of one user or (null) of all. */
export function listKeys(database: Database, page: Page, userId: string | null): Promise<Part<ApiKey>> {
  return database.list(async (sql) => {
    const total = await totalOf(sql, 'api_keys', { userId });
    const where = userId === null ? sql`x.deleted_at is null` : sql`x.deleted_at is null and x.user_id = ${userId}`;
    const rows = await sql<KeyRow[]>`
      select ${keyColumns(sql)}
      from (${idsOf(sql, sql`identity.api_keys`, where, 'newest first', spanOf(page, total))}) page
      join identity.api_keys k on k.id = page.id left join identity.users u on u.id = k.user_id
      order by ${inOrder(sql, 'k', true)}`;
    return { rows: rows.map(keyOf), total };
  });
}

/** @returns 1, or 0 when it was revoked before */
export async function revokeKey(database: Database, entry: AuditEntry, id: string): Promise<number> {
  const rows = await database.write((sql) =>
    audited(sql, entry, sql`update identity.api_keys set revoked = true, updated_at = now() where id = ${id} and deleted_at is null and not revoked returning id, user_id`),
  );
  return rows.length;
}
