import { takeNamedLock } from '../../db/migrate.ts';
import type { Database, Sql } from '../../db/pool.ts';
import { SCHEMA } from '../migrations.ts';
import { type Page, type Part, spanOf } from '../paging.ts';
import type { Account, User } from '../rules.ts';
import { type Actor, audited, type AuditEntry } from './audit.ts';
import { counting, idsOf, inOrder, totalOf, userColumns } from './rows.ts';
import { endSessions, noteEnded } from './sessions.ts';
import { clearing } from './throttles.ts';

/** What of a user may be written. */
export interface UserValues {
  readonly username: string;
  readonly username_key: string;
  readonly email: string;
  readonly email_key: string;
  readonly first_name: string;
  readonly last_name: string;
  readonly password_hash: string | null;
  readonly enabled: boolean;
  readonly verified: boolean;
  readonly super_admin: boolean;
}

export async function findAccount(database: Database, usernameKey: string): Promise<Account | null> {
  const [account] = await database.read(
    (sql) => sql<Account[]>`
      select ${userColumns(sql)}, u.password_hash from identity.users u
      where u.username_key = ${usernameKey} and u.deleted_at is null`,
  );
  return account ?? null;
}

/** @returns null also for a user who was deleted */
export async function findUser(database: Database, id: string): Promise<User | null> {
  const [user] = await database.read((sql) => sql<User[]>`select ${userColumns(sql)} from identity.users u where u.id = ${id} and u.deleted_at is null`);
  return user ?? null;
}

const LIST_BATCH = 500;

/** Oldest first, without the deleted; some at a time, so that memory does not grow with their number. */
export async function* eachUser(database: Database): AsyncGenerator<User[]> {
  for (let after: string | null = null; ; ) {
    const rows: User[] = await database.list((sql) => {
      // By the row and not by its time, which has microseconds in the database and only milliseconds here.
      const behind = after === null ? sql`true` : sql`(u.created_at, u.id) > (select created_at, id from identity.users where id = ${after})`;
      return sql<User[]>`
        select ${userColumns(sql)} from identity.users u
        where u.deleted_at is null and ${behind}
        order by ${inOrder(sql, 'u', false)} limit ${LIST_BATCH}`;
    });
    yield rows;
    after = rows.at(-1)?.id ?? null;
    if (rows.length < LIST_BATCH) return;
  }
}

/** Oldest first, without the deleted. */
export function listUsers(database: Database, page: Page): Promise<Part<User>> {
  return database.list(async (sql) => {
    const total = await totalOf(sql, 'users');
    const rows = await sql<User[]>`
      select ${userColumns(sql)}
      from (${idsOf(sql, sql`identity.users`, sql`x.deleted_at is null`, 'oldest first', spanOf(page, total))}) page join identity.users u on u.id = page.id
      order by ${inOrder(sql, 'u', false)}`;
    return { rows, total };
  });
}

export async function anyUserExists(sql: Sql): Promise<boolean> {
  const [row] = await sql<[{ found: boolean }]>`select exists (select 1 from identity.users) as found`;
  return row.found;
}

/** @throws Duplicate, with the index's name, when the username or the address is taken */
export async function insertUser(sql: Sql, actor: Actor, id: string, values: UserValues): Promise<User> {
  const [user] = await audited<User>(
    sql,
    { event: 'user.created', actor },
    sql`
      insert into identity.users as u
        (id, username, username_key, email, email_key, first_name, last_name, password_hash, enabled, verified, super_admin)
      values (${id}, ${values.username}, ${values.username_key}, ${values.email}, ${values.email_key}, ${values.first_name},
        ${values.last_name}, ${values.password_hash}, ${values.enabled}, ${values.verified}, ${values.super_admin})
      returning ${userColumns(sql)}, u.id as user_id`,
    sql`, counted as (${counting(sql, 'users', 1)})`,
  );
  if (!user) throw new Error('internal error: an insert returned no row');
  return user;
}

/** Why a change was not made. `demoted`: the one who asks is no longer an administrator. */
export type Refusal = 'unknown' | 'demoted' | 'last administrator';

/** What a change does besides, in the same transaction. */
interface Consequences {
  /** Its user may lose the rights of an administrator. */
  readonly lessens: boolean;
  /** The user's sessions end. */
  readonly endsSessions: boolean;
}

