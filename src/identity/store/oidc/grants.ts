import { randomUUID } from 'node:crypto';
import { sha256 } from '../../../platform/crypto/token.ts';
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

/**
 * A sign-in at a program, with its user. `session_id`: on which all its tokens depend; `now`: of
 * the database, in seconds.
 */
export type Grant = Readonly<{
  id: string;
  client_id: string;
  session_id: string;
  scopes: readonly string[];
  nonce: string;
  methods: string;
  at: Date;
  now: number;
  user: User;
}>;

/** Grants `granted`, each with its program `c`, session `s`, and user `u`. */
const grantsSql = (sql: Sql) => sql`
  ${sessionsSql(sql)}
  join identity.oidc_grants granted on granted.session_id = s.id
  join identity.oidc_clients c on c.id = granted.client_id`;

/**
 * Whether a grant counts, by what its program, session, and user are now. A session with a
 * temporary password counts only by a passkey, as in forward authentication.
 */
const isLiveSql = (sql: Sql, idleSeconds: number) => sql`
  granted.ended_at is null and c.enabled and u.enabled
    and ${sessionStateSql(sql, idleSeconds)}
      in ('active', case when s.methods = 'passkey' then 'temporary password' end)
    and (s.methods <> 'password' or not (u.second_factor or c.second_factor))
    and (cardinality(c.groups) = 0 or c.groups && u.groups)`;

const columns = (sql: Sql, idleSeconds: number) => sql`
  granted.id, granted.client_id, granted.session_id, to_json(granted.scopes) as scopes,
  granted.nonce, s.methods, ${provedAtSql(sql)} as at, s.user_id,
  extract(epoch from now())::int4 as now,
  coalesce(${isLiveSql(sql, idleSeconds)}, false) as is_live, ${joinedUser(sql)}`;

type GrantRow = Omit<Grant, 'user'> & JoinedUser & Readonly<{ is_live: boolean }>;
const grantOf = (row: GrantRow) => Object.assign(row, { user: userOf(row) });

export type NewGrant = Readonly<{
  client: Client;
  sessionId: string;
  scopes: readonly string[];
  redirectUri: string;
  nonce: string;
  challenge: string;
}>;

/** @param code with which the program fetches its tokens */
export const insertGrant = (database: Database, actor: Actor, grant: NewGrant, code: string) =>
  database.transaction(async (sql) => {
    const insert = sql`
      insert into identity.oidc_grants
        (id, client_id, session_id, scopes, redirect_uri, nonce, challenge, code_digest)
      select ${randomUUID()}, ${grant.client.id}, id, ${arrayLiteral(grant.scopes)},
        ${grant.redirectUri}, ${grant.nonce}, ${grant.challenge}, ${sha256(code)}
      from identity.sessions where id = ${grant.sessionId}
      returning id, ${actor.userId}::uuid as user_id`;
    const entry = { event: 'grant.created', actor, detail: grant.client.id } as const;
    return (await audited(sql, entry, insert)).length > 0;
  });

const insertToken = (sql: Sql, token: string, grantId: string, isRefresh: boolean) => sql`
  insert into identity.oidc_tokens (digest, grant_id, is_refresh, ends_at)
  values (${sha256(token)}, ${grantId}, ${isRefresh},
    ${isRefresh ? sql`'infinity'` : sql`now() + make_interval(secs => ${ACCESS_SECONDS})`})`;

/** Ends grants, and with each all its tokens. `where` names grants of the table. */
const endGrants = (
  sql: Sql,
  actor: Actor,
  event: 'grant.ended' | 'grant.replayed',
  where: Fragment,
) =>
  audited<{ client_id: string }>(
    sql,
    { event, actor },
    sql`
    update identity.oidc_grants granted set ended_at = now()
    from identity.sessions s
    where s.id = granted.session_id and granted.ended_at is null and ${where}
    returning granted.id, s.user_id, client_id`,
  );

/** What a program gets. */
export type Issued = Readonly<{ grant: Grant; refresh: string | null }>;
export type NewTokens = Readonly<{ access: string; refresh: string }>;

/**
 * Exchanges a code, once (ASVS 10.4.2). The code of another program, or with other values, changes
 * nothing. A second use ends what the first one gave: one of the two is a thief's.
 * @param challenge what the program's verifier gives; empty without a verifier
 */
