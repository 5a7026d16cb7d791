import { digest } from '../../crypto/token.ts';
import { alignToKeys, batched, hexArrayLiteral } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { clearFailures } from '../../db/throttle.ts';
import type { Account, CallerSession, Session } from '../model.ts';
import { SCHEMA } from '../schema.ts';
import { type Actor, audited, changing, EVERYONE, insertAudit } from './audit.ts';
import {
  countRows,
  idsOfPage,
  type JoinedUser,
  joinedUser,
  type Page,
  type PageOf,
  userOf,
} from './rows.ts';

/** `idleSeconds`: a session that was not used for this long has expired; 0 for no limit. */
export type Sessions = Readonly<{ database: Database; idleSeconds: number }>;

export const isExpired = (sql: Sql, alias: string, idleSeconds: number): Fragment => {
  const s = sql(alias);
  const idle =
    idleSeconds === 0
      ? sql``
      : sql`or ${s}.last_seen_at <= now() - make_interval(secs => ${idleSeconds})`;
  return sql`(${s}.expires_at <= now() ${idle})`;
};

/** A session `s` with its user `u` and the value `g` that ends the sessions of all users. */
const joined = (sql: Sql): Fragment => sql`
  identity.sessions s join identity.users u on u.id = s.user_id cross join identity.global_revocation g`;

/** Revoked by itself, or neither logged out nor expired when its user's or all users' sessions were ended. */
const isRevoked = (sql: Sql): Fragment => sql`
  (s.revoked or (not s.logged_out and (
    (u.sessions_end_at >= s.created_at and u.sessions_end_at < s.expires_at)
    or (g.sessions_end_at >= s.created_at and g.sessions_end_at < s.expires_at)) is true))`;

/** Expired also by the clock of an earlier end of all sessions: a failover may have set it back. */
const sessionColumns = (sql: Sql, idleSeconds: number): Fragment => sql`
  s.id, s.user_id, ${isRevoked(sql)} as revoked, s.logged_out, s.expires_at,
  ${isExpired(sql, 's', idleSeconds)}
    or coalesce(s.expires_at <= greatest(u.sessions_end_at, g.sessions_end_at), false) as expired,
  s.ip, s.user_agent, s.last_seen_at, s.last_seen_at < now() - interval '1 minute' as last_seen_is_old,
  s.created_at, s.updated_at, s.deleted_at, ${joinedUser(sql)}`;

/** `isProven`: by a second factor, too, which a user may have got since the password was checked. */
export type NewSession = Readonly<{
  id: string;
  token: string;
  seconds: number;
  ip: string;
  userAgent: string | null;
  isProven: boolean;
}>;

/** `updated_at`: as it was before a factor was checked, which may be removed meanwhile; null if it cannot change. */
type LoginAccount = Pick<Account, 'id' | 'password_hash'> & Readonly<{ updated_at: Date | null }>;

/**
 * Inserts a session, unless the user was disabled, deleted or changed since the check. The share lock
 * waits for a concurrent change of the user's row; then PostgreSQL evaluates the row again, and so `clock_timestamp()`.
 * So the session is either inserted before the change reads the clock, and ends with it, or decided by the changed row.
 * "Revoke all" needs no lock: a session with a later time than its value belongs to a login that came after it.
 */
export const newSession = (sql: Sql, session: NewSession, account: LoginAccount): Fragment => sql`
  insert into identity.sessions
    (id, token_digest, user_id, ip, user_agent, expires_at, created_at, updated_at, last_seen_at)
  select ${session.id}, ${digest(session.token)}, allowed.id, ${session.ip}, ${session.userAgent},
    at + make_interval(secs => ${session.seconds}), at, at, at
  from (
    select u.id, clock_timestamp() as at from identity.users u
    where u.id = ${account.id} and u.enabled and u.deleted_at is null
      and u.password_hash is not distinct from ${account.password_hash}
      and coalesce(date_trunc('milliseconds', u.updated_at) = ${account.updated_at}::timestamptz, true)
      and (${session.isProven} or not u.second_factor) for share
  ) allowed
  returning id, user_id`;

/** A login ends its failures under `throttle`. @returns false if the account has changed since the check */
export function insertSession(
  database: Database,
  actor: Actor,
  session: NewSession,
  account: LoginAccount,
  throttle: Buffer,
): Promise<boolean> {
  return database.transaction(async (sql) => {
    const change = newSession(sql, session, account);
    const rows = await audited(sql, { event: 'login.succeeded', actor }, change);
    if (rows.length > 0) await clearFailures(sql, SCHEMA.name, throttle);
    return rows.length > 0;
  });
}

type SessionRow = Omit<Session, 'user'> & JoinedUser;
const sessionOf = (row: SessionRow): Session => Object.assign(row, { user: userOf(row) }); // a copy is slow

