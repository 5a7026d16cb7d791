import {
  type SealedSecret,
  sealSecret,
  unsealServiceSecret,
} from '../../platform/crypto/service-secret.ts';
import type { ServerKey } from '../../platform/crypto/seal.ts';
import { sha256Hex } from '../../platform/crypto/token.ts';
import type { Database, Sql } from '../../platform/db/pool.ts';

/** The first seals, all of them open. */
export type SigningKeys = readonly [ServerKey, ...ServerKey[]];

/**
 * `verify`: the requests of the sender. `sign`: those to the target of the token. `pending`: once
 * an operator has confirmed it, it verifies.
 */
type Purpose = 'verify' | 'sign' | 'pending';

/** A statement, or the beginning of one that says what to do about a conflict. */
export const insertSql = (sql: Sql, sealed: SealedSecret, tokenId: string, purpose: Purpose) => sql`
  insert into webhook.signing_secrets ${sql({ ...sealed, token_id: tokenId, purpose })}`;

/** The secrets of a token: during a rotation two that verify, otherwise one for each purpose. */
export const findSecrets = (database: Database, tokenId: string, purpose: Purpose) =>
  database.read(
    (sql) => sql<SealedSecret[]>`
    select id, key_id, client_key, commitment, blob
    from webhook.signing_secrets
    where token_id = ${tokenId}
      and purpose = ${purpose}
      and (expires_at is null or expires_at > now())`,
  );

/**
 * Stores an active secret of a token, or activates a pending one. The old ones stay valid for
 * `overlap` seconds, unless they expire sooner.
 * @returns whether there is an active token with this id
 */
export const rotateSecret = (
  database: Database,
  id: string,
  overlap: number,
  secret: SealedSecret,
) =>
  database.transaction(async (sql) => {
    // Locks the token, so that rotations follow each other.
    const { count } = await sql`
      select from webhook.tokens where id = ${id} and revoked_at is null for update`;
    if (count === 0) return false;
    await sql`delete from webhook.signing_secrets where token_id = ${id} and expires_at <= now()`;
    await sql`
      update webhook.signing_secrets
      set expires_at = least(expires_at, now() + make_interval(secs => ${overlap}))
      where token_id = ${id} and purpose = 'verify' and id <> ${secret.id}`;
    await sql`
      ${insertSql(sql, secret, id, 'verify')}
      on conflict (id) do update set purpose = excluded.purpose`;
    return true;
  });

/** Identifies a pending secret, so that an operator confirms the one that was shown. */
export const fingerprint = (secret: string) => sha256Hex(secret).slice(0, 16);

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
) {
  const [pending] = await findSecrets(database, id, 'pending');
  const secret = pending && unsealServiceSecret(keys, pending);
  if (!secret || fingerprint(secret) !== expected) return false;
  return rotateSecret(database, id, overlap, pending);
}

/**
 * Seals the secrets that are not under the first key again, in one transaction. A secret that none
 * of the keys opens is kept.
 */
export const resealSecrets = (database: Database, keys: SigningKeys) =>
  database.transaction(async (sql) => {
    const [key] = keys;
    const old = await sql<SealedSecret[]>`
      select id, key_id, client_key, commitment, blob
      from webhook.signing_secrets
      where key_id <> ${key.id}
      order by id
      for update`;
    let replaced = 0;
    for (const sealed of old) {
      const secret = unsealServiceSecret(keys, sealed);
      if (secret === null) continue;
      const resealed = sealSecret(key, secret);
      await sql`update webhook.signing_secrets set ${sql(resealed)} where id = ${sealed.id}`;
      replaced += 1;
    }
    return { replaced, kept: old.length - replaced };
  });

/**
 * Stores a secret that a sender sent itself. It replaces an earlier pending one, and never an
 * active one.
 */
export const insertPending = (database: Database, tokenId: string, sealed: SealedSecret) =>
  database.write(
    (sql) => sql`
    ${insertSql(sql, sealed, tokenId, 'pending')}
    on conflict (token_id, purpose) where purpose <> 'verify' do update
    set id = excluded.id, key_id = excluded.key_id, client_key = excluded.client_key,
      commitment = excluded.commitment, blob = excluded.blob, created_at = excluded.created_at`,
  );

/** How many active signing secrets are sealed under each WEBHOOK_SECRET, by its key id. */
export const countByKey = (database: Database) =>
  database.list(
    (sql) => sql<Array<{ key_id: string; secrets: number }>>`
    select key_id, count(*)::int4 as secrets
    from webhook.signing_secrets
    join webhook.tokens t on t.id = token_id
    where revoked_at is null and (expires_at is null or expires_at > now())
    group by key_id`,
  );
