import { arrayLiteral, type Database, type Sql } from '../../platform/db/sql.ts';
import { isUuid } from '../../platform/runtime/text.ts';
import type { AuditRecord, User } from '../model.ts';
import { accountKey } from '../names.ts';
import type { AuditEvent } from './audit.ts';
import { firstRow, isInGroupSql, isOpenLinkSql, listPage, type Page, userColumns } from './rows.ts';
import { findAccount, findUser } from './users.ts';

const LIST_BATCH = 500;

/** What must hold of every user of a list. `invited`: enabled, and without a password so far. */
export type UserFilter = Readonly<{
  /** Only this user; null for none. */
  id?: string | null | undefined;
  username?: string | undefined;
  email?: string | undefined;
  /** Words that are parts of the username, address or names, or a group. */
  search?: string | undefined;
  state?: 'active' | 'invited' | 'disabled' | undefined;
  role?: 'user' | 'super_admin' | undefined;
  second_factor?: 'on' | 'off' | undefined;
  group?: string | undefined;
}>;

/** For users `x`, without the deleted. */
function isChosenSql(sql: Sql, filter: UserFilter) {
  const { id, username, email, search, state, role, second_factor: factor, group } = filter;
  const idSql = id === undefined ? sql`` : sql`and x.id = ${id}`;
  const nameSql = username ? sql`and x.username_key = ${accountKey(username)}` : sql``;
  const emailSql = email ? sql`and x.email_key = ${accountKey(email)}` : sql``;
  const stateSql = state
    ? sql`and x.enabled = ${state !== 'disabled'}
        and (not x.enabled or x.has_password = ${state === 'active'})`
    : sql``;
  const roleSql = role ? sql`and x.super_admin = ${role === 'super_admin'}` : sql``;
  const factorSql = factor ? sql`and x.second_factor = ${factor === 'on'}` : sql``;
  const groupSql = group ? sql`and ${isInGroupSql(sql, group)}` : sql``;
  const searchSql = search ? sql`and ${isFoundSql(sql, search)}` : sql``;
  return sql`x.deleted_at is null
    ${idSql} ${nameSql} ${emailSql} ${stateSql} ${roleSql} ${factorSql} ${groupSql} ${searchSql}`;
}

function isFoundSql(sql: Sql, search: string) {
  const key = accountKey(search);
  const words = arrayLiteral(key.split(/[ ,]+/));
  return sql`(${isInGroupSql(sql, key)}
    or not exists (
      select from unnest(${words}::text::text[]) as word
      where position(word in concat_ws(' ', x.username_key, x.email_key, x.first_name_key,
        x.last_name_key)) = 0))`;
}

/**
 * Oldest first; in batches, so that memory does not grow with the number of users.
 */
export async function* eachUser(database: Database, filter: UserFilter) {
  for (let after: string | null = null; ;) {
    const users: User[] = await database.list((sql) => {
      // Compared in the database: its times have microseconds, a Date only milliseconds.
      const isNextSql = sql`(x.created_at, x.id) > (select created_at, id from identity.users
        where id = ${after})`;
      return sql<User[]>`
        select ${userColumns(sql, 'x')} from identity.users x
        where ${isChosenSql(sql, filter)}
          and ${after === null ? sql`true` : isNextSql}
        order by x.created_at, x.id limit ${LIST_BATCH}`;
    });
    yield users;
    after = users.at(-1)?.id ?? null;
    if (users.length < LIST_BATCH) return;
  }
}

/**
 * `last_sign_in_at`: as long as the audit trail is kept. `link_ends_at`: of an open link with which
 * the user sets a password.
 */
export type ListedUser = User &
  Readonly<{
    second_factor: boolean;
    has_password: boolean;
    last_sign_in_at: Date | null;
    link_ends_at: Date | null;
  }>;

/** Columns of users `u`, as in `ListedUser`. */
const listedColumns = (sql: Sql) => sql`
  ${userColumns(sql)}, u.second_factor, u.has_password,
  (select max(a.created_at) from identity.audit a
    where a.user_id = u.id and a.event = 'login.succeeded') as last_sign_in_at,
  (select l.expires_at from identity.links l
    where l.user_id = u.id and ${isOpenLinkSql(sql)}) as link_ends_at`;

