import { sha256 } from '../../../platform/crypto/token.ts';
import type { Database, Sql } from '../../../platform/db/pool.ts';
import type { CallerSession } from '../../model.ts';
import type { Actor } from '../audit.ts';
import { changing } from '../rights.ts';
import { endSessions } from '../session-ends.ts';
import { revokeKeysOf } from '../users.ts';
import {
  callerColumnsSql,
  callerOf,
  type CallerRow,
  insertCopySql,
  provedAtSql,
  sessionFinder,
} from '../sessions.ts';

/** How and when a user signed in. */
type Proof = Readonly<{ methods: string; at: Date }>;
export type ProvenSession = CallerSession & Proof;

/**
 * The tokens of a session: `host` for the portal, `domain` for the cookie that opens only `verify`.
 */
export type Tokens = Readonly<{ host: string; domain: string }>;

/** Gives a session of the API these tokens in place of its own. */
export const replaceToken = (sql: Sql, token: string, { host, domain }: Tokens) => sql`
  update identity.sessions
  set token_digest = ${sha256(host)}, domain_digest = ${sha256(domain)},
    authenticated_at = coalesce(authenticated_at, created_at)
  where token_digest = ${sha256(token)}`;

/** Ends all sessions of the user of this one. A copy of it takes its place. */
export const endOtherSessions = (
  database: Database,
  actor: Actor,
  { id, user }: ProvenSession,
  tokens: Tokens,
  withKeys: boolean,
) =>
  changing(database, actor, user.id, async (sql) => {
    await endSessions(sql, actor, user.id);
    if (withKeys) await revokeKeysOf(sql, actor, user.id);
    await sql`${insertCopySql(sql, id, tokens.host, tokens.domain)}`;
  });

const provenColumnsSql = (sql: Sql, idleSeconds: number) => sql`
  s.methods, ${provedAtSql(sql)} as at, ${callerColumnsSql(sql, idleSeconds)}`;
const provenOf = (row: CallerRow & Proof): ProvenSession => Object.assign(row, callerOf(row));
export const findByHostToken = sessionFinder('token_digest', provenColumnsSql, provenOf);
export const findByDomainToken = sessionFinder('domain_digest', provenColumnsSql, provenOf);
