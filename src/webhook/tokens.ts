import { randomUUID } from 'node:crypto';
import { openSecret, type SealedSecret } from '../crypto/sealed.ts';
import { digest, randomToken } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import type { SigningKeys } from './service.ts';
import { findPending, insertSecret, lockToken, replaceDigest } from './store/admin.ts';
import { insertToken, type NewToken } from './store/tokens.ts';

/** @returns its id, and the token itself, which is not stored */
export async function createToken(
  database: Database, request: Pick<NewToken, 'name' | 'role' | 'source'>, secret: SealedSecret | null,
): Promise<{ id: string; token: string }> {
  const [id, token] = [randomUUID(), randomToken()];
  await database.transaction(async (sql) => {
    await insertToken(sql, { ...request, id, digest: digest(token) });
    if (secret) await insertSecret(sql, id, secret, 0);
  });
  return { id, token };
}

/**
 * Replaces a token, or its signing secret if one is given. The old one stays valid for `overlap` seconds.
 * @returns the new token, null for a signing secret, or false if there is no active token with this id
 */
export async function rotateToken(
  database: Database, id: string, overlap: number, secret: SealedSecret | null,
): Promise<string | null | false> {
  return database.transaction(async (sql) => {
    if (!(await lockToken(sql, id))) return false;
    if (secret) return insertSecret(sql, id, secret, overlap).then(() => null);
    const token = randomToken();
    await replaceDigest(sql, id, digest(token), overlap);
    return token;
  });
}

/** @returns the pending signing secret, null if it is sealed under another key, or false if there is none */
export async function showPending(database: Database, id: string, keys: SigningKeys): Promise<string | null | false> {
  const pending = await database.read((sql) => findPending(sql, id));
  return pending ? openSecret(keys, pending) : false;
}

/** Identifies a pending secret, so that an operator confirms the one that was shown. */
export const fingerprint = (secret: string): string => digest(secret).toString('hex').slice(0, 16);

/**
 * Activates a pending signing secret.
 * @param expected the fingerprint of the secret that the operator has seen: another may have arrived since
 * @param overlap seconds for which the old secret stays valid
 * @returns whether that secret was pending
 */
export async function acceptPending(
  database: Database, id: string, keys: SigningKeys, expected: string, overlap: number,
): Promise<boolean> {
  return database.transaction(async (sql) => {
    const pending = (await lockToken(sql, id)) && (await findPending(sql, id));
    const secret = pending && openSecret(keys, pending);
    if (!secret || fingerprint(secret) !== expected) return false;
    await insertSecret(sql, id, pending, overlap);
    return true;
  });
}
