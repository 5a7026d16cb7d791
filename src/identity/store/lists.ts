import { arrayLiteral, type Database, type Sql } from '../../platform/db/sql.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { isUuid } from '../../platform/runtime/text.ts';
import type { AuditRecord, User } from '../model.ts';
import { accountKey } from '../names.ts';
import type { AuditEvent } from './audit.ts';
import { isInGroupSql, listPage, type Page, userColumns } from './rows.ts';

const LIST_BATCH = 500;

/**
 * Oldest first, without the deleted; in batches, so that memory does not grow with the number of
 * users.
 * @param group only its members; null for all
 */
export async function* eachUser(database: Database, group: string | null) {
  for (let after: string | null = null; ;) {
    const users: User[] = await database.list((sql) => {
      // Compared in the database: its times have microseconds, a Date only milliseconds.
      const isNextSql = sql`(u.created_at, u.id) > (select created_at, id from identity.users
        where id = ${after})`;
      return sql<User[]>`
        select ${userColumns(sql)} from identity.users u
        where u.deleted_at is null
          and ${isInGroupSql(sql, group)}
          and ${after === null ? sql`true` : isNextSql}
        order by u.created_at, u.id limit ${LIST_BATCH}`;
    });
    yield users;
    after = users.at(-1)?.id ?? null;
    if (users.length < LIST_BATCH) return;
  }
}

/** Oldest first, without the deleted. @param group only its members; null for all */
export const listUsers = (database: Database, page: Page, group: string | null) =>
  database.list((sql) =>
    listPage<User>(sql, page, {
      table: 'users',
      whereSql: sql`x.deleted_at is null and ${isInGroupSql(sql, group)}`,
      selectSql: sql`${userColumns(sql)} from identity.users u`,
      id: 'u.id',
      orderSql: sql`created_at, id`,
    }),
  );

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
 * @param search words that are parts of the username, address or names, or a group; empty for all
 */
export function searchUsers(database: Database, search: string, page: Page) {
  const key = accountKey(search);
  const words = arrayLiteral(key.split(/[ ,]+/));
  return database.list((sql) =>
    listPage<ListedUser>(sql, page, {
      table: 'users',
      whereSql: sql`x.deleted_at is null
        and (${isInGroupSql(sql, key)}
          or not exists (
            select from unnest(${words}::text::text[]) as word
            where position(word in concat_ws(' ', x.username_key, x.email_key, x.first_name_key,
              x.last_name_key)) = 0))`,
      selectSql: sql`
        ${userColumns(sql)}, u.second_factor,
          (select max(s.created_at)
            from identity.sessions s
            where s.user_id = u.id and s.deleted_at is null) as last_sign_in_at
        from identity.users u`,
      id: 'u.id',
      orderSql: sql`username_key`,
    }),
  );
}

/**
 * `user`: the id, name or address of whom an entry is about, or who did it. A name is also that of
 * deleted users: whoever deletes an account must not hide what was done with it. `from` and `to`:
 * days. An empty text stands for all.
 */
type AuditFilter = Readonly<{
  user?: string | undefined;
  event?: AuditEvent | '' | undefined;
  from?: string;
  to?: string;
}>;

/** With the names of users, which are empty after they were erased. */
export type ListedAudit = AuditRecord & Readonly<Record<'actor' | 'subject', string | null>>;

/** Read before the entries, so that these are found by an index. */
async function findIds(sql: Sql, user: string) {
  const id = user.trim().toLowerCase();
  const key = accountKey(user);
  const users = await sql<Array<{ id: string }>>`
    select id from identity.users
    where username_key = ${key}
      or (email_key = ${key} and deleted_at is null)
      or id = ${isUuid(id) ? id : null}`;
  return users.map((found) => found.id);
}

/** Newest first. */
export function listAudit(database: Database, page: Page, { user, event, from, to }: AuditFilter) {
  return database.list(async (sql) => {
    const ids = arrayLiteral(user ? await findIds(sql, user) : []);
    const userSql = user
      ? sql`(x.user_id = any (${ids}::text::uuid[]) or x.actor_id = any (${ids}::text::uuid[]))`
      : sql`true`;
    const eventSql = event ? sql`and x.event = ${event}` : sql``;
    const fromSql = from ? sql`and x.created_at >= ${new Date(from)}` : sql``;
    const end = new Date(Date.parse(to ?? '') + DAY_SECONDS * 1000);
    const toSql = to ? sql`and x.created_at < ${end}` : sql``;
    const selectSql = sql`
      a.*, (select created_by from identity.api_keys where id = a.key_id) as key_created_by,
        (select username from identity.users where id = a.actor_id) as actor,
        (select username from identity.users where id = a.user_id) as subject
      from identity.audit a`;
    return listPage<ListedAudit>(sql, page, {
      table: 'audit',
      whereSql: sql`${userSql} ${eventSql} ${fromSql} ${toSql}`,
      selectSql,
      id: 'a.id',
    });
  });
}
