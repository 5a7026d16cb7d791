import { randomUUID } from 'node:crypto';
import { digest } from '../../crypto/token.ts';
import { arrayLiteral } from '../../db/batch.ts';
import type { Database, Sql } from '../../db/pool.ts';
import type { Tokens } from '../factors/store.ts';
import { accountKey, type CallerSession, type User } from '../model.ts';
import { type Actor, changing } from '../store/audit.ts';
import { countRows, type Page, type PageOf, userColumns } from '../store/rows.ts';
import { callerColumns, callerOf, type CallerRow, endSessions, findBy } from '../store/sessions.ts';

/** How and when a user signed in. `age` in seconds; `has_factor`: whether the user has a second one. */
type Proof = Readonly<{ methods: string; age: number; at: Date; has_factor: boolean }>;

/** How the new session of these tokens was proved. */
export const insertSignIn = (
  database: Database,
  { host, domain }: Tokens,
  methods: string,
  at: Date | null,
) =>
  database.write(
    (sql) => sql`
    insert into identity.sign_ins (session_id, domain_digest, methods, authenticated_at)
    select id, ${digest(domain)}, ${methods}, coalesce(${at}, clock_timestamp())
    from identity.sessions where token_digest = ${digest(host)}`,
  );

/** Ends all sessions of the user. A copy of this one takes its place, with its end and how it was proved. */
export const endOtherSessions = (
  database: Database,
  actor: Actor,
  userId: string,
  sessionId: string,
  { host, domain }: Tokens,
) =>
  changing(database, actor, userId, async (sql) => {
    await endSessions(sql, actor, userId);
    await sql`
    with copy as (
      insert into identity.sessions
        (id, token_digest, user_id, ip, user_agent, expires_at, created_at, updated_at, last_seen_at)
      select ${randomUUID()}::uuid, ${digest(host)}, user_id, ip, user_agent, expires_at, at, at, at
      from identity.sessions, clock_timestamp() as at where id = ${sessionId} returning id)
    insert into identity.sign_ins (session_id, domain_digest, methods, authenticated_at)
    select copy.id, ${digest(domain)}, coalesce(p.methods, 'password'), coalesce(p.authenticated_at, s.created_at)
    from copy, identity.sessions s left join identity.sign_ins p on p.session_id = s.id where s.id = ${sessionId}`;
  });

export type ProvenSession = CallerSession & Proof;

/** A login through the API counts as a login by password. */
const proven = (sql: Sql, idleSeconds: number) => sql`
  coalesce(p.methods, 'password') as methods, coalesce(p.authenticated_at, s.created_at) as at,
  extract(epoch from now() - coalesce(p.authenticated_at, s.created_at))::float8 as age,
  u.second_factor as has_factor, ${callerColumns(sql, idleSeconds)}`;
const provenOf = (row: CallerRow & Proof): ProvenSession => ({
  methods: row.methods,
  age: row.age,
  at: row.at,
  has_factor: row.has_factor,
  ...callerOf(row),
});
export const findByHostToken = findBy('s.token_digest', proven, provenOf);
export const findByDomainToken = findBy('p.domain_digest', proven, provenOf);

/** By name, without deleted users. @param search a part of the username or the address; empty for all */
export function searchUsers(
  database: Database,
  search: string,
  { page, limit }: Page,
): Promise<PageOf<User>> {
  return database.list(async (sql) => {
    const [key, offset] = [accountKey(search), (page - 1) * limit];
    const where = sql`x.deleted_at is null
      and (position(${key} in x.username_key) > 0 or position(${key} in x.email_key) > 0)`;
    const rows = await sql<User[]>`
      select ${userColumns(sql)} from identity.users u where u.id in (
        select x.id from identity.users x where ${where} order by x.username_key limit ${limit} offset ${offset})
      order by u.username_key`;
    return { rows, total: await countRows(sql, sql`identity.users`, where) };
  });
}

/** By id, without erased users. */
export async function findUsernames(database: Database, ids: ReadonlyArray<string | null>) {
  const users = await database.read(
    (sql) => sql<Array<{ id: string; username: string }>>`
    select id, username from identity.users where id = any (${arrayLiteral(ids)}::text::uuid[]) and username <> ''`,
  );
  return new Map(users.map(({ id, username }) => [id, username]));
}

/** When the user signed in before this session. */
export const findEarlierSignIn = async (
  database: Database,
  userId: string,
  sessionId: string,
): Promise<Date | null> =>
  (
    await database.list(
      (sql) => sql<Array<{ at: Date }>>`
    select created_at as at from identity.sessions where user_id = ${userId} and id <> ${sessionId}
      and deleted_at is null order by created_at desc, id desc limit 1`,
    )
  )[0]?.at ?? null;
