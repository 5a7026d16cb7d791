import { randomUUID } from 'node:crypto';
import { sha256 } from '../../platform/crypto/token.ts';
import type { Database, Sql } from '../../platform/db/pool.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import type { Account, CallerSession, Session } from '../model.ts';
import { audited, type AuditEntry } from './audit.ts';
import { clearFailures, type LoginThrottle } from './failures.ts';
import {
  type ByDigest,
  countRows,
  finderByDigest,
  isActiveItselfSql,
  isActiveSql,
  isExpiredSql,
  isOfUserSql,
  type JoinedUser,
  joinedUser,
  type Page,
  rowsOfPage,
  userOf,
} from './rows.ts';

/** A session that stays ends if it is not used for a week. */
export const STAY_IDLE_SECONDS = 7 * DAY_SECONDS;

/** `idleSeconds`: a session that was not used for this long has expired; 0 for no limit. */
export type Sessions = Readonly<{ database: Database; idleSeconds: number }>;

/**
 * `staySeconds`: if its user stays signed in. `methods`: how it was proved, such as `password,
 * totp`. With the password alone, there is no session if the user has got a factor since its check.
 */
export type NewSession = Readonly<{
  id: string;
  token: string;
  seconds: number;
  staySeconds: number | null;
  ip: string;
  userAgent: string | null;
  methods: string;
}>;

/** `updated_at` was read before the factor was checked: the factor may since have been removed. */
type LoginAccount = Pick<Account, 'id' | 'password_hash' | 'updated_at'>;

/**
 * Inserts a session, unless the user was disabled, deleted or changed since the check. The share
 * lock waits for a concurrent change of the user's row; then PostgreSQL evaluates the row again,
 * and so `clock_timestamp()`. So the session is either inserted before the change reads the clock,
 * and ends with it, or decided by the changed row. "Revoke all" needs no lock: a session with a
 * later time than its value belongs to a login that came after it. `updated_at` is compared in
 * milliseconds, because a `Date` has no more.
 */
const insertSessionSql = (sql: Sql, session: NewSession, account: LoginAccount) => sql`
  insert into identity.sessions
    (id, token_digest, user_id, ip, user_agent, methods, expires_at, stays_until, created_at,
      updated_at, last_seen_at)
  select ${session.id}, ${sha256(session.token)}, allowed.id, ${session.ip}, ${session.userAgent},
    ${session.methods}, at + make_interval(secs => ${session.seconds}),
    at + make_interval(secs => ${session.staySeconds}), at, at, at
  from (
    select u.id, clock_timestamp() as at from identity.users u
    where u.id = ${account.id} and u.enabled and u.deleted_at is null
      and u.password_hash is not distinct from ${account.password_hash}
      and date_trunc('milliseconds', u.updated_at) = ${account.updated_at}
      and (${session.methods} <> 'password' or not u.second_factor) for share
  ) allowed
  returning id, user_id`;

/**
 * A login ends its failures.
 * @returns false if the account has changed since the check
 */
export function insertSession(
  database: Database,
  entry: AuditEntry,
  session: NewSession,
  account: LoginAccount,
  throttle: LoginThrottle,
) {
  return database.transaction(async (sql) => {
    const change = insertSessionSql(sql, session, account);
    const rows = await audited(sql, entry, change);
    if (rows.length > 0) await clearFailures(sql, throttle);
    return rows.length > 0;
  });
}

/**
 * A copy of a session, which has just ended with the others of its user, takes its place: with its
 * end, and how and when it was proved. To replace a credential proves nothing anew.
 */
export const insertCopySql = (sql: Sql, id: string | undefined, token: string) => sql`
  insert into identity.sessions
    (id, token_digest, user_id, ip, user_agent, methods, authenticated_at, expires_at,
      stays_until, created_at, updated_at, last_seen_at)
  select ${randomUUID()}::uuid, ${sha256(token)}, user_id, ip, user_agent, methods,
    coalesce(authenticated_at, created_at), expires_at, stays_until, at, at, at
  from identity.sessions, clock_timestamp() as at
  where id = ${id ?? null}`;

/** Sessions `s`, each with its user `u` and the value `g` that ends the sessions of all users. */
export const sessionsSql = (sql: Sql) => sql`
  identity.sessions s
  join identity.users u on u.id = s.user_id
  cross join identity.global_revocation g`;

/** When the user of a session `s` signed in. */
export const provedAtSql = (sql: Sql) => sql`coalesce(s.authenticated_at, s.created_at)`;

/** What checks the token of a request. */
export type CallerRow = Pick<CallerSession, 'id' | 'last_seen_is_old' | 'age'> &
  Readonly<{ state: 'ended' | 'temporary password' | 'active'; is_proven: boolean }> &
  JoinedUser;
/** Of a session `s` with its user `u`, as in `CallerRow`. */
export const sessionStateSql = (sql: Sql, idleSeconds: number) => sql`
  case
    when s.revoked or s.logged_out or ${isExpiredSql(sql, idleSeconds)}
      or u.deleted_at is not null
      or s.created_at <= greatest(u.sessions_end_at, g.sessions_end_at)
    then 'ended'
    when u.password_generated then 'temporary password'
    else 'active'
  end`;

/**
 * With the digest, at most 19 columns in all: as objects, rows of more are several times as slow in
 * V8 11.
 */
export const callerColumns = (sql: Sql, idleSeconds: number) => sql`
  s.id, s.user_id, s.last_seen_at < now() - interval '1 minute' as last_seen_is_old,
  ${sessionStateSql(sql, idleSeconds)} as state,
  extract(epoch from now() - ${provedAtSql(sql)})::float8 as age,
  s.methods <> 'password' or not u.second_factor as is_proven, ${joinedUser(sql)}`;
