import type { Fragment, Sql } from '../../db/pool.ts';
import type { Span } from '../paging.ts';
import type { User } from '../rules.ts';

export const userColumns = (sql: Sql): Fragment => sql`
  u.id, u.first_name, u.last_name, u.username, u.email, u.enabled, u.verified, u.super_admin,
  u.created_at, u.updated_at, u.deleted_at`;

/** The user in a join, where other columns have the same names. */
export const joinedUser = (sql: Sql): Fragment => sql`
  u.id as u_id, u.first_name as u_first_name, u.last_name as u_last_name, u.username as u_username, u.email as u_email,
  u.enabled as u_enabled, u.verified as u_verified, u.super_admin as u_super_admin,
  u.created_at as u_created_at, u.updated_at as u_updated_at, u.deleted_at as u_deleted_at`;

/** The columns of `joinedUser`; all null where the join found nobody. */
export type JoinedUser = { readonly [Name in keyof User as `u_${Name}`]: User[Name] };

export const userOf = (row: JoinedUser): User => ({
  id: row.u_id,
  first_name: row.u_first_name,
  last_name: row.u_last_name,
  username: row.u_username,
  email: row.u_email,
  enabled: row.u_enabled,
  verified: row.u_verified,
  super_admin: row.u_super_admin,
  created_at: row.u_created_at,
  updated_at: row.u_updated_at,
  deleted_at: row.u_deleted_at,
});

/**
 * The ids of one page. Only these are looked up in the table: to walk over the others, the index suffices.
 * @param table aliased `x`; has `id` and `created_at`, and an index for both orders
 */
export function idsOf(sql: Sql, table: Fragment, where: Fragment, order: 'oldest first' | 'newest first', { fromEnd, offset, limit }: Span): Fragment {
  return sql`select x.id from ${table} x where ${where} order by ${inOrder(sql, 'x', (order === 'newest first') !== fromEnd)} limit ${limit} offset ${offset}`;
}

export const inOrder = (sql: Sql, alias: string, descending: boolean): Fragment =>
  descending ? sql`${sql(alias)}.created_at desc, ${sql(alias)}.id desc` : sql`${sql(alias)}.created_at, ${sql(alias)}.id`;

type List = 'users' | 'sessions' | 'api_keys' | 'audit';

/** A part's name differs from its list's, since a caller may ask for the user with any id, also the nil one. */
const ofUser = (list: List): string => `${list} of user`;
/** The owner of a whole list. */
const NIL_UUID = '00000000-0000-0000-0000-000000000000';
/** This process's share of the totals of whole lists. */
const SHARD = Math.floor(Math.random() * 16);

/**
 * A part of a statement that keeps a list's totals true, and commits with it. In it, `change` is the rows that were
 * added or removed, with `user_id`, or for the trail `event`. Rows are locked in one order; a transaction comes to them last.
 */
export function counting(sql: Sql, list: List, sign: 1 | -1): Fragment {
  const parts = {
    users: sql``,
    sessions: sql`union all select ${ofUser(list)}, user_id, 0 from change`,
    api_keys: sql`union all select ${ofUser(list)}, user_id, 0 from change where user_id is not null`,
    audit: sql`union all select 'audit ' || event, ${NIL_UUID}, ${SHARD} from change`,
  };
  return sql`
    insert into identity.totals as t (list, owner, shard, n)
    select c.list, c.owner, c.shard, ${sign}::int * count(*)
    from (select ${list}::text as list, ${NIL_UUID}::uuid as owner, ${SHARD}::int as shard from change ${parts[list]}) c
    group by c.list, c.owner, c.shard
    order by c.list, c.owner, c.shard
    on conflict (list, owner, shard) do update set n = t.n + excluded.n`;
}

/** How long a list is, or a part of it: of a user, or of the trail's lines of one event. */
export async function totalOf(sql: Sql, list: List, part: { readonly userId?: string | null; readonly event?: string | null } = {}): Promise<number> {
  const { userId = null, event = null } = part;
  const name = userId !== null ? ofUser(list) : event !== null ? `${list} ${event}` : list;
  const [row] = await sql<[{ total: number }]>`
    select greatest(0, coalesce(sum(n), 0))::int as total from identity.totals where list = ${name} and owner = ${userId ?? NIL_UUID}`;
  return row.total;
}
