import { alignToKeys, batched, hexArrayLiteral } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import type { ApiKey } from '../model.ts';
import { type Actor, audited, changing } from './audit.ts';
import {
  countRows,
  idsOfPage,
  type JoinedUser,
  joinedUser,
  type Page,
  type PageOf,
  userOf,
} from './rows.ts';

const keyColumns = (sql: Sql): Fragment => sql`
  k.id, k.key_prefix, k.name, k.user_id, k.created_by, k.revoked, k.expires_at,
  (select c.username from identity.users c where c.id = k.created_by) as created_by_username,
  coalesce(k.expires_at <= now(), false) as expired, k.last_used_at,
  coalesce(k.last_used_at < now() - interval '1 minute', true) as last_seen_is_old,
  coalesce(not u.enabled or u.deleted_at is not null, k.user_id is not null) as suspended,
  k.created_at, k.updated_at, k.deleted_at, ${joinedUser(sql)}`;
/** A key `k` with the user `u` on whom it depends. */
const joined = (sql: Sql): Fragment => sql`
  identity.api_keys k left join identity.users u on u.id = coalesce(k.user_id, k.created_by)`;

type Row = Omit<ApiKey, 'user'> & JoinedUser;
const keyOf = (row: Row): ApiKey => Object.assign(row, { user: row.user_id ? userOf(row) : null }); // a copy is slow

export type KeyRequest = Readonly<{ name: string; userId: string | null; expiresAt: Date | null }>;
type NewKey = KeyRequest & Readonly<{ id: string; digest: Buffer; prefix: string }>;

/** @returns null if there is no such user, false if the key would have expired already by the database's clock */
export async function insertKey(
  database: Database,
  actor: Actor,
  key: NewKey,
): Promise<boolean | null> {
  const { id, userId, expiresAt } = key;
  const rows = await changing(database, actor, userId, (sql) =>
    audited(
      sql,
      { event: 'key.created', actor },
      sql`
    insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, created_by, expires_at)
    select ${id}, ${key.digest}, ${key.prefix}, ${key.name}, ${userId}, ${actor.userId}, ${expiresAt}
    where coalesce(${expiresAt}::timestamptz > now(), true) returning id, user_id`,
    ),
  );
  return rows && rows.length > 0;
}

/** By the digest in hexadecimal. */
export const findKeyByDigest = batched(
  async (database: Database, digests: readonly string[]): Promise<Array<ApiKey | null>> => {
    const rows = await database.read(
      (sql) => sql<Array<Row & { digest: string }>>`
      select encode(k.key_digest, 'hex') as digest, ${keyColumns(sql)} from ${joined(sql)}
      where k.key_digest = any (${hexArrayLiteral(digests)}::text::bytea[]) and k.deleted_at is null`,
    );
    return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && keyOf(row));
  },
);

export async function findKeyById(database: Database, id: string): Promise<ApiKey | null> {
  const [row] = await database.read(
    (sql) => sql<Row[]>`
    select ${keyColumns(sql)} from ${joined(sql)} where k.id = ${id} and k.deleted_at is null`,
  );
  return row ? keyOf(row) : null;
}

/** Newest first, of one user or (null) of all. */
export function listKeys(
  database: Database,
  page: Page,
  userId: string | null,
): Promise<PageOf<ApiKey>> {
  return database.list(async (sql) => {
    const where = sql`x.deleted_at is null ${userId === null ? sql`` : sql`and x.user_id = ${userId}`}`;
    const table = sql`identity.api_keys`;
    const rows = await sql<Row[]>`
      select ${keyColumns(sql)} from ${joined(sql)}
        join (${idsOfPage(sql, table, where, page)}) page on page.id = k.id
      order by k.created_at desc, k.id desc`;
    return { rows: rows.map(keyOf), total: await countRows(sql, table, where) };
  });
}

/** @returns 1, or 0 if it was revoked before */
export async function revokeKey(database: Database, actor: Actor, key: ApiKey): Promise<number> {
  const entry = { event: 'key.revoked', actor } as const;
  const rows = await changing(database, actor, key.user_id ?? key.created_by, (sql) =>
    audited(
      sql,
      entry,
      sql`
    update identity.api_keys set revoked = true, updated_at = now()
    where id = ${key.id} and deleted_at is null and not revoked returning id, user_id`,
    ),
  );
  return rows?.length ?? 0;
}
