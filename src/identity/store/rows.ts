import type { Database, Fragment, Sql } from '../../platform/db/pool.ts';
import { sharedStatement } from '../../platform/db/share-statement.ts';
import { alignToKeys, arrayLiteral } from '../../platform/db/sql.ts';
import { type User, userMembers } from '../model.ts';

export const firstRow = async <Row>(rows: Promise<readonly Row[]>) => (await rows)[0] ?? null;
export const hasChanged = async (result: Promise<{ count: number }>) => (await result).count > 0;

/** Pages are counted from 1. */
export type Page = Readonly<{ page: number; limit: number }>;
/** `total`: the rows of the whole list. */
export type PageOf<Row> = Readonly<{ rows: readonly Row[]; total: number }>;

const USER_COLUMNS = Object.keys(userMembers)
  .filter((name) => name !== 'groups')
  .map((name) => `u.${name}`);
/** Columns of users `u`. Arrays are read as JSON, which the driver parses without their types. */
export const userColumns = (sql: Sql) => sql`${sql(USER_COLUMNS)}, to_json(u.groups) as groups`;

/** The user in a join, where other columns have the same names. */
export const joinedUser = (sql: Sql) => sql`${undeletedUser(sql)}, u.deleted_at as u_deleted_at`;

/** Columns of the user of an active session, who is not deleted. */
export const undeletedUser = (sql: Sql) => sql`
  u.id as u_id, u.first_name as u_first_name, u.last_name as u_last_name, u.username as u_username,
  u.email as u_email,
  u.enabled as u_enabled, u.verified as u_verified, u.super_admin as u_super_admin,
  to_json(u.groups) as u_groups, u.created_at as u_created_at, u.updated_at as u_updated_at`;

/** The columns of `joinedUser`; all null where the join found no user. */
export type JoinedUser = {
  readonly [Name in Exclude<keyof User, 'deleted_at'> as `u_${Name}`]: User[Name];
} & { readonly u_deleted_at?: Date | null };

export const userOf = (row: JoinedUser): User => ({
  id: row.u_id,
  first_name: row.u_first_name,
  last_name: row.u_last_name,
  username: row.u_username,
  email: row.u_email,
  enabled: row.u_enabled,
  verified: row.u_verified,
  super_admin: row.u_super_admin,
  groups: row.u_groups,
  created_at: row.u_created_at,
  updated_at: row.u_updated_at,
  deleted_at: row.u_deleted_at ?? null,
});

/**
 * Finds rows by hexadecimal digests, without the deleted.
 * @param selectSql the columns, and the tables, of which one is `alias`
 */
export const finderByDigest = <Context extends { readonly database: Database }, Row, Found>(
  alias: string,
  column: string,
  selectSql: (sql: Sql, context: Context) => Fragment,
  foundOf: (row: Row) => Found,
) =>
  sharedStatement(async (context: Context, digests: readonly string[]) => {
    const wanted = arrayLiteral(digests.map((digest) => `\\x${digest}`));
    const rows = await context.database.read(
      (sql) => sql<Array<Row & { digest: string }>>`
          select encode(${sql(alias)}.${sql(column)}, 'hex') as digest, ${selectSql(sql, context)}
          where ${sql(alias)}.${sql(column)} = any (${wanted}::text::bytea[])
            and ${sql(alias)}.deleted_at is null`,
    );
    return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && foundOf(row));
  });

type Table = 'users' | 'sessions' | 'api_keys' | 'audit';

/** Whether a user is in this group; null for any group. */
export const isInGroupSql = (sql: Sql, group: string | null) =>
  group === null ? sql`true` : sql`groups @> array[${group}]`;

/**
 * The rows of one page, whose ids are read from an index alone.
 * @param whereSql names the table `x`
 * @param selectSql columns and tables
 * @param id the column of `selectSql` that has the id, such as `u.id`
 * @param orderSql by default newest first
 */
export const rowsOfPage = <Row extends object>(
  sql: Sql,
  table: Table,
  whereSql: Fragment,
  { page, limit }: Page,
  selectSql: Fragment,
  id: string,
  orderSql = sql`created_at desc, id desc`,
) => sql<Row[]>`
  select ${selectSql}
    join (
      select x.id from identity.${sql(table)} x where ${whereSql}
      order by ${orderSql}
      limit ${limit} offset ${(page - 1) * limit}
    ) page on page.id = ${sql(id)}
  order by ${orderSql}`;

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
 * @param idleSeconds as in `Sessions`
 */
export const isExpiredSql = (sql: Sql, idleSeconds: number) => {
  const idle =
    idleSeconds === 0
      ? sql``
      : sql`or last_seen_at <= now() - make_interval(secs => ${idleSeconds})`;
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
