import { randomUUID } from 'node:crypto';
import { unsealServiceSecret, type SealedSecret } from '../../crypto/service-secret.ts';
import { sha256, randomToken } from '../../crypto/token.ts';
import type { Database, Sql } from '../../db/pool.ts';
import { replaceToken } from '../../db/tokens.ts';
import type { SigningKeys } from '../service.ts';
import { SCHEMA } from '../migrations.ts';
import type { Token } from './tokens.ts';

/** @returns its id, and the token itself, which is not stored */
export async function createToken(
  database: Database,
  request: Pick<Token, 'name' | 'role' | 'source'> & Partial<Pick<Token, 'custom'>>,
  secret: SealedSecret | null,
) {
  const id = randomUUID();
  const token = randomToken();
  const { name, role, source, custom } = request;
  const json = custom ? JSON.stringify(custom) : null;
  await database.transaction(async (sql) => {
    await sql`
      insert into webhook.tokens (id, name, role, source, digest, custom)
      values (${id}, ${name}, ${role}, ${source}, ${sha256(token)}, ${json}::text::jsonb)`;
    if (secret) await insertSecret(sql, id, secret, 0);
  });
  return { id, token };
}

/**
 * The old token stays valid for `overlap` seconds, and one before it ends.
 * @returns the new one, or null if no active token has this id
 */
export async function rotateToken(
  database: Database,
  id: string,
  overlap: number,
): Promise<string | null> {
  const token = randomToken();
  const isReplaced = await replaceToken(database, SCHEMA.name, id, sha256(token), overlap);
  return isReplaced ? token : null;
}

/**
 * Replaces the signing secret of a token. The old one stays valid for `overlap` seconds.
 * @returns whether there is an active token with this id
 */
export function rotateSecret(
  database: Database,
  id: string,
  overlap: number,
  secret: SealedSecret,
): Promise<boolean> {
  return database.transaction(async (sql) => {
    const isActive = await lockToken(sql, id);
    if (isActive) await insertSecret(sql, id, secret, overlap);
    return isActive;
  });
}

/** Identifies a pending secret, so that an operator confirms the one that was shown. */
export const fingerprint = (secret: string): string => sha256(secret).toString('hex').slice(0, 16);

/**
 * Activates a pending signing secret.
 * @param expected the fingerprint of the secret that the operator has seen: another may have
 * arrived since
 * @param overlap seconds for which the old secret stays valid
 * @returns whether that secret was pending
 */
export async function acceptPending(
  database: Database,
  id: string,
  keys: SigningKeys,
  expected: string,
  overlap: number,
): Promise<boolean> {
  return database.transaction(async (sql) => {
    const pending = (await lockToken(sql, id)) && (await findPending(sql, id));
    const secret = pending && unsealServiceSecret(keys, pending);
    if (!secret || fingerprint(secret) !== expected) return false;
    await insertSecret(sql, id, pending, overlap);
    return true;
  });
}

/** Locks an active token, so that rotations follow each other. @returns whether there is one */
const lockToken = async (sql: Sql, id: string) =>
  (await sql`select from webhook.tokens where id = ${id} and revoked_at is null for update`)
    .length === 1;

/**
 * Stores an active secret, or activates a pending one.
 * @param overlap seconds for which the old secrets stay valid, unless they expire sooner
 */
async function insertSecret(sql: Sql, tokenId: string, sealed: SealedSecret, overlap: number) {
  await sql`
    delete from webhook.signing_secrets where token_id = ${tokenId} and expires_at <= now()`;
  await sql`
    update webhook.signing_secrets
    set expires_at = least(expires_at, now() + make_interval(secs => ${overlap}))
    where token_id = ${tokenId} and not pending and not for_target`;
  await sql`
    insert into webhook.signing_secrets ${sql({ ...sealed, token_id: tokenId })}
    on conflict (id) do update set pending = false`;
}

/** The secrets that verify the requests of a token. */
export const findSecrets = (database: Database, tokenId: string) =>
  database.list(
    (sql) => sql<SealedSecret[]>`
    select id, key_id, client_key, commitment, blob from webhook.signing_secrets
    where token_id = ${tokenId} and not pending and not for_target
      and (expires_at is null or expires_at > now())`,
  );

/** The signing secret of a token that waits for its confirmation. */
export async function findPending(sql: Sql, tokenId: string): Promise<SealedSecret | null> {
  const [secret] = await sql<SealedSecret[]>`
    select id, key_id, client_key, commitment, blob from webhook.signing_secrets
    where token_id = ${tokenId} and pending`;
  return secret ?? null;
}

/**
 * Replaces the secrets that are not sealed under the key with this id, in one transaction.
 * @param reseal returns null for a secret that it cannot open, which is kept
 */
export function resealSecrets(
  database: Database,
  keyId: string,
  reseal: (sealed: SealedSecret) => SealedSecret | null,
) {
  return database.transaction(async (sql) => {
    const old = await sql<SealedSecret[]>`
      select id, key_id, client_key, commitment, blob from webhook.signing_secrets
      where key_id <> ${keyId} order by id for update`;
    let replaced = 0;
    for (const sealed of old) {
      const resealed = reseal(sealed);
      if (resealed === null) continue;
      await sql`update webhook.signing_secrets set ${sql({ ...resealed })} where id = ${sealed.id}`;
      replaced += 1;
    }
    return { replaced, kept: old.length - replaced };
  });
}

/**
 * Revokes the tokens, which may have been revoked or replaced since a backup.
 * @returns how many of each role
 */
export function revokeRestored(sql: Sql, withSenders: boolean) {
  return sql<Array<{ role: string; revoked: number }>>`
    with revoked as (
      update webhook.tokens set revoked_at = now()
      where revoked_at is null and (role <> 'sender' or ${withSenders}) returning role)
    select role, count(*)::int4 as revoked from revoked group by role order by role`;
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
    const isStored = sql`not exists (select from webhook.outcomes where event_id = e.id)
      and not exists (select from webhook.work where event_id = e.id)`;
    const hasEnded = sql`id in (select event_id from webhook.outcomes where status = ${status})`;
    const isLater = sql`(received_at, id) > (
      select received_at, id from webhook.events where id = ${after})`;
    return sql<Array<{ id: string }>>`
      select id from webhook.events e where ${status === 'stored' ? isStored : hasEnded}
        and ${after === null ? sql`true` : isLater}
      order by received_at, id limit ${limit}`;
  });
  return rows.map(({ id }) => id);
}
