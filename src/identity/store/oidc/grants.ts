import { randomUUID } from 'node:crypto';
import { randomToken, sha256 } from '../../../platform/crypto/token.ts';
import {
  arrayLiteral,
  type Database,
  type Fragment,
  removeBatch,
  type Sql,
} from '../../../platform/db/sql.ts';
import type { User } from '../../model.ts';
import { type Actor, audited } from '../audit.ts';
import { type ByDigest, finderByDigest, type JoinedUser, joinedUser, userOf } from '../rows.ts';
import { provedAtSql, type Sessions, sessionsSql, sessionStateSql } from '../sessions.ts';
import type { Client } from './clients.ts';

/** How long a code may wait for its exchange, in seconds (ASVS 10.4.3). */
const CODE_SECONDS = 60;
/** Of an access token, which is checked against its session at each use. */
export const ACCESS_SECONDS = 3_600;
/** A browser with two tabs may send one refresh token twice at once. */
const GRACE_SECONDS = 10;

/** A sign-in at a program, with its user. `now`: of the database, in seconds. */
export type Grant = Readonly<{
  id: string;
  client_id: string;
  scopes: readonly string[];
  nonce: string;
  methods: string;
  at: Date;
  now: number;
  user: User;
}>;

/** Grants `granted`, each with its program `c`, session `s`, and user `u`. */
export const grantsSql = (sql: Sql) => sql`
  ${sessionsSql(sql)}
  join identity.oidc_grants granted on granted.session_id = s.id
  join identity.oidc_clients c on c.id = granted.client_id`;

/**
 * Whether a grant counts, by what its program, session, and user are now; null for no, too. A
 * session with a temporary password counts only by a passkey, as in forward authentication.
 */
const isLiveSql = (sql: Sql, idleSeconds: number) => sql`
  granted.ended_at is null and c.enabled and u.enabled
    and ${sessionStateSql(sql, idleSeconds)}
      in ('active', case when s.methods = 'passkey' then 'temporary password' end)
    and (s.methods <> 'password' or not (u.second_factor or c.second_factor))
    and (cardinality(c.groups) = 0 or c.groups && u.groups)`;

const columns = (sql: Sql, idleSeconds: number) => sql`
  granted.id, granted.client_id, to_json(granted.scopes) as scopes, s.user_id,
  ${isLiveSql(sql, idleSeconds)} as is_live, ${joinedUser(sql)}`;

type GrantRow = Omit<Grant, 'user'> & JoinedUser & Readonly<{ is_live: boolean | null }>;
const grantOf = <Row extends JoinedUser>(row: Row) => Object.assign(row, { user: userOf(row) });

export type NewGrant = Readonly<{
  clientId: string;
  sessionId: string;
  scopes: readonly string[];
  redirectUri: string;
  nonce: string;
  challenge: string;
}>;

/**
 * @param code with which the program fetches its tokens
 * @returns false if the session was removed meanwhile
 */
export const insertGrant = (database: Database, actor: Actor, grant: NewGrant, code: string) =>
  database.transaction(async (sql) => {
    const insert = sql`
      insert into identity.oidc_grants
        (id, client_id, session_id, scopes, redirect_uri, nonce, challenge, code_digest)
      select ${randomUUID()}, ${grant.clientId}, id, ${arrayLiteral(grant.scopes)},
        ${grant.redirectUri}, ${grant.nonce}, ${grant.challenge}, ${sha256(code)}
      from identity.sessions where id = ${grant.sessionId}
      returning id, ${actor.userId}::uuid as user_id`;
    const entry = { event: 'grant.created', actor, detail: grant.clientId } as const;
    return (await audited(sql, entry, insert)).length > 0;
  });

async function insertToken(sql: Sql, grantId: string, isRefresh: boolean) {
  const token = randomToken();
  await sql`
    insert into identity.oidc_tokens (digest, grant_id, is_refresh, ends_at)
    values (${sha256(token)}, ${grantId}, ${isRefresh},
      ${isRefresh ? sql`'infinity'` : sql`now() + make_interval(secs => ${ACCESS_SECONDS})`})`;
  return token;
}

/** Ends grants, and with each all its tokens. `where` names grants of the table. */
const endGrants = (
  sql: Sql,
  actor: Actor,
  event: 'grant.ended' | 'grant.replayed',
  where: Fragment,
) =>
  audited(
    sql,
    { event, actor },
    sql`
    update identity.oidc_grants granted set ended_at = now()
    from identity.sessions s
    where s.id = granted.session_id and granted.ended_at is null and ${where}
    returning granted.id, s.user_id, client_id`,
  );

/** A code and what belongs to it, or a refresh token and the scopes that the program names. */
export type Given = Readonly<
  | { code: string; redirectUri: string; challenge: string }
  | { refreshToken: string; scopes: readonly string[] }
>;

