import { sha256 } from '../../platform/crypto/token.ts';
import { arrayLiteral, type Database, type Fragment, type Sql } from '../../platform/db/sql.ts';
import { type ApiKey, groupChange } from '../model.ts';
import { maskedKey } from '../token.ts';
import { type Actor, audited } from './audit.ts';
import { changeRows, changing } from './rights.ts';
import {
  type ByDigest,
  finderByDigest,
  isOfUserSql,
  type JoinedUser,
  joinedUser,
  listPage,
  type Page,
  userOf,
} from './rows.ts';

/** Columns of keys `k`, each with the user `u` on whom it depends: its own or its creator. */
const keysSql = (sql: Sql) => sql`
  k.id, k.key_prefix, k.name, to_json(k.groups) as groups, k.user_id, k.created_by,
  (select username from identity.users where id = k.created_by) as created_by_username,
  k.revoked, k.expires_at, coalesce(k.expires_at <= now(), false) as expired, k.last_used_at,
  coalesce(k.last_used_at < now() - interval '1 minute', true) as last_seen_is_old,
  coalesce(not u.enabled or u.deleted_at is not null, k.user_id is not null) as suspended,
  k.created_at, k.updated_at, k.deleted_at, ${joinedUser(sql)}, u.deleted_at as user_deleted_at
  from identity.api_keys k
  left join identity.users u on u.id = coalesce(k.user_id, k.created_by)`;

type KeyRow = Omit<ApiKey, 'user'> & JoinedUser;
const keyOf = (row: KeyRow): ApiKey =>
  Object.assign(row, { user: row.user_id ? userOf(row) : null }); // a copy is slow

/** `groups`: only of a key without a user. */
export type KeyInput = Readonly<{
  name: string;
  user_id: string | null;
  groups: readonly string[];
  expires_at?: Date | null | undefined;
}>;
/** @returns 1, or 0 if it had expired by the database's clock; null without a user to own it */
export function insertKey(
  database: Database,
  actor: Actor,
  { name, user_id, groups, expires_at = null }: KeyInput,
  id: string,
  key: string,
) {
  const insert = (sql: Sql) => sql`
    insert into identity.api_keys (id, key_digest, key_prefix, name, groups, user_id, created_by,
      expires_at)
    select ${id}, ${sha256(key)}, ${maskedKey(key)}, ${name}, ${arrayLiteral(groups)}, ${user_id},
      ${actor.userId}, ${expires_at}
    where coalesce(${expires_at} > now(), true)
    returning id, user_id`;
  const detail = groupChange([], groups);
  return changeRows(database, { event: 'key.created', actor, detail }, user_id, insert);
}

export const findKeyByDigest = finderByDigest(
  (sql, digests, _service: Readonly<{ database: Database }>) => sql<ByDigest<KeyRow>>`
    select encode(k.key_digest, 'hex') as digest, ${keysSql(sql)}
    where k.key_digest = any (${digests}::text::bytea[])
      and k.deleted_at is null`,
  keyOf,
);

export async function findKeyById(database: Database, id: string) {
  const [row] = await database.read(
    (sql) => sql<KeyRow[]>`
    select ${keysSql(sql)} where k.id = ${id} and k.deleted_at is null`,
  );
  return row ? keyOf(row) : null;
}

/** Newest first, of one user or (null) of all. */
export function listKeys(database: Database, page: Page, userId: string | null) {
  return database.list(async (sql) => {
    const { rows, total } = await listPage<KeyRow>(sql, page, {
      table: 'api_keys',
      whereSql: isOfUserSql(sql, userId),
      selectSql: keysSql(sql),
      id: 'k.id',
    });
    return { rows: rows.map(keyOf), total };
  });
}

/** @returns 1, or 0 if it was revoked before */
export async function revokeKey(database: Database, actor: Actor, key: ApiKey) {
  const count = await changing(database, actor, key.user_id ?? key.created_by, (sql) =>
    revokeKeys(sql, actor, sql`id = ${key.id}`),
  );
  return count ?? 0;
}

/**
 * In a transaction.
 * @param detail why, for the audit trail
 * @param creatorId whom the audit trail names for keys without a user
 * @returns how many were revoked
 */
export async function revokeKeys(
  sql: Sql,
  actor: Actor,
  where: Fragment,
  detail = '',
  creatorId: string | null = null,
) {
  const revoke = sql`
    update identity.api_keys set revoked = true, updated_at = now()
    where ${where} and deleted_at is null and not revoked
    returning id, coalesce(user_id, ${creatorId}) as user_id`;
  return (await audited(sql, { event: 'key.revoked', actor, detail }, revoke)).length;
}
