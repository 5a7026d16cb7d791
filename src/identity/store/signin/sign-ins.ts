import { sha256 } from '../../../platform/crypto/token.ts';
import type { Database, Sql } from '../../../platform/db/pool.ts';
import type { CallerSession } from '../../model.ts';
import type { Actor } from '../audit.ts';
import { changing } from '../rights.ts';
import { endSessions } from '../session-ends.ts';
import { revokeKeysOf } from '../keys.ts';
import { type ByDigest, finderByDigest, firstRow } from '../rows.ts';
import {
  callerColumns,
  callerOf,
  type CallerRow,
  insertCopySql,
  provedAtSql,
  type Sessions,
  sessionsSql,
} from '../sessions.ts';

/** How and when a user signed in. */
type Proof = Readonly<{ methods: string; at: Date }>;
export type ProvenSession = CallerSession & Proof;

/**
 * The tokens of a session: `host` for the portal, `domain` for the cookie that opens only `verify`.
 */
export type Tokens = Readonly<{ host: string; domain: string }>;

/**
 * Gives a session these tokens in place of its own (ASVS 7.2.4).
 * @param factor that the user has just added; a passkey alone was sufficient proof before
 */
export const replaceToken = (
  database: Database,
  token: string,
  { host, domain }: Tokens,
  factor: 'totp' | 'passkey' | null,
) =>
  firstRow(
    database.write(
      (sql) => sql<Array<{ stays: boolean }>>`
      update identity.sessions
      set token_digest = ${sha256(host)}, domain_digest = ${sha256(domain)},
        authenticated_at = coalesce(authenticated_at, created_at),
        methods = case when methods = 'password' then concat_ws(', ', methods, ${factor}::text)
          else methods end
      where token_digest = ${sha256(token)}
      returning stays_until is not null as stays`,
    ),
  );

/**
 * Programs at which the user signed in with a session go on with the one that replaces it, of the
 * same user.
 * @param token of the new session
 */
export const moveGrants = (sql: Sql, { id, user }: ProvenSession, token: string) => sql`
  update identity.oidc_grants set session_id = successor.id
  from identity.sessions successor
  where successor.token_digest = ${sha256(token)}
    and successor.user_id = ${user.id}
    and session_id = ${id}`;

/** Ends all sessions of the user of this one. A copy of it with this token takes its place. */
export const endOtherSessions = (
  database: Database,
  actor: Actor,
  session: ProvenSession,
  token: string,
  withKeys: boolean,
) =>
  changing(database, actor, session.user.id, async (sql) => {
    const { id, user } = session;
    await endSessions(sql, actor, user.id);
    if (withKeys) await revokeKeysOf(sql, actor, user.id);
    await sql`${insertCopySql(sql, id, token)}`;
    await moveGrants(sql, session, token);
  });

const provenOf = (row: CallerRow & Proof): ProvenSession => Object.assign(row, callerOf(row));
const provenFinder = (column: 'token_digest' | 'domain_digest') =>
  finderByDigest(
    (sql, digests, { idleSeconds }: Sessions) => sql<ByDigest<CallerRow & Proof>>`
      select encode(s.${sql(column)}, 'hex') as digest, s.methods, ${provedAtSql(sql)} as at,
        ${callerColumns(sql, idleSeconds)}
      from ${sessionsSql(sql)}
      where s.${sql(column)} = any (${digests}::text::bytea[])
        and s.deleted_at is null`,
    provenOf,
  );
export const findByHostToken = provenFinder('token_digest');
export const findByDomainToken = provenFinder('domain_digest');