export const callerOf = (row: CallerRow): CallerSession => ({
  id: row.id,
  ended: row.state === 'ended',
  hasTemporaryPassword: row.state === 'temporary password',
  age: row.age,
  isProven: row.is_proven,
  last_seen_is_old: row.last_seen_is_old,
  user: userOf(row),
});

export const findCallerByToken = finderByDigest(
  (sql, digests, { idleSeconds }: Sessions) => sql<ByDigest<CallerRow>>`
    select encode(s.token_digest, 'hex') as digest, ${callerColumns(sql, idleSeconds)}
    from ${sessionsSql(sql)}
    where s.token_digest = any (${digests}::text::bytea[])
      and s.deleted_at is null`,
  callerOf,
);

type SessionRow = Omit<Session, 'user'> & JoinedUser;
/** A copy would be slow. */
const sessionOf = (row: SessionRow): Session => Object.assign(row, { user: userOf(row) });

/**
 * Revoked by itself, or neither logged out nor expired when its user's or all users' sessions were
 * ended.
 */
export const isRevokedSql = (sql: Sql) => sql`
  (s.revoked or (not s.logged_out and (
    (u.sessions_end_at >= s.created_at and u.sessions_end_at < s.expires_at)
    or (g.sessions_end_at >= s.created_at and g.sessions_end_at < s.expires_at)) is true))`;

/**
 * `expired` also if the session expired before the last end of all sessions: a failover may have
 * set the clock back.
 */
const sessionColumns = (sql: Sql, idleSeconds: number) => sql`
  s.id, s.user_id, ${isRevokedSql(sql)} as revoked, s.logged_out, s.expires_at,
  ${isExpiredSql(sql, idleSeconds)}
    or coalesce(s.expires_at <= greatest(u.sessions_end_at, g.sessions_end_at), false) as expired,
  s.ip, s.user_agent, s.last_seen_at,
  s.last_seen_at < now() - interval '1 minute' as last_seen_is_old,
  s.created_at, s.updated_at, s.deleted_at, ${joinedUser(sql)}, u.deleted_at as user_deleted_at`;

export const findSessionByToken = finderByDigest(
  (sql, digests, { idleSeconds }: Sessions) => sql<ByDigest<SessionRow>>`
    select encode(s.token_digest, 'hex') as digest, ${sessionColumns(sql, idleSeconds)}
    from ${sessionsSql(sql)}
    where s.token_digest = any (${digests}::text::bytea[])
      and s.deleted_at is null`,
  sessionOf,
);

/** @returns the id of the session's user, or null if there is no such session */
export async function findSessionOwner(database: Database, id: string) {
  const [row] = await database.read(
    (sql) => sql<Array<{ user_id: string }>>`
    select user_id
    from identity.sessions
    where id = ${id}
      and deleted_at is null`,
  );
  return row?.user_id ?? null;
}

/**
 * Newest first.
 * @param userId of one user or (null) of all
 * @param active only active sessions, only ended ones, or (null) both
 */
export function listSessions(
  { database, idleSeconds }: Sessions,
  page: Page,
  userId: string | null,
  active: boolean | null,
) {
  return database.list(async (sql) => {
    const allSql = isOfUserSql(sql, userId);
    const activeSql = isActiveSql(sql, userId, idleSeconds);
    const chosenSql = active ? activeSql : sql`not (${activeSql})`;
    const rows = await rowsOfPage<SessionRow>(sql, page, {
      table: 'sessions',
      whereSql: active === null ? allSql : sql`${allSql} and ${chosenSql}`,
      selectSql: sql`${sessionColumns(sql, idleSeconds)} from ${sessionsSql(sql)}`,
      id: 's.id',
    });
    const activeCount = active === null ? 0 : await countActive(sql, userId, idleSeconds);
    // The ended ones by difference: there are few active sessions in a large table.
    const total = active ? activeCount : (await countRows(sql, 'sessions', allSql)) - activeCount;
    return { rows: rows.map(sessionOf), total };
  });
}

/**
 * Reads only narrow indexes, unless there is an idle limit. No index has the last use: each use
 * would update it.
 */
async function countActive(sql: Sql, userId: string | null, idleSeconds: number) {
  if (userId !== null) return countRows(sql, 'sessions', isActiveSql(sql, userId, idleSeconds));
  // Ignores each user's `sessions_end_at`. `is not false` keeps the planner from the wide index on
  // `created_at`.
  const perhapsActiveSql = sql`x.deleted_at is null and ${isActiveItselfSql(sql, idleSeconds)}
    and (x.created_at > (select sessions_end_at from identity.global_revocation)) is not false`;
  // Reading the user of each session would take most of the time. Few users have ended all of their
  // sessions.
  const [ended] = await sql<[{ count: number }]>`
    select coalesce(sum(n), 0)::int4 as count
    from identity.users u
    cross join lateral (
      select count(*) as n from identity.sessions x
      where x.user_id = u.id
        and x.created_at <= u.sessions_end_at
        and ${perhapsActiveSql}
    ) x where u.sessions_end_at is not null`;
  return (await countRows(sql, 'sessions', perhapsActiveSql)) - ended.count;
}

/** @returns when the user last signed in with another session than this one, or null */
export async function findEarlierSignIn(database: Database, { id, user }: CallerSession) {
  const [row] = await database.list(
    (sql) => sql<[{ at: Date | null }]>`
    select max(created_at) as at from identity.sessions
    where user_id = ${user.id} and id <> ${id} and deleted_at is null`,
  );
  return row.at;
}
