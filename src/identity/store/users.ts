import { randomUUID } from 'node:crypto';
import { arrayLiteral } from '../../db/sql.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { type Account, accountKey, groupChange, type User } from '../model.ts';
import {
  type Actor,
  audited,
  type AuditEntry,
  changing,
  clearFailures,
  lockAndCheckRights,
  type LoginThrottle,
} from './audit.ts';
import { revokeKeys } from './keys.ts';
import { firstRow, userColumns } from './rows.ts';
import { type EndedCount, endSessions } from './session-ends.ts';
import { insertSessionSql, type NewSession } from './sessions.ts';

/** What may be written of a user. A generated password expires. */
type UserInput = Omit<User, 'id' | `${string}_at`> & PasswordInput;
export type PasswordInput = Readonly<{ password_hash: string | null; password_generated: boolean }>;

/** Names and addresses are unique by their keys. */
const columnsOf = ({ groups, ...input }: Partial<UserInput>) => ({
  ...input,
  ...(groups && { groups: arrayLiteral(groups) }),
  ...(input.username !== undefined && { username_key: accountKey(input.username) }),
  ...(input.email !== undefined && { email_key: accountKey(input.email) }),
});

/** Finds a user by this column. @returns null if there is none, or the user is deleted */
const accountFinder = (column: 'username_key' | 'id') => (database: Database, value: string) =>
  firstRow(
    database.read(
      (sql) => sql<Account[]>`
      select ${userColumns(sql)}, u.password_hash, u.second_factor,
        case when u.password_generated then u.password_set_at + interval '24 hours' end
          as password_expires_at,
        u.password_generated and u.password_set_at + interval '24 hours' <= now()
          as password_expired
      from identity.users u
      where u.${sql(column)} = ${value}
        and u.deleted_at is null`,
    ),
  );
export const findAccount = accountFinder('username_key');
export const findUser = accountFinder('id');

export const anyUserExists = async (sql: Sql) =>
  (await sql`select from identity.users limit 1`).count > 0;

/** @param write a statement that writes one user `u` */
async function writeUser(sql: Sql, entry: AuditEntry, write: Fragment) {
  const change = sql`${write} returning ${userColumns(sql)}, u.id as user_id`;
  const [user] = await audited<User>(sql, entry, change);
  if (!user) throw new Error('internal error: no user was written');
  return user;
}

/**
 * In a transaction.
 * @throws Duplicate, with the index's name, if the username or the address is taken
 */
export async function insertUser(sql: Sql, actor: Actor, input: UserInput) {
  await lockAndCheckRights(sql, actor, null);
  const columns = { id: randomUUID(), ...columnsOf(input) };
  const insert = sql`
    insert into identity.users as u (${sql(Object.keys(columns))}) select ${sql(columns)}`;
  const detail = groupChange([], input.groups);
  return writeUser(sql, { event: 'user.created', actor, detail }, insert);
}

/**
 * `revoked_keys`: how many keys without a user, which this former administrator had created, were
 * revoked.
 */
export type ChangedUser = User & Readonly<{ revoked_keys?: number; ended_sessions?: EndedCount }>;

/** Nothing was changed: one administrator who can log in always remains. */
export class LastAdministrator extends Error {}

/**
 * Waits for the lock and keeps it to the end of the transaction: for work that only one replica may
 * do at a time.
 */
export const takeNamedLock = (sql: Sql, name: string) => sql`
  insert into identity.locks (name, taken_at) values (${name}, now())
  on conflict (name) do update set taken_at = excluded.taken_at`;

/**
 * Like `changing`, for a change that ends the rights of a user who may be an administrator.
 * @throws LastAdministrator
 */
const endingRights: typeof changing<ChangedUser> = (database, actor, id, work) =>
  database.transaction(async (sql) => {
    // Serializes all that ends an administrator's rights.
    await takeNamedLock(sql, 'administrators');
    if (!(await lockAndCheckRights(sql, actor, id))) return null;
    if (await isLastAdministrator(sql, id)) throw new LastAdministrator();
    return work(sql);
  });

async function isLastAdministrator(sql: Sql, id: string | null) {
  const { count } = await sql`
    with administrators as (
      select id, password_hash is not null and not password_generated as can_log_in
      from identity.users
      where super_admin
        and enabled
        and deleted_at is null)
    select from administrators
    where id = ${id}
      and not exists (select from administrators where id <> ${id} and can_log_in)`;
  return count > 0;
}

/**
 * Changes members of a user. Disabling ends the sessions.
 * @param memberDetail for the audit trail, without the groups
 * @throws Duplicate if the username or the address is taken
 */
