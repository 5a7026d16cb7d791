import { randomUUID } from 'node:crypto';
import { sha256 } from '../../../crypto/token.ts';
import type { Database, Sql } from '../../../db/pool.ts';
import type { CallerSession } from '../../model.ts';
import { type Actor, changing } from '../audit.ts';
import { endSessions } from '../session-ends.ts';
import { callerColumnsSql, callerOf, type CallerRow, sessionFinder } from '../sessions.ts';

/**
 * How and when a user signed in. `age` in seconds; `has_factor`: whether the user has a second one.
 */
type Proof = Readonly<{ methods: string; age: number; at: Date; has_factor: boolean }>;
export type ProvenSession = CallerSession & Proof;

/**
 * The tokens of a session: `host` for the portal, `domain` for the cookie that opens only `verify`.
 */
export type Tokens = Readonly<{ host: string; domain: string }>;

/**
 * Records how a session was proved, and gives it these tokens.
 * @param at null: when the session began
 * @param current the present token of the session
 */
export const recordProof = (
  sql: Sql,
  { host, domain }: Tokens,
  methods: string,
  at: Date | null,
  current = host,
) => sql`
  update identity.sessions
  set token_digest = ${sha256(host)}, domain_digest = ${sha256(domain)},
    authenticated_at = coalesce(authenticated_at, ${at}, created_at),
    -- The user has just used a new factor. A passkey alone was sufficient proof.
    methods = case coalesce(methods, 'password') when 'password' then ${methods} else methods end
  where token_digest = ${sha256(current)}`;

/**
 * Ends all sessions of the user of this one. A copy of it takes its place, with its end and how it
 * was proved.
 */
export const endOtherSessions = (
  database: Database,
  actor: Actor,
  { id, user }: ProvenSession,
  tokens: Tokens,
) =>
  changing(database, actor, user.id, async (sql) => {
    await endSessions(sql, actor, user.id);
    await sql`
      insert into identity.sessions
        (id, token_digest, domain_digest, user_id, ip, user_agent, methods, authenticated_at,
          expires_at, created_at, updated_at, last_seen_at)
      select ${randomUUID()}::uuid, ${sha256(tokens.host)}, ${sha256(tokens.domain)}, user_id, ip,
        user_agent, methods, authenticated_at, expires_at, at, at, at
      from identity.sessions, clock_timestamp() as at where id = ${id}`;
  });

/** A login through the API counts as a login by password. */
const provenColumnsSql = (sql: Sql, idleSeconds: number) => sql`
  coalesce(s.methods, 'password') as methods, coalesce(s.authenticated_at, s.created_at) as at,
  extract(epoch from now() - coalesce(s.authenticated_at, s.created_at))::float8 as age,
  u.second_factor as has_factor, ${callerColumnsSql(sql, idleSeconds)}`;
const provenOf = (row: CallerRow & Proof): ProvenSession => Object.assign(row, callerOf(row));
export const findByHostToken = sessionFinder('token_digest', provenColumnsSql, provenOf);
export const findByDomainToken = sessionFinder('domain_digest', provenColumnsSql, provenOf);