/**
 * Changes a user, with everything that follows from it, in one transaction. The user's row is locked first and the lines
 * of the trail come last: they touch its total, which every other write of this process waits for.
 * @throws Duplicate, with the index's name, when the username or the address is taken
 */
export function updateUser(database: Database, entry: AuditEntry, id: string, values: Partial<UserValues>, { lessens, endsSessions }: Consequences): Promise<User | Refusal> {
  return database.transaction(async (sql) => {
    const refusal = (lessens ? await administratorsRefuse(sql, entry.actor, id) : null) ?? (await lockUser(sql, id));
    if (refusal) return refusal;
    const ended = endsSessions ? await endSessions(sql, id) : null;
    const [user] = await audited<User>(
      sql,
      entry,
      sql`update identity.users u set ${sql(values)}, updated_at = now() where u.id = ${id} returning ${userColumns(sql)}, u.id as user_id`,
    );
    if (ended) await noteEnded(sql, entry.actor, id, ended);
    return user ?? 'unknown';
  });
}

/** Soft: the row stays for the trail's sake. The name and the address are free again. */
export function deleteUser(database: Database, actor: Actor, id: string): Promise<User | Refusal> {
  return database.transaction(async (sql) => {
    const refusal = (await administratorsRefuse(sql, actor, id)) ?? (await lockUser(sql, id));
    if (refusal) return refusal;
    const ended = await endSessions(sql, id);
    await audited(
      sql,
      { event: 'key.revoked', actor },
      sql`update identity.api_keys set revoked = true, updated_at = now() where user_id = ${id} and deleted_at is null and not revoked returning id, user_id`,
    );
    const [user] = await audited<User>(
      sql,
      { event: 'user.deleted', actor },
      sql`update identity.users u set deleted_at = now(), updated_at = now() where u.id = ${id} returning ${userColumns(sql)}, u.id as user_id`,
      sql`, counted as (${counting(sql, 'users', -1)})`,
    );
    await noteEnded(sql, actor, id, ended);
    return user ?? 'unknown';
  });
}

async function lockUser(sql: Sql, id: string): Promise<Refusal | null> {
  const rows = await sql`select 1 from identity.users where id = ${id} and deleted_at is null for update`;
  return rows.length === 0 ? 'unknown' : null;
}

/**
 * Whatever takes an administrator's rights away takes turns: of two who demote each other at the same time, the second
 * one waits here and then finds that they are none any more. One who can log in is always left.
 */
async function administratorsRefuse(sql: Sql, actor: Actor, id: string): Promise<Refusal | null> {
  await takeNamedLock(sql, SCHEMA, 'administrators');
  const rows = await sql<Array<{ id: string; enters: boolean }>>`
    select id, password_hash is not null as enters from identity.users where super_admin and enabled and deleted_at is null`;
  if (actor.userId !== null && !rows.some((row) => row.id === actor.userId)) return 'demoted';
  const others = rows.filter((row) => row.enters && row.id !== id);
  return others.length === 0 && rows.some((row) => row.id === id) ? 'last administrator' : null;
}

/**
 * The user's own change: only where nobody has changed the password since it was checked.
 * @returns how many other sessions have ended, or null
 */
export function replacePassword(database: Database, actor: Actor, account: Account, after: string, { sessionId, pair }: { sessionId: string; pair: Buffer }): Promise<number | null> {
  return database.transaction(async (sql) => {
    const [locked] = await sql`
      select 1 from identity.users
      where id = ${account.id} and password_hash = ${account.password_hash} and enabled and deleted_at is null for update`;
    if (!locked) return null;
    const ended = await endSessions(sql, account.id, sessionId);
    await audited(
      sql,
      { event: 'password.changed', actor },
      sql`update identity.users set password_hash = ${after}, updated_at = now() where id = ${account.id} returning id, id as user_id`,
      sql`, cleared as (${clearing(sql, pair)})`,
    );
    await noteEnded(sql, actor, account.id, ended);
    return ended.count;
  });
}

/** Only where nobody has changed the password meanwhile. The password stays the same, so the trail has no line of it. */
export async function replaceHash(database: Database, userId: string, before: string, after: string): Promise<void> {
  await database.write((sql) => sql`update identity.users set password_hash = ${after} where id = ${userId} and password_hash = ${before}`);
}
