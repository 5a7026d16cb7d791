import type { Database, Sql } from '../../platform/db/pool.ts';
import { type Actor, COMMAND_LINE, insertAudit, summarySql } from './audit.ts';
import { changeRows, changing, EVERYONE } from './rights.ts';
import { revokeKeys } from './keys.ts';
import { isActiveSql, isOfUserSql } from './rows.ts';
import { isRevokedSql, sessionsSql } from './sessions.ts';

/**
 * Ends the session with this id, which is `x` and `s`, unless it was revoked by itself or with
 * others. After a wait for the lock of `x`, PostgreSQL evaluates it again.
 */
const endOneSql = (sql: Sql, id: string, end: 'revoked' | 'logged_out') => sql`
  update identity.sessions x
  set ${sql(end)} = true, updated_at = now()
  from ${sessionsSql(sql)}
  where x.id = ${id}
    and s.id = x.id
    and s.deleted_at is null
    and not x.revoked
    and not ${isRevokedSql(sql)}`;

/** @returns 1, or 0 if the session was revoked before, by itself or with others */
export async function revokeSession(database: Database, actor: Actor, id: string, userId: string) {
  const revoke = (sql: Sql) => sql`${endOneSql(sql, id, 'revoked')} returning x.id, x.user_id`;
  return (await changeRows(database, { event: 'session.revoked', actor }, userId, revoke)) ?? 0;
}

/** Does nothing if the session has ended. */
export async function logOutSession(database: Database, actor: Actor, id: string) {
  const logOut = (sql: Sql) => sql`
    ${endOneSql(sql, id, 'logged_out')}
      and not x.logged_out
      and x.expires_at > now()
    returning x.id, x.user_id`;
  await changeRows(database, { event: 'session.logged_out', actor }, null, logOut);
}

export const MAX_COUNT = 10_000;
/** How many active sessions were ended; `MAX_COUNT + 1` means more, null an unknown number. */
export type EndedCount = number | null;

/** Ends the sessions of one user or (null) of all. */
export const revokeSessions = (database: Database, actor: Actor, userId: string | null) =>
  changing(database, actor, userId ?? EVERYONE, (sql) => endSessions(sql, actor, userId));

/**
 * Ends the sessions of one user or (null) of all without touching them: each check compares their
 * time of creation with `sessions_end_at`. The caller's transaction has locked the row of that
 * value: a login that held the lock before has read an earlier clock, and one that waits for it
 * reads the clock again. Unless counting fails, the value is never before the newest session: a
 * failover may set the clock back, and then new sessions end at once until it catches up.
 */
export async function endSessions(sql: Sql, actor: Actor, userId: string | null) {
  const { count, target_id, user_id, newest } = await countActive(sql, userId);
  const endSql = sql`sessions_end_at = greatest(sessions_end_at, clock_timestamp(),
    ${newest}::text::timestamptz)`;
  if (userId === null) await sql`update identity.global_revocation set ${endSql}`;
  else await sql`update identity.users set ${endSql} where id = ${userId}`;
  if (count !== 0) {
    await insertAudit(
      sql,
      { event: 'session.revoked', actor, detail: countDetail(count) },
      userId ?? user_id,
      Math.min(count ?? 0, MAX_COUNT),
      target_id,
    );
  }
  return count;
}

function countDetail(count: EndedCount) {
  if (count === null) return 'not counted';
  return count > MAX_COUNT ? 'more than 10,000' : '';
}

/** As in `summarySql`. `newest`: when the newest session, active or not, was created. */
type ActiveSessions = Readonly<
  { count: EndedCount } & Record<'user_id' | 'target_id' | 'newest', string | null>
>;

/**
 * The number is only informative: if counting fails, the caller continues without. Without a
 * connection, the rollback fails, too.
 */
async function countActive(sql: Sql, userId: string | null): Promise<ActiveSessions> {
  await sql`savepoint counting`;
  try {
    const [active] = await sql<[ActiveSessions]>`
      select ${summarySql(sql)},
        (select max(x.created_at)::text from identity.sessions x
          where ${isOfUserSql(sql, userId)}) as newest
      from (
        select x.id, x.user_id from identity.sessions x
        where ${isActiveSql(sql, userId, 0)}
        limit ${MAX_COUNT + 1}
      ) active`;
    return active;
  } catch {
    await sql`rollback to savepoint counting`;
    return {
      count: null,
      user_id: null,
      target_id: null,
      newest: null,
    };
  }
}

/**
 * Ends what was valid at the time of a backup and may have ended since: all sessions, recovery
 * codes and links, which may have been used, and, if asked for, API keys.
 */
export async function endRestored(sql: Sql, withKeys: boolean) {
  await sql`select from identity.global_revocation for update`;
  const sessions = await endSessions(sql, COMMAND_LINE, null);
  const keys = withKeys ? await revokeKeys(sql, COMMAND_LINE, sql`true`, 'after a restore') : 0;
  await sql`delete from identity.pending_sign_ins`;
  await sql`delete from identity.links`;
  const codes = await sql`delete from identity.recovery_codes`;
  return { sessions, keys, codes: codes.count };
}