export const exchangeCode = (
  { database, idleSeconds }: Sessions,
  actor: Actor,
  { id: clientId }: Client,
  { code, redirectUri, challenge }: Readonly<Record<'code' | 'redirectUri' | 'challenge', string>>,
  tokens: NewTokens,
) =>
  database.transaction(async (sql): Promise<Issued | null> => {
    const [grant] = await sql<Array<GrantRow & { is_used: boolean; is_open: boolean }>>`
      select ${columns(sql, idleSeconds)}, granted.code_used_at is not null as is_used,
        granted.created_at > now() - make_interval(secs => ${CODE_SECONDS}) as is_open
      from ${grantsSql(sql)}
      where granted.code_digest = ${sha256(code)}
        and granted.client_id = ${clientId}
        -- OAuth 2.1 leaves it out: PKCE has bound the code already.
        and (granted.redirect_uri = ${redirectUri}
          or (${redirectUri} = '' and granted.challenge <> ''))
        and granted.challenge = ${challenge}
      for update of granted`;
    if (!grant) return null;
    if (grant.is_used) {
      await endGrants(sql, actor, 'grant.replayed', sql`granted.id = ${grant.id}`);
      return null;
    }
    if (!grant.is_open || !grant.is_live) return null;
    await sql`update identity.oidc_grants set code_used_at = now() where id = ${grant.id}`;
    await insertToken(sql, tokens.access, grant.id, false);
    const refresh = grant.scopes.includes('offline_access') ? tokens.refresh : null;
    if (refresh !== null) await insertToken(sql, refresh, grant.id, true);
    return { grant: grantOf(grant), refresh };
  });

/**
 * A new access token for a refresh token. A program without a secret gets another refresh token
 * each time, and one that is used again later ends all (RFC 9700, 4.14.2).
 * @param scopes that the program names: no more than were granted
 */
export const refreshTokens = (
  { database, idleSeconds }: Sessions,
  actor: Actor,
  client: Client,
  { token, scopes }: Readonly<{ token: string; scopes: readonly string[] }>,
  tokens: NewTokens,
) =>
  database.transaction(async (sql): Promise<Issued | 'invalid_scope' | null> => {
    const digest = sha256(token);
    const [grant] = await sql<Array<GrantRow & { is_replayed: boolean }>>`
      select ${columns(sql, idleSeconds)},
        coalesce(t.used_at < now() - make_interval(secs => ${GRACE_SECONDS}), false) as is_replayed
      from ${grantsSql(sql)}
      join identity.oidc_tokens t on t.grant_id = granted.id
      where t.digest = ${digest}
        and t.is_refresh
        and granted.client_id = ${client.id}
      for update of t`;
    if (!grant?.is_live) return null;
    if (grant.is_replayed) {
      await endGrants(sql, actor, 'grant.replayed', sql`granted.id = ${grant.id}`);
      return null;
    }
    if (!scopes.every((name) => grant.scopes.includes(name))) return 'invalid_scope';
    await insertToken(sql, tokens.access, grant.id, false);
    if (client.has_secret) return { grant: grantOf(grant), refresh: token };
    await sql`
      update identity.oidc_tokens
      set used_at = coalesce(used_at, now()) where digest = ${digest}`;
    await insertToken(sql, tokens.refresh, grant.id, true);
    return { grant: grantOf(grant), refresh: tokens.refresh };
  });

type AccessRow = Pick<GrantRow, 'id' | 'client_id' | 'scopes' | 'is_live'> & JoinedUser;

/** By an access token, also if it has ended. Calls that arrive together share a statement. */
export const findAccess = finderByDigest(
  (sql, digests, { idleSeconds }: Sessions) => sql<ByDigest<AccessRow>>`
    select encode(t.digest, 'hex') as digest, granted.id, granted.client_id,
      to_json(granted.scopes) as scopes, s.user_id,
      t.ends_at > now() and coalesce(${isLiveSql(sql, idleSeconds)}, false) as is_live,
      ${joinedUser(sql)}
    from ${grantsSql(sql)}
    join identity.oidc_tokens t on t.grant_id = granted.id
    where t.digest = any (${digests}::text::bytea[])
      and not t.is_refresh`,
  (row) => Object.assign(row, { user: userOf(row) }),
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

/** Ends what a program has received for a user, who is asked again. @returns how many sign-ins */
export const endProgram = (database: Database, actor: Actor, clientId: string, userId: string) =>
  database.transaction(async (sql) => {
    await sql`
      delete from identity.oidc_consents where client_id = ${clientId} and user_id = ${userId}`;
    const where = sql`granted.client_id = ${clientId} and s.user_id = ${userId}`;
    return (await endGrants(sql, actor, 'grant.ended', where)).length;
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

/** The session of a grant, whose id is in ID tokens, if it counts. */
export async function findGrantSession({ database, idleSeconds }: Sessions, id: string) {
  const [row] = await database.read(
    (sql) => sql<Array<{ session_id: string; client_id: string }>>`
      select granted.session_id, granted.client_id
      from ${grantsSql(sql)}
      where granted.id = ${id} and ${isLiveSql(sql, idleSeconds)}`,
  );
  return row ?? null;
}
