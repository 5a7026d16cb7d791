import type { Database } from '../../db/pool.ts';
import { accountKey, type User } from '../model.ts';
import { countRows, isInGroupSql, type Page, type PageOf, userColumns } from './rows.ts';

const LIST_BATCH = 500;

/**
 * Oldest first, without the deleted; in batches, so that memory does not grow with the number of
 * users.
 * @param group only its members; null for all
 */
export async function* eachUser(database: Database, group: string | null): AsyncGenerator<User[]> {
  for (let after: string | null = null; ;) {
    const users: User[] = await database.list((sql) => {
      // Compared in the database: its times have microseconds, a Date only milliseconds.
      const isNextSql = sql`(u.created_at, u.id) > (select created_at, id from identity.users
        where id = ${after})`;
      return sql<User[]>`
        select ${userColumns(sql)} from identity.users u
        where u.deleted_at is null
          and ${isInGroupSql(sql, 'u', group)}
          and ${after === null ? sql`true` : isNextSql}
        order by u.created_at, u.id limit ${LIST_BATCH}`;
    });
    yield users;
    after = users.at(-1)?.id ?? null;
    if (users.length < LIST_BATCH) return;
  }
}

/** Oldest first, without the deleted. @param group only its members; null for all */
export function listUsers(database: Database, { page, limit }: Page, group: string | null) {
  return database.list(async (sql) => {
    const listedSql = sql`x.deleted_at is null and ${isInGroupSql(sql, 'x', group)}`;
    const rows = await sql<User[]>`
      select ${userColumns(sql)} from (
        select x.id from identity.users x where ${listedSql}
        order by x.created_at, x.id
        limit ${limit} offset ${(page - 1) * limit}
      ) page join identity.users u on u.id = page.id
      order by u.created_at, u.id`;
    return { rows, total: await countRows(sql, 'users', listedSql) };
  });
}

/** The groups that have a member, by name. */
export const listGroups = (database: Database) =>
  database.list(
    (sql) => sql<Array<{ name: string; users: number }>>`
    select name, count(*)::int4 as users
    from identity.users, unnest(groups) as name
    where deleted_at is null group by name order by name`,
  );

/** `last_sign_in_at`: of the sessions that are kept. */
export type ListedUser = User & Readonly<{ second_factor: boolean; last_sign_in_at: Date | null }>;

/**
 * By name, without deleted users.
 * @param search a part of the username or the address, or a group; empty for all
 */
export function searchUsers(
  database: Database,
  search: string,
  { page, limit }: Page,
): Promise<PageOf<ListedUser>> {
  return database.list(async (sql) => {
    const key = accountKey(search);
    const matchesSql = sql`x.deleted_at is null
      and (position(${key} in x.username_key) > 0 or position(${key} in x.email_key) > 0
        or ${isInGroupSql(sql, 'x', key)})`;
    const rows = await sql<ListedUser[]>`
      select ${userColumns(sql)}, u.second_factor,
        (select max(s.created_at) from identity.sessions s where s.user_id = u.id)
          as last_sign_in_at
      from identity.users u where u.id in (
        select x.id from identity.users x where ${matchesSql}
        order by x.username_key
        limit ${limit} offset ${(page - 1) * limit})
      order by u.username_key`;
    return { rows, total: await countRows(sql, 'users', matchesSql) };
  });
}
