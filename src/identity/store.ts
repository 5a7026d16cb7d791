import type { Database, Sql } from '../db/pool.ts';
import type { Session, User } from './rules.ts';
import type { SessionToken } from './token.ts';
import { digestOf } from './token.ts';

/** A user and what is needed to log in. */
export interface Account extends User {
  readonly password_hash: string | null;
}

export interface NewUser {
  readonly id: string;
  readonly username: string;
  readonly usernameKey: string;
  readonly email: string;
  readonly emailKey: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly passwordHash: string | null;
  readonly verified: boolean;
  readonly superAdmin: boolean;
}

const userColumns = (sql: Sql) => sql`
  u.id, u.first_name, u.last_name, u.username, u.email, u.enabled, u.verified, u.super_admin,
  u.created_at, u.updated_at, u.deleted_at`;

/** The session's columns are prefixed, because both tables have an id and three times. */
const sessionColumns = (sql: Sql) => sql`
  s.id as s_id, s.user_id as s_user_id, s.revoked as s_revoked, s.logged_out as s_logged_out,
  s.expires_at as s_expires_at, s.expires_at <= now() as s_expired,
  s.created_at as s_created_at, s.updated_at as s_updated_at, s.deleted_at as s_deleted_at`;

interface SessionAndUser extends User {
  readonly s_id: string;
  readonly s_user_id: string;
  readonly s_revoked: boolean;
  readonly s_logged_out: boolean;
  readonly s_expires_at: Date;
  readonly s_expired: boolean;
  readonly s_created_at: Date;
  readonly s_updated_at: Date;
  readonly s_deleted_at: Date | null;
}

function toSession(row: SessionAndUser): Session {
  const { s_id, s_user_id, s_revoked, s_logged_out, s_expires_at, s_expired, s_created_at, s_updated_at, s_deleted_at, ...user } = row;
  return {
    id: s_id,
    user_id: s_user_id,
    revoked: s_revoked,
    logged_out: s_logged_out,
    expires_at: s_expires_at,
    expired: s_expired,
    created_at: s_created_at,
    updated_at: s_updated_at,
    deleted_at: s_deleted_at,
    user,
  };
}

export async function findAccount(database: Database, usernameKey: string): Promise<Account | null> {
  const [account] = await database.read(
    (sql) => sql<Account[]>`
      select ${userColumns(sql)}, u.password_hash from identity.users u
      where u.username_key = ${usernameKey} and u.deleted_at is null`,
  );
  return account ?? null;
}

export async function userExists(database: Database, id: string): Promise<boolean> {
  const rows = await database.read((sql) => sql`select 1 from identity.users where id = ${id} and deleted_at is null`);
  return rows.length > 0;
}

/** Oldest first, without the deleted. */
export async function listUsers(database: Database): Promise<User[]> {
  return database.list(
    (sql) => sql<User[]>`select ${userColumns(sql)} from identity.users u where u.deleted_at is null order by u.created_at, u.id`,
  );
}

export async function anyUserExists(sql: Sql): Promise<boolean> {
  const [row] = await sql<[{ found: boolean }]>`select exists (select 1 from identity.users) as found`;
  return row.found;
}

/** @throws Duplicate, with the index's name, when the username or the address is taken */
export async function insertUser(sql: Sql, user: NewUser): Promise<User> {
  const [row] = await sql<[User]>`
    insert into identity.users as u
      (id, username, username_key, email, email_key, first_name, last_name, password_hash, enabled, verified, super_admin)
    values (${user.id}, ${user.username}, ${user.usernameKey}, ${user.email}, ${user.emailKey}, ${user.firstName},
      ${user.lastName}, ${user.passwordHash}, true, ${user.verified}, ${user.superAdmin})
    returning ${userColumns(sql)}`;
  return row;
}

/** Only where nobody has changed the password meanwhile. */
export async function replaceHash(database: Database, userId: string, before: string, after: string): Promise<void> {
  await database.write((sql) => sql`update identity.users set password_hash = ${after} where id = ${userId} and password_hash = ${before}`);
}

/**
 * The user's row is locked against a change that is under way, which would otherwise not see this session and leave it alive.
 * @returns false when the user was disabled, deleted or given another password since the check: then there is no session
 */
