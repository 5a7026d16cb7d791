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
import type { Request } from '../../oidc/request.ts';
import type { Client } from './clients.ts';

/** An access token is checked against its session at each use. */
export const ACCESS_SECONDS = 3_600;
/** For which each kind is valid: a code for a minute (ASVS 10.4.3). */
const SECONDS = { code: 60, access: ACCESS_SECONDS, refresh: null };
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
const grantsSql = (sql: Sql) => sql`
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

type AccessRow = Pick<Grant, 'id' | 'client_id' | 'scopes'> &
  JoinedUser &
  Readonly<{ is_live: boolean | null }>;
const grantOf = <Row extends JoinedUser>(row: Row) => Object.assign(row, { user: userOf(row) });

/** @returns the code with which the program fetches its tokens; null if the session was removed */
export const insertGrant = (
  database: Database,
  actor: Actor,
  sessionId: string,
  { client, redirectUri, authorization: { scopes, nonce, challenge } }: Request,
) =>
  database.transaction(async (sql) => {
    const insert = sql`
      insert into identity.oidc_grants
        (id, client_id, session_id, scopes, redirect_uri, nonce, challenge)
      select ${randomUUID()}, ${client.id}, id, ${arrayLiteral(scopes)}, ${redirectUri}, ${nonce},
        ${challenge}
      from identity.sessions where id = ${sessionId}
      returning id, ${actor.userId}::uuid as user_id`;
    const entry = { event: 'grant.created', actor, detail: client.id } as const;
    const [grant] = await audited<{ id: string }>(sql, entry, insert);
    return grant ? insertToken(sql, grant.id, 'code') : null;
  });

async function insertToken(sql: Sql, grantId: string, kind: keyof typeof SECONDS) {
  const token = randomToken();
  await sql`
    insert into identity.oidc_tokens (digest, grant_id, kind, ends_at)
    values (${sha256(token)}, ${grantId}, ${kind},
      now() + make_interval(secs => ${SECONDS[kind]}))`;
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
    returning granted.id, s.user_id`,
  );

/** What a program sends for tokens. For a refresh, only the token and the scopes count. */
export type Given = Readonly<{
  kind: 'code' | 'refresh';
  token: string;
  redirectUri: string;
  challenge: string;
  scopes: readonly string[];
}>;

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
  database.transaction(async (sql) => {
    const { kind, redirectUri, challenge } = given;
    const digest = sha256(given.token);
    const [row] = await sql<
      Array<Omit<Grant, 'user'> & AccessRow & { is_replayed: boolean | null }>
    >`
      select ${columns(sql, idleSeconds)}, granted.nonce, s.methods, ${provedAtSql(sql)} as at,
        extract(epoch from now())::int4 as now,
        t.used_at is not null and (t.kind = 'code'
          or t.used_at < now() - make_interval(secs => ${GRACE_SECONDS})) as is_replayed
      from ${grantsSql(sql)}
      join identity.oidc_tokens t on t.grant_id = granted.id
      where t.digest = ${digest}
        and t.kind = ${kind}
        and coalesce(t.ends_at > now(), true)
        and granted.client_id = ${clientId}
        and (t.kind = 'refresh' or (granted.challenge = ${challenge}
          -- OAuth 2.1 leaves the address out: PKCE has bound the code already.
          and (granted.redirect_uri = ${redirectUri}
            or (${redirectUri} = '' and granted.challenge <> ''))))
      for update of granted, t`;
    if (!row) return null;
    if (row.is_replayed) await endGrants(sql, actor, 'grant.replayed', sql`granted.id = ${row.id}`);
    if (row.is_replayed || !row.is_live) return 'ended';
    const grant = grantOf(row);
    const { id, scopes } = grant;
    if (!given.scopes.every((name) => scopes.includes(name))) return 'invalid_scope';
    const access = await insertToken(sql, id, 'access');
    if (kind === 'refresh' && hasSecret) return { grant, access, refresh: given.token };
    // It is kept, to notice a second use. Without a secret, a program gets another one each time.
    await sql`
      update identity.oidc_tokens set used_at = coalesce(used_at, now()), ends_at = null
      where digest = ${digest}`;
    const hasRefresh = scopes.includes('offline_access');
    return { grant, access, refresh: hasRefresh ? await insertToken(sql, id, 'refresh') : null };
  });

/** By an access token, also if it has ended. Calls that arrive together share a statement. */
export const findAccess = finderByDigest(
  (sql, digests, { idleSeconds }: Sessions) => sql<ByDigest<AccessRow & { is_over: boolean }>>`
    select encode(t.digest, 'hex') as digest, t.ends_at <= now() as is_over,
      ${columns(sql, idleSeconds)}
    from ${grantsSql(sql)}
    join identity.oidc_tokens t on t.grant_id = granted.id
    where t.digest = any (${digests}::text::bytea[])
      and t.kind = 'access'`,
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
          select grant_id from identity.oidc_tokens where digest = ${digest} and kind = 'refresh')`,
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

// --- Back-channel logout

/** A sign-in that has ended, and the address of the program that is told so. */
export type Notice = Readonly<{
  id: string;
  client_id: string;
  user_id: string;
  address: string;
  now: number; // of the database, in seconds
}>;

const BATCH = 20;

/**
 * Takes sign-ins that have ended, for a minute: if this process ends meanwhile, another tells the
 * program.
 */
export const takeNotices = ({ database, idleSeconds }: Sessions) =>
  database.write(
    (sql) => sql<Notice[]>`
    update identity.oidc_grants granted
    set notices_left = notices_left - 1, notice_at = now() + interval '1 minute'
    from (
      select granted.id, s.user_id, c.backchannel_uri
      from ${grantsSql(sql)}
      where c.backchannel_uri <> ''
        -- Its code was exchanged.
        and exists (
          select from identity.oidc_tokens where grant_id = granted.id and used_at is not null)
        and granted.notices_left > 0
        and granted.notice_at <= now()
        and (granted.ended_at is not null or not u.enabled
          or ${sessionStateSql(sql, idleSeconds)} = 'ended')
      limit ${BATCH}
      for update of granted skip locked
    ) due
    where granted.id = due.id
    returning granted.id, granted.client_id, due.user_id, due.backchannel_uri as address,
      extract(epoch from now())::int4 as now`,
  );

export const markTold = (database: Database, id: string) =>
  database.write((sql) => sql`update identity.oidc_grants set notices_left = 0 where id = ${id}`);
