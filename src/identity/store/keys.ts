import { sha256 } from '../../platform/crypto/token.ts';
import { arrayLiteral, type Database, type Fragment, type Sql } from '../../platform/db/sql.ts';
import { type ApiKey, groupChange } from '../model.ts';
import { maskedKey } from '../token.ts';
import { type Actor, audited, creatorOf } from './audit.ts';
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
  k.id,
  k.key_prefix,
  k.name,
  to_json(k.groups) as groups,
  to_json(coalesce(
    k.rights,
    case when k.user_id is null then array['verify', 'read', 'revoke'] end
  )) as rights,
  to_json(k.scopes) as scopes,
  to_json(k.provision_groups) as provision_groups,
  k.user_id,
  k.created_by,
  (select username from identity.users where id = k.created_by) as created_by_username,
  k.made_by,
  k.revoked,
  k.expires_at,
  coalesce(k.expires_at <= now(), false) as expired,
  k.last_used_at,
  coalesce(k.last_used_at < now() - interval '1 minute', true) as last_seen_is_old,
  coalesce(not u.enabled or u.deleted_at is not null, k.user_id is not null) as suspended,
  k.created_at,
  k.updated_at,
  k.deleted_at,
  ${joinedUser(sql)},
  u.deleted_at as user_deleted_at
  from identity.api_keys k
  left join identity.users u on u.id = coalesce(k.user_id, k.created_by)`;

type KeyRow = Omit<ApiKey, 'user'> & JoinedUser;
const keyOf = (row: KeyRow): ApiKey =>
  Object.assign(row, { user: row.user_id ? userOf(row) : null }); // a copy is slow

/** `groups`: only of a key without a user. */
export type KeyInput = Pick<
  ApiKey,
  'name' | 'user_id' | 'groups' | 'rights' | 'scopes' | 'provision_groups'
> &
  Readonly<{ expires_at?: Date | null | undefined }>;
/** @returns 1, or 0 if it had expired by the database's clock; null without a user to own it */
export function insertKey(
  database: Database,
  actor: Actor,
  { name, user_id, groups, rights, scopes, provision_groups, expires_at = null }: KeyInput,
  id: string,
  key: string,
) {
  const columns = {
    id,
    key_digest: sha256(key),
    key_prefix: maskedKey(key),
    name,
    groups: arrayLiteral(groups),
    rights: rights && arrayLiteral(rights),
    scopes: arrayLiteral(scopes),
    provision_groups: arrayLiteral(provision_groups),
    user_id,
    created_by: creatorOf(actor),
    made_by: actor.caller?.key?.id ?? null,
    expires_at,
  };
  const insert = (sql: Sql) => sql`
    insert into identity.api_keys (${sql(Object.keys(columns))})
    select ${sql(columns)}
    where coalesce(${expires_at} > now(), true)
    returning id, user_id`;
  const given = { rights: rights ?? [], scopes, 'provision groups': provision_groups };
  const named = Object.entries(given).flatMap(([what, names]) =>
    names.length > 0 ? `${what} ${names.join(' ')}` : [],
  );
  const detail = [...named, groupChange([], groups)].filter(Boolean).join(', ');
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

/** As the user of keys that have none. */
export const NO_USER = 'no user';

/** Newest first, of one user, of `NO_USER`, or (null) all. */
export function listKeys(database: Database, page: Page, userId: string | null) {
  return database.list(async (sql) => {
    const { rows, total } = await listPage<KeyRow>(sql, page, {
      table: 'api_keys',
      whereSql:
        userId === NO_USER
          ? sql`x.deleted_at is null and x.user_id is null`
          : isOfUserSql(sql, userId),
      selectSql: keysSql(sql),
      id: 'k.id',
    });
    return { rows: rows.map(keyOf), total };
  });
}

/**
 * @param withMade whether to revoke the keys that it made, too
 * @returns `own`: 1, or 0 if it was revoked before; `made`: how many of those
 */
export async function revokeKey(database: Database, actor: Actor, key: ApiKey, withMade = false) {
  const revoked = await changing(database, actor, key.user_id ?? key.created_by, async (sql) => ({
    own: await revokeKeys(sql, actor, sql`id = ${key.id}`),
    made: withMade ? await revokeKeys(sql, actor, sql`made_by = ${key.id}`, MADE) : 0,
  }));
  return revoked ?? { own: 0, made: 0 };
}

/** For the audit trail. */
const MADE = 'made by a revoked key';

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

/** @returns how many */
export const revokeKeysOf = (sql: Sql, actor: Actor, id: string, reason = '') =>
  revokeKeys(sql, actor, sql`user_id = ${id}`, reason);

/** Revokes those that an administrator made. @returns how many */
export const revokeKeysWithoutUser = (sql: Sql, actor: Actor, id: string) =>
  revokeKeys(sql, actor, sql`user_id is null and created_by = ${id}`, 'without a user', id);