export function changeUser(
  database: Database,
  actor: Actor,
  id: string,
  change: Partial<Omit<UserInput, keyof PasswordInput>>,
  memberDetail: string,
) {
  const isDisabled = change.enabled === false;
  const isDemoted = change.super_admin === false;
  const inTransaction = isDisabled || isDemoted ? endingRights : changing<ChangedUser>;
  return inTransaction(database, actor, id, async (sql) => {
    if (isDisabled) await endAccess(sql, actor, id);
    const revoked = isDemoted && { revoked_keys: await revokeKeysWithoutUser(sql, actor, id) };
    const update = sql`
      update identity.users u
      set ${sql(columnsOf(change))}, updated_at = now()
      where u.id = ${id}`;
    const groups = change.groups ? await readGroupChange(sql, id, change.groups) : '';
    const detail = [memberDetail, groups].filter(Boolean).join(' ');
    const user = await writeUser(sql, { event: 'user.changed', actor, detail }, update);
    return { ...user, ...revoked };
  });
}

/** Ends the sessions of a user, and the link with which another could begin. */
async function endAccess(sql: Sql, actor: Actor, id: string) {
  await sql`update identity.links set is_ended = true where user_id = ${id}`;
  return endSessions(sql, actor, id);
}

/** For the audit trail, under the lock of the user. */
async function readGroupChange(sql: Sql, id: string, after: readonly string[]) {
  const [user] = await sql<[Pick<User, 'groups'>]>`
    select to_json(groups) as groups
    from identity.users
    where id = ${id}`;
  return groupChange(user.groups, after);
}

/** Ends the sessions and revokes the keys. The row stays for the audit trail. */
export const deleteUser = (database: Database, actor: Actor, id: string) =>
  endingRights(database, actor, id, async (sql) => {
    await endAccess(sql, actor, id);
    await revokeKeys(sql, actor, sql`user_id = ${id}`);
    const revoked_keys = await revokeKeysWithoutUser(sql, actor, id);
    // At once, as the hash of the password: a passkey may be registered for another account then.
    await sql`
      with codes as (delete from identity.recovery_codes where user_id = ${id}),
        apps as (delete from identity.totp where user_id = ${id}),
        keys as (delete from identity.passkeys where user_id = ${id})
      delete from identity.pending_sign_ins where user_id = ${id}`;
    const update = sql`
      update identity.users u
      set deleted_at = now(), password_hash = null, second_factor = false,
        updated_at = now()
      where u.id = ${id}`;
    return { ...(await writeUser(sql, { event: 'user.deleted', actor }, update)), revoked_keys };
  });

/** Revokes those that an administrator made. @returns how many */
const revokeKeysWithoutUser = (sql: Sql, actor: Actor, id: string) =>
  revokeKeys(sql, actor, sql`user_id is null and created_by = ${id}`, 'without a user', id);

/**
 * Ends the sessions.
 * @param expectedHash if given, nothing is changed under another
 * @returns null if nothing was changed
 */
export const setPasswordHash = (
  database: Database,
  actor: Actor,
  id: string,
  password: PasswordInput,
  expectedHash?: string | null,
) =>
  changing(database, actor, id, (sql) =>
    writePassword(sql, { event: 'password.set', actor }, id, password, expectedHash),
  );

/**
 * A user's own new password begins a new session (ASVS 7.2.4).
 * @returns null if the password has changed since it was checked
 */
export const replacePassword = (
  database: Database,
  actor: Actor,
  { id, password_hash: expectedHash }: Account,
  hash: string,
  session: NewSession,
  throttle: LoginThrottle,
) =>
  changing(database, actor, id, async (sql) => {
    const user = await writePassword(
      sql,
      { event: 'password.changed', actor },
      id,
      { password_hash: hash, password_generated: false },
      expectedHash,
    );
    if (!user) return null;
    await clearFailures(sql, throttle);
    await sql`${insertSessionSql(sql, session, { ...user, password_hash: hash })}`;
    return user;
  });

export async function writePassword(
  sql: Sql,
  entry: AuditEntry,
  id: string,
  password: PasswordInput,
  expectedHash?: string | null,
) {
  if (expectedHash !== undefined) {
    const { count } = await sql`
      select from identity.users
      where id = ${id}
        and password_hash = ${expectedHash}`;
    if (count === 0) return null;
  }
  const ended_sessions = await endAccess(sql, entry.actor, id);
  const update = sql`
    update identity.users u
    set ${sql(password)}, password_set_at = now(), updated_at = now()
    where u.id = ${id}`;
  return { ...(await writeUser(sql, entry, update)), ended_sessions };
}

/** Stores the same password at another cost, unless it has changed since it was read. */
export const replaceHash = (database: Database, id: string, before: string | null, after: string) =>
  database.write(
    (sql) => sql`
    update identity.users
    set password_hash = ${after}
    where id = ${id}
      and password_hash = ${before}`,
  );
