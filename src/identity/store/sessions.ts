import { hexArrayLiteral, batched, alignToKeys } from '../../db/batch.ts';
import type { Database, Fragment, Sql } from '../../db/pool.ts';
import { type Page, type Part, spanOf } from '../paging.ts';
import type { Account, CallerSession, Session } from '../rules.ts';
import { digestOf, type SessionToken } from '../token.ts';
import { type Actor, audited, type AuditEntry } from './audit.ts';
import { counting, idsOf, inOrder, type JoinedUser, joinedUser, totalOf, userOf } from './rows.ts';
import { clearing } from './throttles.ts';

/** What the look-ups need to know. */
export interface Sessions {
  readonly database: Database;
  /** A session that was not seen for so long has ended; 0 for no such limit. */
  readonly idleSeconds: number;
}

export const isOver = (sql: Sql, alias: string, idleSeconds: number): Fragment => {
  const s = sql(alias);
  const idle = idleSeconds === 0 ? sql`` : sql`or ${s}.last_seen_at <= now() - make_interval(secs => ${idleSeconds})`;
  return sql`(${s}.expires_at <= now() ${idle})`;
};

const sessionColumns = (sql: Sql, idleSeconds: number): Fragment => sql`
  s.id, s.user_id, s.revoked, s.logged_out, s.expires_at, ${isOver(sql, 's', idleSeconds)} as expired, s.ip, s.user_agent,
  s.last_seen_at, s.last_seen_at < now() - interval '1 minute' as last_seen_is_old, s.created_at, s.updated_at, s.deleted_at, ${joinedUser(sql)}`;

/** Whose digest it is, in hexadecimal digits. */
type Digest = { readonly digest: string };

type SessionRow = Omit<Session, 'user'> & JoinedUser;
const sessionOf = (row: SessionRow): Session => ({ ...row, user: userOf(row) });

export interface NewSession {
  readonly id: string;
  readonly token: SessionToken;
  readonly seconds: number;
  readonly ip: string;
  readonly userAgent: string | null;
}

/**
 * A login: the session, the throttle's pair cleared and known, and the trail's line. The user's row is locked against a
 * change that is under way, which would otherwise not see this session and leave it alive.
 * @returns false when the user was disabled, deleted or given another password since the check: then nothing is done
 */
export async function insertSession(database: Database, actor: Actor, session: NewSession, user: Account, pair: Buffer): Promise<boolean> {
  const rows = await database.write((sql) =>
    audited(
      sql,
      { event: 'login.succeeded', actor },
      sql`
        insert into identity.sessions (id, token_digest, user_id, expires_at, ip, user_agent)
        select ${session.id}, ${digestOf(session.token)}, u.id, now() + make_interval(secs => ${session.seconds}), ${session.ip}, ${session.userAgent}
        from identity.users u
        where u.id = ${user.id} and u.enabled and u.deleted_at is null and u.password_hash = ${user.password_hash}
        for share of u
        returning id, user_id`,
      sql`, counted as (${counting(sql, 'sessions', 1)}), cleared as (${clearing(sql, pair)})`,
    ),
  );
  return rows.length === 1;
}

/**
 * Asked with every request, and so in one piece: each part of a statement is an object of the driver's of its own, and V8
 * keeps it until it goes through all of its memory; see `inOrderOf`.
 */
export const findCallerByToken = batched(
  async ({ database, idleSeconds }: Sessions, tokens: readonly SessionToken[]): Promise<Array<CallerSession | null>> => {
    const digests = tokens.map((token) => digestOf(token).toString('hex'));
    const rows = await database.read(
      (sql) => sql<Array<Omit<CallerSession, 'user'> & JoinedUser & Digest>>`
        select encode(s.token_digest, 'hex') as digest, s.id, s.revoked, s.logged_out, s.last_seen_at < now() - interval '1 minute' as last_seen_is_old,
          s.expires_at <= now() or (${idleSeconds} > 0 and s.last_seen_at <= now() - make_interval(secs => ${idleSeconds})) as expired,
          u.id as u_id, u.first_name as u_first_name, u.last_name as u_last_name, u.username as u_username, u.email as u_email,
          u.enabled as u_enabled, u.verified as u_verified, u.super_admin as u_super_admin,
          u.created_at as u_created_at, u.updated_at as u_updated_at, u.deleted_at as u_deleted_at
        from identity.sessions s join identity.users u on u.id = s.user_id
        where s.token_digest = any (${hexArrayLiteral(digests)}::text::bytea[]) and s.deleted_at is null`,
    );
    return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && { id: row.id, revoked: row.revoked, logged_out: row.logged_out, expired: row.expired, last_seen_is_old: row.last_seen_is_old, user: userOf(row) });
  },
);

export const findSessionByToken = batched(
  async ({ database, idleSeconds }: Sessions, tokens: readonly SessionToken[]): Promise<Array<Session | null>> => {
    const digests = tokens.map((token) => digestOf(token).toString('hex'));
    const rows = await database.read(
      (sql) => sql<Array<SessionRow & Digest>>`
        select encode(s.token_digest, 'hex') as digest, ${sessionColumns(sql, idleSeconds)}
        from identity.sessions s join identity.users u on u.id = s.user_id
        where s.token_digest = any (${hexArrayLiteral(digests)}::text::bytea[]) and s.deleted_at is null`,
    );
    return alignToKeys(digests, rows, ({ digest }) => digest).map((row) => row && sessionOf(row));
  },
);

