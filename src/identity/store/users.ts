import { randomUUID } from 'node:crypto';
import { arrayLiteral, type Database, type Fragment, type Sql } from '../../platform/db/sql.ts';
import { type Account, groupChange, type User } from '../model.ts';
import { accountKey } from '../names.ts';
import { type Actor, audited, type AuditEntry } from './audit.ts';
import {
  changing,
  checkGroups,
  lockAndCheckRights,
  PromotionRefused,
  takeNamedLock,
} from './rights.ts';
import { clearFailures, type LoginThrottle } from './failures.ts';
import { revokeKeysOf, revokeKeysWithoutUser } from './keys.ts';
import { checkNames } from './names.ts';
import { firstRow, userColumns } from './rows.ts';
import { type EndedCount, endSessions } from './session-ends.ts';
import { insertCopySql } from './sessions.ts';

/** What may be written of a user. A generated password expires. */
type UserInput = Omit<User, 'id' | `${string}_at`> & PasswordInput;
export type PasswordInput = Readonly<{
  password_hash: string | null;
  password_generated: boolean;
}>;

/** Names and addresses are compared by their keys. */
const KEYED = ['username', 'email', 'first_name', 'last_name'] as const;

function columnsOf({ groups, ...input }: Partial<UserInput>) {
  const keys = KEYED.flatMap((name) => {
    const value = input[name];
    return value === undefined ? [] : [[`${name}_key`, accountKey(value)]];
  });
  return { ...input, ...Object.fromEntries(keys), ...(groups && { groups: arrayLiteral(groups) }) };
}

/** Finds a user. @returns null if there is none, or the user is deleted */
const accountFinder = (isUserSql: Find) => (database: Database, value: string) =>
  firstRow(
    database.read(
      (sql) => sql<Account[]>`
      select ${userColumns(sql)}, u.password_hash, u.second_factor,
        case when u.password_generated then u.password_set_at + interval '24 hours' end
          as password_expires_at,
        u.password_generated and u.password_set_at + interval '24 hours' <= now()
          as password_expired
      from identity.users u
      where ${isUserSql(sql, value)}
        and u.deleted_at is null`,
    ),
  );
type Find = (sql: Sql, value: string) => Fragment;
/** By the key of the username or of the e-mail address. */
export const findAccount = accountFinder(
  (sql, key) => sql`(u.username_key = ${key} or u.email_key = ${key})`,
);
export const findUser = accountFinder((sql, id) => sql`u.id = ${id}`);

export const anyUserExists = async (sql: Sql) =>
  (await sql`select from identity.users limit 1`).count > 0;

/** @param write a statement that writes one user `u` */
export async function writeUser(sql: Sql, entry: AuditEntry, write: Fragment) {
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
  checkGroups(actor, [], input.groups);
  const columns = { id: randomUUID(), ...columnsOf(input) };
  const insert = sql`
    insert into identity.users as u (${sql(Object.keys(columns))}) select ${sql(columns)}`;
  const detail = groupChange([], input.groups);
  const user = await writeUser(sql, { event: 'user.created', actor, detail }, insert);
  await checkNames(sql, user);
  return user;
}

/**
 * `revoked_keys`: after a promotion, how many keys of the user were revoked; after the end of an
 * administrator's rights, how many keys without a user which they had created.
 */
export type ChangedUser = User & Readonly<{ revoked_keys?: number; ended_sessions?: EndedCount }>;

/** Nothing was changed: one administrator who can log in always remains. */
export class LastAdministrator extends Error {}

/**
 * Like `changing`, for a change that ends the rights of a user who may be an administrator.
 * @throws LastAdministrator
 */
const endingRights: typeof changing = (database, actor, id, work) =>
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
 * Changes members of a user. Disabling ends the sessions. So does a promotion, and revokes the
 * keys: a thief must not become an administrator with what was stolen from a user.
 * @param memberDetail for the audit trail, without the groups
 * @param mayPromote whether the actor may make an administrator
 * @throws Duplicate if the username or the address is taken  @throws PromotionRefused
 */
