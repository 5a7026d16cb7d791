import { randomUUID } from 'node:crypto';
import { takeNamedLock } from '../../db/lock.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { clearFailures } from '../../db/throttle.ts';
import { type Account, accountKey, type User } from '../model.ts';
import { SCHEMA } from '../schema.ts';
import { type Actor, audited, type AuditEntry, hold } from './audit.ts';
import { countRows, type Page, type PageOf, userColumns } from './rows.ts';
import { type EndedCount, endSessions, newSession, type NewSession } from './sessions.ts';

/** What may be written of a user. A generated password expires. */
export type UserValues = Omit<User, 'id' | 'created_at' | 'updated_at' | 'deleted_at'> &
  Readonly<{ password_hash: string | null; password_generated: boolean }>;

/** Names and addresses are unique by their keys. */
const withKeys = (values: Partial<UserValues>) => ({
  ...values,
  ...(values.username === undefined ? {} : { username_key: accountKey(values.username) }),
  ...(values.email === undefined ? {} : { email_key: accountKey(values.email) }),
});

/** @returns null also for a deleted user */
async function readAccount(
  database: Database,
  where: (sql: Sql) => Fragment,
): Promise<Account | null> {
  const [account] = await database.read(
    (sql) => sql<Account[]>`
    select ${userColumns(sql)}, u.password_hash, u.second_factor,
      case when u.password_generated then u.password_set_at + interval '24 hours' end as password_expires_at,
      u.password_generated and u.password_set_at + interval '24 hours' <= now() as password_expired
    from identity.users u where ${where(sql)} and u.deleted_at is null`,
  );
  return account ?? null;
}

export const findAccount = (database: Database, usernameKey: string) =>
  readAccount(database, (sql) => sql`u.username_key = ${usernameKey}`);
export const findUser = (database: Database, id: string) =>
  readAccount(database, (sql) => sql`u.id = ${id}`);

const LIST_BATCH = 500;

/** Oldest first, without the deleted; in batches, so that memory does not grow with the number of users. */
export async function* eachUser(database: Database): AsyncGenerator<User[]> {
  for (let after: string | null = null; ;) {
    const rows: User[] = await database.list((sql) => {
      // Compared in the database: its times have microseconds, a Date only milliseconds.
      const isNext = sql`(u.created_at, u.id) > (select created_at, id from identity.users where id = ${after})`;
      return sql<User[]>`
        select ${userColumns(sql)} from identity.users u
        where u.deleted_at is null and ${after === null ? sql`true` : isNext}
        order by u.created_at, u.id limit ${LIST_BATCH}`;
    });
    yield rows;
    after = rows.at(-1)?.id ?? null;
    if (rows.length < LIST_BATCH) return;
  }
}

/** Oldest first, without the deleted. */
export function listUsers(database: Database, { page, limit }: Page): Promise<PageOf<User>> {
  return database.list(async (sql) => {
    const rows = await sql<User[]>`
      select ${userColumns(sql)} from (
        select id from identity.users where deleted_at is null
        order by created_at, id limit ${limit} offset ${(page - 1) * limit}
      ) page join identity.users u on u.id = page.id
      order by u.created_at, u.id`;
    return { rows, total: await countRows(sql, sql`identity.users`, sql`x.deleted_at is null`) };
  });
}

export const anyUserExists = async (sql: Sql): Promise<boolean> =>
  (await sql<[{ found: boolean }]>`select exists (select 1 from identity.users) as found`)[0].found;

/** In a transaction. @throws Duplicate, with the index's name, if the username or the address is taken */
export async function insertUser(sql: Sql, actor: Actor, values: UserValues): Promise<User> {
  await hold(sql, actor, null);
  const row = { id: randomUUID(), ...withKeys(values) };
  const [user] = await audited<User>(
    sql,
    { event: 'user.created', actor },
    sql`
    insert into identity.users as u (${sql(Object.keys(row))}) select ${sql(row)}
    returning ${userColumns(sql)}, u.id as user_id`,
  );
  if (!user) throw new Error('internal error: an insert returned no row');
  return user;
}

/** `revoked_keys`: how many keys without a user, which this former administrator had created, were revoked. */
export type ChangedUser = User & Readonly<{ revoked_keys?: number; ended_sessions?: EndedCount }>;

/** Why a change was not made. */
export type Obstacle = 'unknown' | 'last administrator';