/** Each has an index. */
const ORDERS = {
  username: (sql: Sql) => sql`username_key`,
  email: (sql: Sql) => sql`email_key`,
  created: (sql: Sql) => sql`created_at`,
} as const;
type Order = keyof typeof ORDERS;
/** By which users can be sorted: up, or with a minus sign down. */
export const USER_ORDERS = Object.keys(ORDERS).flatMap((name) => [name, `-${name}`]);

function userOrderSql(sql: Sql, sort: string) {
  const isOrder = (name: string): name is Order => Object.hasOwn(ORDERS, name);
  const name = sort.replace('-', '');
  const columnSql = isOrder(name) ? ORDERS[name](sql) : ORDERS.created(sql);
  return sort.startsWith('-') ? sql`${columnSql} desc, id desc` : sql`${columnSql}, id`;
}

/** @param sort one of `USER_ORDERS` */
export const listUsers = (
  database: Database,
  page: Page,
  filter: UserFilter = {},
  sort = 'created',
) =>
  database.list((sql) =>
    listPage<ListedUser>(sql, page, {
      table: 'users',
      whereSql: isChosenSql(sql, filter),
      selectSql: sql`${listedColumns(sql)} from identity.users u`,
      id: 'u.id',
      orderSql: userOrderSql(sql, sort),
    }),
  );

/** @returns null if there is none, or the user is deleted */
export const findListedUser = (database: Database, id: string) =>
  firstRow(
    database.read(
      (sql) => sql<ListedUser[]>`
        select ${listedColumns(sql)} from identity.users u where id = ${id} and deleted_at is null`,
    ),
  );

/** By id, username or e-mail address, as a person writes them. */
export function findUserByName(database: Database, name: string) {
  const id = name.trim().toLowerCase();
  return isUuid(id) ? findUser(database, id) : findAccount(database, accountKey(name));
}

export const anyFactorExists = async (sql: Sql) =>
  (await sql`select from identity.totp union all select from identity.passkeys limit 1`).count > 0;

/** The groups that have a member, by name. */
export const listGroups = (database: Database) =>
  database.list(
    (sql) => sql<Array<{ name: string; users: number }>>`
    select name, count(*)::int4 as users
    from identity.users, unnest(groups) as name
    where deleted_at is null group by name order by name`,
  );

/**
 * `user`: the id, name or address of whom an entry is about, or who did it. A name is also that of
 * deleted users: whoever deletes an account must not hide what was done with it.
 */
type AuditFilter = Readonly<{
  user?: string | undefined;
  event?: AuditEvent | undefined;
  from?: Date | undefined;
  before?: Date | undefined;
}>;

/** With the names of users, which are empty after they were erased. */
export type ListedAudit = AuditRecord &
  Readonly<Record<'actor' | 'subject' | 'key_name' | 'key_creator', string | null>>;

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
export function listAudit(database: Database, page: Page, filter: AuditFilter) {
  const { user, event, from, before } = filter;
  return database.list(async (sql) => {
    const ids = arrayLiteral(user ? await findIds(sql, user) : []);
    const userSql = user
      ? sql`(x.user_id = any (${ids}::text::uuid[]) or x.actor_id = any (${ids}::text::uuid[]))`
      : sql`true`;
    const eventSql = event ? sql`and x.event = ${event}` : sql``;
    const fromSql = from ? sql`and x.created_at >= ${from}` : sql``;
    const beforeSql = before ? sql`and x.created_at < ${before}` : sql``;
    const selectSql = sql`
      a.*, k.created_by as key_created_by, k.name as key_name,
        (select username from identity.users where id = k.created_by) as key_creator,
        (select username from identity.users where id = a.actor_id) as actor,
        (select username from identity.users where id = a.user_id) as subject
      from identity.audit a
      left join identity.api_keys k on k.id = a.key_id`;
    return listPage<ListedAudit>(sql, page, {
      table: 'audit',
      whereSql: sql`${userSql} ${eventSql} ${fromSql} ${beforeSql}`,
      selectSql,
      id: 'a.id',
    });
  });
}