/** With the digest, at most 19 columns in all: as objects, rows of more are several times as slow in V8 11. */
export const callerColumns = (sql: Sql, idleSeconds: number): Fragment => sql`
  s.id, s.last_seen_at < now() - interval '1 minute' as last_seen_is_old,
  s.revoked or s.logged_out or s.expires_at <= now()
    or coalesce(s.created_at <= greatest(u.sessions_end_at, g.sessions_end_at), false)
    or (${idleSeconds} > 0 and s.last_seen_at <= now() - make_interval(secs => ${idleSeconds})) as ended,
  ${joinedUser(sql)}`;

export type CallerRow = Omit<CallerSession, 'user'> & JoinedUser;
export const callerOf = (row: CallerRow): CallerSession => ({
  id: row.id,
  ended: row.ended,
  last_seen_is_old: row.last_seen_is_old,
  user: userOf(row),
});

/** Finds sessions by hexadecimal digests. PostgreSQL leaves out the join with `p` if no column of it is read. */
export const findBy = <Row, Found>(
  column: 's.token_digest' | 'p.domain_digest',
  columns: typeof callerColumns,
  foundOf: (row: Row) => Found,
) =>
  batched(
    async (
      { database, idleSeconds }: Sessions,
      digests: readonly string[],
    ): Promise<Array<Found | null>> => {
      const rows = await database.read(
        (sql) => sql<Array<Row & { digest: string }>>`
    select encode(${sql(column)}, 'hex') as digest, ${columns(sql, idleSeconds)}
    from ${joined(sql)} left join identity.sign_ins p on p.session_id = s.id
    where ${sql(column)} = any (${hexArrayLiteral(digests)}::text::bytea[]) and s.deleted_at is null`,
      );
      return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && foundOf(row));
    },
  );
export const findCallerByToken = findBy('s.token_digest', callerColumns, callerOf);
export const findSessionByToken = findBy('s.token_digest', sessionColumns, sessionOf);

/** @returns the id of the session's user, or null if there is no such session */
export async function findSessionOwner(database: Database, id: string): Promise<string | null> {
  const [row] = await database.read(
    (sql) => sql<Array<{ user_id: string }>>`
    select user_id from identity.sessions where id = ${id} and deleted_at is null`,
  );
  return row?.user_id ?? null;
}

/** For a session aliased `x`, that has not ended by itself. */
const isLive = (sql: Sql, idleSeconds: number): Fragment => sql`
  x.deleted_at is null and not x.revoked and not x.logged_out and not ${isExpired(sql, 'x', idleSeconds)}`;
const endOfAll = (sql: Sql): Fragment =>
  sql`(select sessions_end_at from identity.global_revocation)`;

/** For a session aliased `x`. Users who may not log in have no open session: disabling or deleting a user ends all. */
const isOpen = (sql: Sql, userId: string | null, idleSeconds: number): Fragment => sql`
  ${isLive(sql, idleSeconds)} and x.created_at > coalesce(${endOfAll(sql)}, '-infinity') and ${
    userId === null
      ? sql`not exists (select from identity.users u where u.id = x.user_id and u.sessions_end_at >= x.created_at)`
      : sql`x.created_at > coalesce((select sessions_end_at from identity.users where id = ${userId}), '-infinity')`
  }`;

/** Of one user or (null) of all, without the deleted. */
const ofUser = (sql: Sql, userId: string | null): Fragment =>
  userId === null ? sql`x.deleted_at is null` : sql`x.deleted_at is null and x.user_id = ${userId}`;

type SessionFilter = Readonly<{ userId: string | null; active: boolean | null }>;

/** Newest first. @param filter `active`: only active sessions, only ended ones, or (null) both */
export function listSessions(
  service: Sessions,
  page: Page,
  filter: SessionFilter,
): Promise<PageOf<Session>> {
  const [{ database, idleSeconds }, { userId, active }] = [service, filter];
  return database.list(async (sql) => {
    const [table, all, open] = [
      sql`identity.sessions`,
      ofUser(sql, userId),
      isOpen(sql, userId, idleSeconds),
    ];
    const where =
      active === null ? all : active ? sql`${all} and ${open}` : sql`${all} and not (${open})`;
    const rows = await sql<SessionRow[]>`
      select ${sessionColumns(sql, idleSeconds)}
      from ${joined(sql)} join (${idsOfPage(sql, table, where, page)}) page on page.id = s.id
      order by s.created_at desc, s.id desc`;
    const counted = active === null ? 0 : await countActive(sql, userId, idleSeconds);
    // The ended ones by difference: there are few active sessions in a large table.
    const total = active ? counted : (await countRows(sql, table, all)) - counted;
    return { rows: rows.map(sessionOf), total };
  });
}

