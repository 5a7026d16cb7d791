import { randomUUID } from 'node:crypto';
import type { SealedSecret } from '../../crypto/service-secret.ts';
import { sha256, randomToken } from '../../crypto/token.ts';
import type { Database, Sql } from '../../db/pool.ts';
import { replaceToken } from '../../db/tokens.ts';
import { SCHEMA } from '../migrations.ts';
import { isStoredSql } from './inbox.ts';
import { insertSecret } from './signing-secrets.ts';
import type { Token } from './tokens.ts';

/** @returns its id, and the token itself, which is not stored */
export async function createToken(
  database: Database,
  {
    name,
    role,
    source,
    custom = null,
  }: Pick<Token, 'name' | 'role' | 'source'> & Partial<Pick<Token, 'custom'>>,
  secret: SealedSecret | null,
) {
  const id = randomUUID();
  const token = randomToken();
  await database.transaction(async (sql) => {
    const row = {
      id,
      name,
      role,
      source,
      digest: sha256(token),
      custom: custom && sql.json(custom),
    };
    await sql`insert into webhook.tokens ${sql(row)}`;
    if (secret) await insertSecret(sql, id, secret, 0);
  });
  return { id, token };
}

/**
 * The old token stays valid for `overlap` seconds, and one before it ends.
 * @returns the new one, or null if no active token has this id
 */
export async function rotateToken(database: Database, id: string, overlap: number) {
  const token = randomToken();
  const isReplaced = await replaceToken(database, SCHEMA.name, id, sha256(token), overlap);
  return isReplaced ? token : null;
}

/**
 * Revokes the tokens, which may have been revoked or replaced since a backup.
 * @returns how many of each role
 */
export function revokeRestored(sql: Sql, withSenders: boolean) {
  return sql<Array<{ role: string; revoked: number }>>`
    with revoked as (
      update webhook.tokens set revoked_at = now()
      where revoked_at is null and (role <> 'sender' or ${withSenders})
      returning role)
    select role, count(*)::int4 as revoked
    from revoked
    group by role
    order by role`;
}

/**
 * @param after the last id of the batch before; null for the first batch
 * @returns up to `limit` ids, oldest first
 */
export async function idsWithStatus(
  database: Database,
  status: 'dead' | 'stored' | 'skipped',
  after: string | null,
  limit: number,
) {
  const rows = await database.list((sql) => {
    const hasEnded = sql`id in (select event_id from webhook.outcomes where status = ${status})`;
    const isLater = sql`(received_at, id) > (
      select received_at, id
      from webhook.events
      where id = ${after})`;
    return sql<Array<{ id: string }>>`
      select id
      from webhook.events e
      where ${status === 'stored' ? isStoredSql(sql) : hasEnded}
        and ${after === null ? sql`true` : isLater}
      order by received_at, id
      limit ${limit}`;
  });
  return rows.map(({ id }) => id);
}