/** Which grant it is, and whether it was used before. */
function matchOf(sql: Sql, given: Given) {
  if ('code' in given) {
    const { code, redirectUri, challenge } = given;
    const where = sql`
      granted.code_digest = ${sha256(code)}
      -- OAuth 2.1 leaves it out: PKCE has bound the code already.
      and (granted.redirect_uri = ${redirectUri}
        or (${redirectUri} = '' and granted.challenge <> ''))
      and granted.challenge = ${challenge}
      and (granted.code_used_at is not null
        or granted.created_at > now() - make_interval(secs => ${CODE_SECONDS}))`;
    return { where, isReplayed: sql`granted.code_used_at is not null` };
  }
  const ofToken = (column: Fragment) => sql`
    (select ${column} from identity.oidc_tokens
    where digest = ${sha256(given.refreshToken)} and is_refresh)`;
  return {
    where: sql`granted.id = ${ofToken(sql`grant_id`)}`,
    isReplayed: ofToken(sql`used_at < now() - make_interval(secs => ${GRACE_SECONDS})`),
  };
}

/** What a program gets. */
type Issued = Readonly<{ grant: Grant; access: string; refresh: string | null }>;

/**
 * Gives tokens for a code, or for a refresh token. That of another program, or a code with other
 * values, changes nothing. One that was used before ends all that it gave: one of the two uses is a
 * thief's (ASVS 10.4.2; RFC 9700, 4.14.2).
 * @returns null for an unknown one; 'ended' for one that was right once
 */
export const redeem = (
  { database, idleSeconds }: Sessions,
  actor: Actor,
  { id: clientId, has_secret: hasSecret }: Client,
  given: Given,
) =>
  database.transaction(async (sql): Promise<Issued | 'invalid_scope' | 'ended' | null> => {
    const { where, isReplayed } = matchOf(sql, given);
    const [row] = await sql<Array<GrantRow & { is_replayed: boolean | null }>>`
      select ${columns(sql, idleSeconds)}, granted.nonce, s.methods, ${provedAtSql(sql)} as at,
        extract(epoch from now())::int4 as now, ${isReplayed} as is_replayed
      from ${grantsSql(sql)}
      where granted.client_id = ${clientId} and ${where}
      for update of granted`;
    if (!row) return null;
    if (row.is_replayed) await endGrants(sql, actor, 'grant.replayed', sql`granted.id = ${row.id}`);
    if (row.is_replayed || !row.is_live) return 'ended';
    const grant = grantOf(row);
    const { id, scopes } = grant;
    if ('code' in given) {
      await sql`update identity.oidc_grants set code_used_at = now() where id = ${id}`;
    } else if (!given.scopes.every((name) => scopes.includes(name))) {
      return 'invalid_scope';
    }
    const access = await insertToken(sql, id, false);
    if (!scopes.includes('offline_access')) return { grant, access, refresh: null };
    if ('refreshToken' in given) {
      if (hasSecret) return { grant, access, refresh: given.refreshToken };
      // Without a secret, a program gets another one each time.
      await sql`
        update identity.oidc_tokens set used_at = coalesce(used_at, now())
        where digest = ${sha256(given.refreshToken)}`;
    }
    return { grant, access, refresh: await insertToken(sql, id, true) };
  });

type AccessRow = Pick<GrantRow, 'id' | 'client_id' | 'scopes' | 'is_live'> & JoinedUser;

/** By an access token, also if it has ended. Calls that arrive together share a statement. */
export const findAccess = finderByDigest(
  (sql, digests, { idleSeconds }: Sessions) => sql<ByDigest<AccessRow & { is_over: boolean }>>`
    select encode(t.digest, 'hex') as digest, t.ends_at <= now() as is_over,
      ${columns(sql, idleSeconds)}
    from ${grantsSql(sql)}
    join identity.oidc_tokens t on t.grant_id = granted.id
    where t.digest = any (${digests}::text::bytea[])
      and not t.is_refresh`,
  grantOf,
);

/**
 * As a program asks for it (RFC 7009): a refresh token with all of its grant, an access token
 * alone. A token of another program stays.
 */
export const revokeToken = (database: Database, actor: Actor, clientId: string, token: string) =>
  database.transaction(async (sql) => {
    const digest = sha256(token);
    await endGrants(
      sql,
      actor,
      'grant.ended',
      sql`granted.client_id = ${clientId}
        and granted.id in (
          select grant_id from identity.oidc_tokens where digest = ${digest} and is_refresh)`,
    );
    await sql`
      delete from identity.oidc_tokens
      where digest = ${digest}
        and grant_id in (select id from identity.oidc_grants where client_id = ${clientId})`;
  });

/** Ends what a program has received for a user, who is asked again. */
export const endProgram = (database: Database, actor: Actor, clientId: string, userId: string) =>
  database.transaction(async (sql) => {
    await sql`
      delete from identity.oidc_consents where client_id = ${clientId} and user_id = ${userId}`;
    const where = sql`granted.client_id = ${clientId} and s.user_id = ${userId}`;
    await endGrants(sql, actor, 'grant.ended', where);
  });

/** Removes tokens that have ended. @returns how many; at most `max` */
export const removeEndedTokens = (database: Database, max: number) =>
  removeBatch(
    database,
    'identity.oidc_tokens',
    'digest',
    (sql) => sql`
    select digest from identity.oidc_tokens where ends_at < now() order by ends_at limit ${max}`,
  );

/** Whether a grant, whose id is in ID tokens, depends on a session. */
export async function isGrantOf(database: Database, id: string, sessionId: string) {
  const { count } = await database.read(
    (sql) => sql`
    select from identity.oidc_grants where id = ${id} and session_id = ${sessionId}`,
  );
  return count > 0;
}