/** @returns whose session it is, or null when there is none with this id */
export async function findSessionOwner(database: Database, id: string): Promise<string | null> {
  const [row] = await database.read(
    (sql) => sql<Array<{ user_id: string }>>`select user_id from identity.sessions where id = ${id} and deleted_at is null`,
  );
  return row?.user_id ?? null;
}

export interface SessionFilter {
  readonly userId: string | null;
  /** Only those that could still be used, or only those that could not. */
  readonly active: boolean | null;
}

/** Newest first, without the deleted. */
export function listSessions({ database, idleSeconds }: Sessions, page: Page, { userId, active }: SessionFilter): Promise<Part<Session>> {
  return database.list(async (sql) => {
    const ofUser = userId === null ? sql`x.deleted_at is null` : sql`x.deleted_at is null and x.user_id = ${userId}`;
    // Whoever may not log in has no such session: what takes the right away ends them in the same transaction.
    const isActive = sql`not x.revoked and not x.logged_out and not ${isOver(sql, 'x', idleSeconds)}`;
    const where = active === null ? ofUser : sql`${ofUser} and ${active ? sql`` : sql`not`} (${isActive})`;
    const all = active === true ? 0 : await totalOf(sql, 'sessions', { userId });
    const [counted] = active === null ? [] : await sql<[{ n: number }]>`select count(*)::int as n from identity.sessions x where ${ofUser} and ${isActive}`;
    const total = active === null || !counted ? all : active ? counted.n : all - counted.n;
    const rows = await sql<SessionRow[]>`
      select ${sessionColumns(sql, idleSeconds)}
      from (${idsOf(sql, sql`identity.sessions`, where, 'newest first', spanOf(page, total))}) page
      join identity.sessions s on s.id = page.id join identity.users u on u.id = s.user_id
      order by ${inOrder(sql, 's', true)}`;
    return { rows: rows.map(sessionOf), total };
  });
}

/** Ends a session for good; one that is unknown or has ended stays as it is. */
export async function logOut(database: Database, entry: AuditEntry, token: SessionToken): Promise<void> {
  await database.write((sql) =>
    audited(
      sql,
      entry,
      sql`
        update identity.sessions set logged_out = true, updated_at = now()
        where token_digest = ${digestOf(token)} and deleted_at is null and not logged_out and not revoked and expires_at > now()
        returning id, user_id`,
    ),
  );
}

/** @returns 1, or 0 when it was revoked before */
export async function revokeSession(database: Database, entry: AuditEntry, id: string): Promise<number> {
  const rows = await database.write((sql) =>
    audited(
      sql,
      entry,
      sql`update identity.sessions set revoked = true, updated_at = now() where id = ${id} and deleted_at is null and not revoked returning id, user_id`,
    ),
  );
  return rows.length;
}

/** A statement for each so many sessions: one for all of a large table would take longer than a statement may. */
const REVOKE_BATCH = 5_000;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';

/**
 * Revokes the next batch of sessions that could still be used. One that somebody else is just revoking counts here, too:
 * so no row means that there is none left.
 */
const revocation = (sql: Sql, after: string, ofUser: Fragment): Fragment => sql`
  update identity.sessions set revoked = true, updated_at = now()
  where id = any (array(
    select id from identity.sessions
    where id > ${after} and deleted_at is null and not revoked and not logged_out and expires_at > now() ${ofUser}
    order by id limit ${REVOKE_BATCH}
  ))
  returning id, user_id`;

/** How many sessions were ended, and the last of them. */
export interface Ended {
  readonly count: number;
  readonly last: string;
}

async function inBatches(revoke: (after: string) => Promise<Array<{ id: string }>>): Promise<Ended> {
  for (let count = 0, last = NIL_UUID; ; ) {
    const rows = await revoke(last);
    if (rows.length === 0) return { count, last };
    count += rows.length;
    last = rows.reduce((latest, { id }) => (id > latest ? id : latest), last);
  }
}

/** Of one user or (null) of all, each batch with its line in the trail. @returns how many */
export async function revokeSessions(database: Database, entry: AuditEntry, userId: string | null): Promise<number> {
  const { count } = await inBatches((after) =>
    database.write((sql) => audited(sql, entry, revocation(sql, after, userId === null ? sql`` : sql`and user_id = ${userId}`))),
  );
  return count;
}

/** Inside a transaction that takes a user's rights or password away; its line in the trail comes last, by `noteEnded`. */
export function endSessions(sql: Sql, userId: string, exceptId: string | null = null): Promise<Ended> {
  return inBatches((after) => sql<Array<{ id: string }>>`${revocation(sql, after, sql`and user_id = ${userId} and id is distinct from ${exceptId}`)}`);
}

export async function noteEnded(sql: Sql, actor: Actor, userId: string, { count, last }: Ended): Promise<void> {
  const id = count === 1 ? last : null;
  await audited(sql, { event: 'session.revoked', actor }, sql`select ${id}::uuid as id, ${userId}::uuid as user_id from generate_series(1, ${count}::int)`);
}

/** Removes sessions that ended at least `seconds` ago. @returns how many; at most `most` */
export async function removeEndedSessions(database: Database, seconds: number, most: number): Promise<number> {
  const [row] = await database.write(
    (sql) => sql<[{ n: number }]>`
      with change as (
        delete from identity.sessions where id = any (array(
          (select id from identity.sessions where expires_at < now() - make_interval(secs => ${seconds}) order by expires_at limit ${most})
          union
          (select id from identity.sessions where (revoked or logged_out) and updated_at < now() - make_interval(secs => ${seconds}) order by updated_at limit ${most})
          limit ${most}
        )) returning user_id
      ), counted as (${counting(sql, 'sessions', -1)})
      select count(*)::int as n from change`,
  );
  return row.n;
}
