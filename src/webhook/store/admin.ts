import type { SealedSecret } from '../../platform/crypto/service-secret.ts';
import type { Database, Sql } from '../../platform/db/pool.ts';
import type { NewToken } from '../../platform/db/tokens.ts';
import { isStoredSql } from './inbox.ts';
import { insertSecret } from './signing-secrets.ts';
import type { Token } from './tokens.ts';

/** @param secret its signing secret, or null */
export const insertToken = (
  database: Database,
  { custom, ...token }: NewToken & Pick<Token, 'source' | 'custom' | 'order_by'>,
  secret: SealedSecret | null,
) =>
  database.transaction(async (sql) => {
    await sql`insert into webhook.tokens ${sql({ ...token, custom: custom && sql.json(custom) })}`;
    if (secret) await insertSecret(sql, token.id, secret, 0);
  });

/**
 * What is undefined stays as it is. Nothing more is stored by an earlier order.
 * @returns whether there is an active token of a sender with this id
 */
export async function changeSender(
  database: Database,
  id: string,
  { name, order_by }: Readonly<{ name?: string | undefined; order_by?: string | null | undefined }>,
) {
  const isReordered = order_by !== undefined;
  const { count } = await database.write(
    (sql) => sql`
    update webhook.tokens set name = coalesce(${name ?? null}, name),
      order_by = case when ${isReordered} then ${order_by ?? null} else order_by end,
      revision = revision + ${Number(isReordered)}
    where id = ${id} and role = 'sender' and revoked_at is null`,
  );
  return count === 1;
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