export async function insertSession(database: Database, id: string, token: SessionToken, user: Account, seconds: number): Promise<boolean> {
  const result = await database.write(
    (sql) => sql`
      insert into identity.sessions (id, token_digest, user_id, expires_at)
      select ${id}, ${digestOf(token)}, u.id, now() + make_interval(secs => ${seconds})
      from identity.users u
      where u.id = ${user.id} and u.enabled and u.deleted_at is null and u.password_hash = ${user.password_hash}
      for share of u`,
  );
  return result.count === 1;
}

export async function findSessionByToken(database: Database, token: SessionToken): Promise<Session | null> {
  const [row] = await database.read(
    (sql) => sql<SessionAndUser[]>`
      select ${sessionColumns(sql)}, ${userColumns(sql)}
      from identity.sessions s join identity.users u on u.id = s.user_id
      where s.token_digest = ${digestOf(token)} and s.deleted_at is null`,
  );
  return row ? toSession(row) : null;
}

/** @returns whose session it is, or null when there is none with this id */
export async function findSessionOwner(database: Database, id: string): Promise<string | null> {
  const [row] = await database.read(
    (sql) => sql<Array<{ user_id: string }>>`select user_id from identity.sessions where id = ${id} and deleted_at is null`,
  );
  return row?.user_id ?? null;
}

/** Newest first, whatever their flags, without the deleted. */
export async function listSessions(database: Database, page: { userId: string | null; limit: number; offset: number }): Promise<{ sessions: Session[]; total: number }> {
  return database.list(async (sql) => {
    const ofUser = page.userId === null ? sql`` : sql`and s.user_id = ${page.userId}`;
    const [[counted], rows] = await Promise.all([
      sql<[{ total: number }]>`select count(*)::int as total from identity.sessions s where s.deleted_at is null ${ofUser}`,
      sql<SessionAndUser[]>`
        select ${sessionColumns(sql)}, ${userColumns(sql)}
        from identity.sessions s join identity.users u on u.id = s.user_id
        where s.deleted_at is null ${ofUser}
        order by s.created_at desc, s.id desc
        limit ${page.limit} offset ${page.offset}`,
    ]);
    return { sessions: rows.map(toSession), total: counted.total };
  });
}

/** Ends a session for good; one that is unknown or has ended stays as it is. */
export async function logOut(database: Database, token: SessionToken): Promise<void> {
  await database.write(
    (sql) => sql`
      update identity.sessions set logged_out = true, updated_at = now()
      where token_digest = ${digestOf(token)} and deleted_at is null and not logged_out and not revoked and expires_at > now()`,
  );
}

/** @returns 1, or 0 when it was revoked before */
export async function revokeSession(database: Database, id: string): Promise<number> {
  const result = await database.write(
    (sql) => sql`update identity.sessions set revoked = true, updated_at = now() where id = ${id} and deleted_at is null and not revoked`,
  );
  return result.count;
}

/** A statement for each so many sessions: one for all of a large table would take longer than a statement may. */
const REVOKE_BATCH = 5_000;

/** Revokes every session that could still be used, of one user or (null) of all. @returns how many */
export async function revokeSessions(database: Database, userId: string | null): Promise<number> {
  let count = 0;
  for (let after = '00000000-0000-0000-0000-000000000000'; ; ) {
    const rows = await database.write((sql) => {
      const ofUser = userId === null ? sql`` : sql`and user_id = ${userId}`;
      return sql<Array<{ id: string }>>`
        update identity.sessions s set revoked = true, updated_at = now()
        from (
          select id from identity.sessions
          where id > ${after} and deleted_at is null and not revoked and not logged_out and expires_at > now() ${ofUser}
          order by id limit ${REVOKE_BATCH}
        ) batch
        where s.id = batch.id and not s.revoked
        returning s.id`;
    });
    count += rows.length;
    if (rows.length === 0) return count;
    after = rows.reduce((last, { id }) => (id > last ? id : last), after);
  }
}

/** Removes sessions that ended at least `seconds` ago. @returns how many; at most `most` */
export async function removeEndedSessions(database: Database, seconds: number, most: number): Promise<number> {
  const result = await database.write(
    (sql) => sql`
      delete from identity.sessions where id in (
        select id from identity.sessions
        where expires_at < now() - make_interval(secs => ${seconds})
        order by expires_at limit ${most}
      )`,
  );
  return result.count;
}