/**
 * Changes a user, and everything that follows from it. A deleted user's row stays for the audit trail.
 * @param expectedHash nothing is changed under another  @throws Duplicate if the username or the address is taken
 */
export function updateUser(
  database: Database,
  entry: AuditEntry,
  id: string,
  values: Partial<UserValues> | 'delete',
  expectedHash?: string | null,
  andThen?: (sql: Sql) => Promise<void>,
): Promise<ChangedUser | Obstacle> {
  const isOut = values === 'delete' || values.enabled === false;
  const isDemoted = values === 'delete' || values.super_admin === false;
  const endsRights = isOut || isDemoted;
  const endsSessions = isOut || values.password_hash !== undefined;
  return database.transaction(async (sql) => {
    // Serializes all that ends an administrator's rights.
    if (endsRights) await takeNamedLock(sql, SCHEMA.name, 'administrators');
    const { actor } = entry;
    if (!(await hold(sql, actor, id))) return 'unknown';
    if (expectedHash !== undefined) {
      const { count } =
        await sql`select from identity.users where id = ${id} and password_hash = ${expectedHash}`;
      if (count === 0) return 'unknown';
    }
    if (endsRights && (await isLastAdministrator(sql, id))) return 'last administrator';
    const ended = endsSessions ? await endSessions(sql, actor, id) : 0;
    const revokeKeys = (where: Fragment, detail: string) =>
      audited(
        sql,
        { event: 'key.revoked', actor, detail },
        sql`
      update identity.api_keys set revoked = true, updated_at = now()
      where ${where} and deleted_at is null and not revoked returning id, ${id}::uuid as user_id`,
      );
    if (values === 'delete') await revokeKeys(sql`user_id = ${id}`, '');
    const orphans = isDemoted
      ? await revokeKeys(sql`user_id is null and created_by = ${id}`, 'without a user')
      : null;
    if (values === 'delete') await eraseFactors(sql, id);
    const change =
      values === 'delete' ? sql`deleted_at = now(), password_hash = null` : sql(withKeys(values));
    const setAt =
      values !== 'delete' && values.password_hash !== undefined
        ? sql`, password_set_at = now()`
        : sql``;
    const [user] = await audited<User>(
      sql,
      entry,
      sql`
      update identity.users u set ${change} ${setAt}, updated_at = now() where u.id = ${id}
      returning ${userColumns(sql)}, u.id as user_id`,
    );
    await andThen?.(sql);
    return user
      ? { ...user, ended_sessions: ended, ...(orphans && { revoked_keys: orphans.length }) }
      : 'unknown';
  });
}

/** At once, as the hash of the password: a passkey may be registered for another account then. */
async function eraseFactors(sql: Sql, id: string): Promise<void> {
  await sql`
    with codes as (delete from identity.recovery_codes where user_id = ${id}),
      apps as (delete from identity.totp where user_id = ${id}),
      keys as (delete from identity.passkeys where user_id = ${id}),
      waiting as (delete from identity.pending_sign_ins where user_id = ${id})
    update identity.users set second_factor = false where id = ${id}`;
}

/** One administrator who can log in always remains. */
async function isLastAdministrator(sql: Sql, id: string): Promise<boolean> {
  const rows = await sql<Array<{ id: string; can_log_in: boolean }>>`
    select id, password_hash is not null and not password_generated as can_log_in from identity.users
    where super_admin and enabled and deleted_at is null`;
  return rows.some((row) => row.id === id) && !rows.some((row) => row.can_log_in && row.id !== id);
}

/** A user's own new password begins a new session (ASVS 7.2.4). */
export const replacePassword = (
  database: Database,
  actor: Actor,
  { id, password_hash }: Account,
  hash: string,
  session: NewSession,
  throttle: Buffer,
): Promise<ChangedUser | Obstacle> => {
  const values = { password_hash: hash, password_generated: false };
  return updateUser(
    database,
    { event: 'password.changed', actor },
    id,
    values,
    password_hash,
    async (sql) => {
      await clearFailures(sql, SCHEMA.name, throttle);
      await sql`${newSession(sql, session, { id, password_hash: hash, updated_at: null })}`;
    },
  );
};

/** Stores the same password at another cost, unless it was changed meanwhile. */
export async function replaceHash(
  database: Database,
  id: string,
  before: string | null,
  after: string,
): Promise<void> {
  await database.write(
    (sql) => sql`
    update identity.users set password_hash = ${after} where id = ${id} and password_hash = ${before}`,
  );
}