export function changeUser(
  database: Database,
  actor: Actor,
  id: string,
  change: Partial<Omit<UserInput, keyof PasswordInput>>,
  memberDetail: string,
  mayPromote: boolean,
) {
  const isDisabled = change.enabled === false;
  const isDemoted = change.super_admin === false;
  const inTransaction = isDisabled || isDemoted ? endingRights : changing;
  return inTransaction(database, actor, id, async (sql): Promise<ChangedUser> => {
    const before = await readRights(sql, id);
    checkGroups(actor, before.groups, change.groups ?? before.groups);
    // To enable an administrator is to make one, whom another request may just have disabled.
    const isEnabled = change.enabled === true && !before.enabled;
    const isAdministrator = change.super_admin ?? before.super_admin;
    if (isEnabled && isAdministrator && !mayPromote) throw new PromotionRefused();
    const isPromoted = change.super_admin === true && !before.super_admin;
    if (isDisabled) await endAccess(sql, actor, id, 'user disabled');
    if (isPromoted) await endAccess(sql, actor, id, PROMOTION);
    const revoked = isDemoted && { revoked_keys: await revokeKeysWithoutUser(sql, actor, id) };
    const ended = isPromoted && { revoked_keys: await revokeKeysOf(sql, actor, id, PROMOTION) };
    const update = sql`
      update identity.users u
      set ${sql(columnsOf(change))}, updated_at = now()
      where u.id = ${id}`;
    const groups = change.groups ? groupChange(before.groups, change.groups) : '';
    const detail = [memberDetail, groups].filter(Boolean).join(' ');
    const user = await writeUser(sql, { event: 'user.changed', actor, detail }, update);
    if (change.username !== undefined || change.email !== undefined) await checkNames(sql, user);
    return { ...user, ...revoked, ...ended };
  });
}

/** For the audit trail. */
const PROMOTION = 'promotion';

/**
 * Ends the sessions of a user, and the link with which another could begin.
 * @param reason for the audit trail
 */
export async function endAccess(sql: Sql, actor: Actor, id: string, reason: string) {
  await endLink(sql, actor, id, reason);
  return endSessions(sql, actor, id);
}

/** Does nothing if no link is open. @param reason for the audit trail */
export const endLink = (sql: Sql, actor: Actor, id: string, reason: string) =>
  audited(
    sql,
    { event: 'link.revoked', actor, detail: reason },
    sql`
    update identity.links
    set is_ended = true
    where user_id = ${id}
      and not is_ended
      and expires_at > now()
    returning user_id as id, user_id`,
  );

/** Under the lock of the user. */
async function readRights(sql: Sql, id: string) {
  const [user] = await sql<[Pick<User, 'enabled' | 'groups' | 'super_admin'>]>`
    select enabled, super_admin, to_json(groups) as groups
    from identity.users
    where id = ${id}`;
  return user;
}

/** Ends the sessions and revokes the keys. The row stays for the audit trail. */
export const deleteUser = (database: Database, actor: Actor, id: string) =>
  endingRights(database, actor, id, async (sql) => {
    await endAccess(sql, actor, id, 'user deleted');
    await revokeKeysOf(sql, actor, id);
    const revoked_keys = await revokeKeysWithoutUser(sql, actor, id);
    // At once, as the hash of the password: a passkey may be registered for another account then.
    await eraseFactors(sql, id);
    const update = sql`
      update identity.users u
      set deleted_at = now(), password_hash = null, second_factor = false,
        updated_at = now()
      where u.id = ${id}`;
    return { ...(await writeUser(sql, { event: 'user.deleted', actor }, update)), revoked_keys };
  });

/** Erases also what has been proved of them. @returns how many there were */
export async function eraseFactors(sql: Sql, id: string) {
  const [erased] = await sql<[{ count: number }]>`
    with codes as (delete from identity.recovery_codes where user_id = ${id}),
      pending as (delete from identity.pending_sign_ins where user_id = ${id}),
      apps as (delete from identity.totp where user_id = ${id} returning user_id),
      keys as (delete from identity.passkeys where user_id = ${id} returning user_id)
    select count(*)::int4 as count from (select from apps union all select from keys) factors`;
  return erased.count;
}

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
 * A user's own new password replaces the session (ASVS 7.2.4).
 * @returns null if the password has changed since it was checked
 */
export const replacePassword = (
  database: Database,
  actor: Actor,
  { id, password_hash: expectedHash }: Account,
  hash: string,
  token: string,
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
    await sql`${insertCopySql(sql, actor.caller?.session?.id, token)}`;
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
  const ended_sessions = await endAccess(sql, entry.actor, id, 'new password');
  const update = sql`
    update identity.users u
    set ${sql(password)}, password_set_at = now(), updated_at = now()
    where u.id = ${id}`;
  return { ...(await writeUser(sql, entry, update)), ended_sessions };
}
