import { sharedStatement } from '../../platform/db/share-statement.ts';
import {
  alignToKeys,
  arrayLiteral,
  type Database,
  type Fragment,
  type Sql,
} from '../../platform/db/sql.ts';
import { type User, userMembers } from '../model.ts';

export const firstRow = async <Row>(rows: Promise<readonly Row[]>) => (await rows)[0] ?? null;
export const hasChanged = async (result: Promise<{ count: number }>) => (await result).count > 0;

/** Pages are counted from 1. */
export type Page = Readonly<{ page: number; limit: number }>;
/** `total`: the rows of the whole list. */
export type PageOf<Row> = Readonly<{ rows: readonly Row[]; total: number }>;

const USER_COLUMNS = Object.keys(userMembers).filter((name) => name !== 'groups');
/** Columns of users. Arrays are read as JSON, which the driver parses without their types. */
export const userColumns = (sql: Sql, table = 'u') => sql`
  ${sql(USER_COLUMNS.map((name) => `${table}.${name}`))}, to_json(${sql(table)}.groups) as groups`;

type Renamed = 'id' | 'groups' | 'created_at' | 'updated_at';
/** The user of a session or key. */
export type JoinedUser = Omit<User, Renamed | 'deleted_at'> & {
  readonly [Name in Renamed as `user_${Name}`]: User[Name];
} & { readonly user_deleted_at?: Date | null };
/** Its columns, but for the id, of a user `u` who is not deleted. */
export const joinedUser = (sql: Sql) => sql`
  u.first_name, u.last_name, u.username, u.email, u.enabled, u.verified, u.super_admin,
  to_json(u.groups) as user_groups, u.created_at as user_created_at,
  u.updated_at as user_updated_at`;

export const userOf = (row: JoinedUser): User => ({
  id: row.user_id,
  first_name: row.first_name,
  last_name: row.last_name,
  username: row.username,
  email: row.email,
  enabled: row.enabled,
  verified: row.verified,
  super_admin: row.super_admin,
  groups: row.user_groups,
  created_at: row.user_created_at,
  updated_at: row.user_updated_at,
  deleted_at: row.user_deleted_at ?? null,
});

/**
 * Finds rows by hexadecimal digests. Calls that arrive together share the statement.
 * @param select has the column `digest`, in hexadecimal; `digests` is its parameter for
 * `any (…::text::bytea[])`
 */
export const finderByDigest = <Context extends { readonly database: Database }, Row, Found>(
  select: (sql: Sql, digests: string, context: Context) => Promise<ByDigest<Row>>,
  foundOf: (row: Row) => Found,
) =>
  sharedStatement('read', async (sql, digests: readonly string[], context: Context) => {
    const wanted = arrayLiteral(digests.map((digest) => `\\x${digest}`));
    const rows = await select(sql, wanted, context);
    return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && foundOf(row));
  });
export type ByDigest<Row> = Array<Row & { digest: string }>;

type Table = 'users' | 'sessions' | 'api_keys' | 'audit';

/** Whether a user is in this group. */
export const isInGroupSql = (sql: Sql, group: string) => sql`groups @> array[${group}]`;

/**
 * For a link `l`. It has the rights of the administrator and key who made it, as they are by now.
 */
export const isOpenLinkSql = (sql: Sql) => sql`
  not l.is_ended
    and l.expires_at > now()
    and (l.created_by is null or exists (
      select from identity.users
      where id = l.created_by
        and super_admin
        and enabled
        and deleted_at is null))
    and (l.key_id is null or exists (
      select from identity.api_keys
      where id = l.key_id
        and not revoked
        and coalesce(expires_at > now(), true)
        and deleted_at is null))`;

type List = Readonly<{
  table: Table;
  /** Names the table `x`. */
  whereSql: Fragment;
  /** Columns and tables. */
  selectSql: Fragment;
  /** The column of `selectSql` that has the id, such as `u.id`. */
  id: string;
  orderSql?: Fragment;
}>;

/** The rows of one page, whose ids are read from an index alone. */
export const rowsOfPage = <Row extends object>(
  sql: Sql,
  { page, limit }: Page,
  { table, whereSql, selectSql, id, orderSql = sql`created_at desc, id desc` }: List,
) => sql<Row[]>`
  select ${selectSql}
    join (
      select x.id from identity.${sql(table)} x where ${whereSql}
      order by ${orderSql}
      limit ${limit} offset ${(page - 1) * limit}
    ) page on page.id = ${sql(id)}
  order by ${orderSql}`;

/** One page of a list, and how long the list is. */
export const listPage = async <Row extends object>(
  sql: Sql,
  page: Page,
  list: List,
): Promise<PageOf<Row>> => ({
  rows: await rowsOfPage<Row>(sql, page, list),
  total: await countRows(sql, list.table, list.whereSql),
});

/** @returns the exact number of rows, from an index alone. @param where names the table `x` */
export async function countRows(sql: Sql, table: Table, where: Fragment) {
  const [row] = await sql<[{ total: number }]>`
    select count(*)::int4 as total
    from identity.${sql(table)} x
    where ${where}`;
  return row.total;
}

/** For a session or key `x`, of one user or (null) of any, without the deleted. */
export const isOfUserSql = (sql: Sql, userId: string | null) =>
  userId === null ? sql`x.deleted_at is null` : sql`x.deleted_at is null and x.user_id = ${userId}`;

/**
 * Whether a session has expired, in a query of which no other table has these columns.
 * @param idleSeconds as in `Sessions`; not of one that stays, whose `expires_at` moves instead
 */
export const isExpiredSql = (sql: Sql, idleSeconds: number) => {
  const idle =
    idleSeconds === 0
      ? sql``
      : sql`or (stays_until is null
          and last_seen_at <= now() - make_interval(secs => ${idleSeconds}))`;
  return sql`(expires_at <= now() ${idle})`;
};

/** For a session `x`. Ignores `sessions_end_at` of its user and of all users. */
export const isActiveItselfSql = (sql: Sql, idleSeconds: number) => sql`
  not x.revoked and not x.logged_out and not ${isExpiredSql(sql, idleSeconds)}`;

/**
 * For a session `x`, of one user or (null) of any. Users who may not log in have no active session:
 * disabling or deleting a user ends all.
 */
export function isActiveSql(sql: Sql, userId: string | null, idleSeconds: number) {
  const isAfterEndSql =
    userId === null
      ? sql`not exists (select from identity.users u where u.id = x.user_id
        and u.sessions_end_at >= x.created_at)`
      : sql`x.created_at > coalesce((select sessions_end_at from identity.users
        where id = ${userId}), '-infinity')`;
  return sql`${isOfUserSql(sql, userId)} and ${isActiveItselfSql(sql, idleSeconds)}
    and x.created_at > coalesce((select sessions_end_at from identity.global_revocation),
      '-infinity')
    and ${isAfterEndSql}`;
}
