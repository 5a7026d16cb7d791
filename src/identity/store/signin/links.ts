import { sha256 } from '../../../platform/crypto/token.ts';
import type { Database, Sql } from '../../../platform/db/pool.ts';
import { type Actor, audited, creatorOf } from '../audit.ts';
import { changeRows, changing } from '../rights.ts';
import { endLink, type PasswordInput, writePassword } from '../users.ts';
import { hasChanged, isOpenLinkSql } from '../rows.ts';
import { removeFactorsOf } from './factors.ts';

/**
 * A link with which its user sets a password. Each user has one row, so that a new link replaces
 * the earlier one.
 */
export type Link = Readonly<{
  token_digest: Buffer;
  user_id: string;
  removes_factors: boolean;
  is_open: boolean;
}>;

/** Finds a link even if it has ended. The use of an ended link is recorded. */
export async function findLink(database: Database, actor: Actor, digest: Buffer) {
  const [link] = await database.read(
    (sql) => sql<Link[]>`
      select token_digest, user_id, removes_factors, ${isOpenLinkSql(sql)} as is_open
      from identity.links l where token_digest = ${digest}`,
  );
  if (link && !link.is_open) await database.write((sql) => recordLateUse(sql, actor, digest));
  return link ?? null;
}

/** Each opening stores a sign-in and an audit entry: whoever has the link could fill the disk. */
const MAX_OPENINGS = 20;

/** @returns whether the link may be opened once more */
export const countOpening = (sql: Sql, { token_digest: digest }: Link) =>
  hasChanged(
    sql`
    update identity.links
    set openings = openings + 1
    where token_digest = ${digest}
      and openings < ${MAX_OPENINGS}`,
  );

/**
 * @returns what inserts the link, in a transaction that has locked the user, and tells when the
 * link ends, or why there is none
 */
export const insertLink =
  (token: string, removesFactors: boolean, seconds: number) =>
  async (sql: Sql, actor: Actor, userId: string) => {
    const [user] = await sql`select from identity.users where id = ${userId} and enabled`;
    if (!user) return 'disabled';
    await endLink(sql, actor, userId, 'newer link');
    await sql`delete from identity.links where user_id = ${userId}`;
    const detail = removesFactors ? 'removes the second factors' : '';
    const insert = sql`
      insert into identity.links (user_id, token_digest, removes_factors, created_by, key_id,
        expires_at)
      values (${userId}, ${sha256(token)}, ${removesFactors}, ${creatorOf(actor)},
        ${actor.caller?.key?.id ?? null}, now() + make_interval(secs => ${seconds}))
      returning user_id as id, user_id, expires_at`;
    const entry = { event: 'link.created', actor, detail } as const;
    const [link] = await audited<{ expires_at: Date }>(sql, entry, insert);
    return link?.expires_at ?? 'disabled';
  };

/** @returns 1, or 0 if no link was open; null for an unknown user */
export const revokeLink = (database: Database, actor: Actor, userId: string) =>
  changeRows(
    database,
    { event: 'link.revoked', actor },
    userId,
    (sql) => sql`
    update identity.links l
    set is_ended = true
    where user_id = ${userId}
      and ${isOpenLinkSql(sql)}
    returning user_id as id, user_id`,
  );

/**
 * Uses the link up, ends the sessions, and sets the password. Of concurrent uses, the first one
 * locks the user, and the others find the link ended.
 * @returns null if it has ended
 */
export const applyLink = (
  database: Database,
  actor: Actor,
  { token_digest: digest, user_id: userId }: Link,
  password: PasswordInput,
) =>
  changing(database, actor, userId, async (sql) => {
    const end = sql`
      update identity.links l set is_ended = true
      where token_digest = ${digest} and ${isOpenLinkSql(sql)}
      returning user_id as id, user_id, removes_factors`;
    const [used] = await audited<Link>(sql, { event: 'link.used', actor }, end);
    if (!used) {
      await recordLateUse(sql, actor, digest);
      return null;
    }
    if (used.removes_factors) await removeFactorsOf(sql, actor, userId, 'all');
    return writePassword(sql, { event: 'password.set', actor }, userId, password);
  });

/**
 * Records that a link was used that has ended: someone else may have it. Only once, because
 * whoever has it could fill the disk.
 */
const recordLateUse = (sql: Sql, actor: Actor, digest: Buffer) =>
  audited(
    sql,
    { event: 'link.late', actor: { ...actor, userId: null, via: 'nobody' } },
    sql`
    delete from identity.links l
    where token_digest = ${digest}
      and not (${isOpenLinkSql(sql)})
    returning user_id as id, user_id`,
  );