/** Reads only narrow indexes, unless there is an idle limit. No index has the last use: each use would update it. */
async function countActive(sql: Sql, userId: string | null, idleSeconds: number): Promise<number> {
  const table = sql`identity.sessions`;
  if (userId !== null)
    return countRows(
      sql,
      table,
      sql`x.user_id = ${userId} and ${isOpen(sql, userId, idleSeconds)}`,
    );
  // Written so that the planner does not prefer the wide index that begins with the time of creation.
  const live = sql`${isLive(sql, idleSeconds)} and (x.created_at > ${endOfAll(sql)}) is not false`;
  // Reading the user of each session would take most of the time. Few users have ended all of their sessions.
  const [ended] = await sql<[{ n: number }]>`
    select coalesce(sum(n), 0)::int4 as n from identity.users u cross join lateral (
      select count(*) as n from ${table} x where x.user_id = u.id and x.created_at <= u.sessions_end_at and ${live}
    ) x where u.sessions_end_at is not null`;
  return (await countRows(sql, table, live)) - ended.n;
}

/** @returns 1, or 0 if the session was revoked before, by itself or with others, or had ended before its logout */
export async function endSession(
  database: Database,
  actor: Actor,
  id: string,
  event: 'session.revoked' | 'session.logged_out',
  target?: string,
): Promise<number> {
  const rows = await changing(database, actor, target ?? null, (sql) =>
    audited(
      sql,
      { event, actor },
      sql`
    update identity.sessions x set updated_at = now(), ${
      event === 'session.revoked'
        ? sql`revoked = true from ${joined(sql)} where true`
        : sql`logged_out = true from ${joined(sql)} where not x.logged_out and x.expires_at > now()`
    }
      and x.id = ${id} and s.id = x.id and s.deleted_at is null and not x.revoked and not ${isRevoked(sql)}
    returning x.id, x.user_id`,
    ),
  );
  return rows?.length ?? 0;
}

export const MAX_COUNT = 10_000;
/** How many open sessions were ended; `MAX_COUNT + 1` means more, null means an unknown number. */
export type EndedCount = number | null;

/** Ends the sessions of one user or (null) of all. */
export const revokeSessions = (
  database: Database,
  actor: Actor,
  userId: string | null,
): Promise<EndedCount> =>
  changing(database, actor, userId ?? EVERYONE, (sql) => endSessions(sql, actor, userId));

/**
 * Ends the sessions of one user or (null) of all without touching them: each check compares their time of creation with
 * `sessions_end_at`. The caller's transaction has locked the row of that value: a login that held the lock before has
 * read an earlier clock, and one that waits for it reads the clock again. The value is never before the newest session:
 * a failover may set the clock back, and then new sessions end at once until it catches up.
 */
export async function endSessions(
  sql: Sql,
  actor: Actor,
  userId: string | null,
): Promise<EndedCount> {
  await sql`savepoint counting`;
  const { count, id, user_id, newest } = await countOpen(sql, userId).catch(async () => {
    // The number is only informative: if counting fails, the caller continues. Without a connection, this fails, too.
    await sql`rollback to savepoint counting`;
    return { count: null, id: null, user_id: userId, newest: null };
  });
  const change = sql`sessions_end_at = greatest(sessions_end_at, clock_timestamp(), ${newest}::text::timestamptz)`;
  if (userId === null) await sql`update identity.global_revocation set ${change}`;
  else await sql`update identity.users set ${change} where id = ${userId}`;
  const detail = count === null ? 'not counted' : count > MAX_COUNT ? 'more than 10,000' : '';
  const subject = {
    userId: user_id,
    targetId: count === 1 ? id : null,
    count: Math.min(count ?? 0, MAX_COUNT),
  };
  if (count !== 0) await insertAudit(sql, { event: 'session.revoked', actor, detail }, subject);
  return count;
}

/** `id`: of one session; `user_id`: if all are of one user; `newest`: when the newest session was created. */
async function countOpen(sql: Sql, userId: string | null) {
  const [open] = await sql<
    [{ count: EndedCount } & Record<'id' | 'user_id' | 'newest', string | null>]
  >`
    select count(*)::int4 as count, (array_agg(id))[1] as id,
      case when count(distinct user_id) = 1 then (array_agg(user_id))[1] end as user_id,
      (select max(x.created_at)::text from identity.sessions x where ${ofUser(sql, userId)}) as newest
    from (
      select x.id, x.user_id from identity.sessions x
      where ${ofUser(sql, userId)} and ${isOpen(sql, userId, 0)} limit ${MAX_COUNT + 1}
    ) open`;
  return open;
}
