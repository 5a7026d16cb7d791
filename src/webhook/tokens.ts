import { randomUUID } from 'node:crypto';
import type { ServerKey } from '../crypto/box.ts';
import { digest, randomToken } from '../crypto/token.ts';
import { withNamedLock } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import { SCHEMA } from './migrations.ts';
import { openSecret, sealSecret } from './signing.ts';
import { anyTokenExists, findPending, insertSecret, insertToken, lockToken, removePending, replaceDigest, type Role, type Token } from './store/tokens.ts';
import type { SourceName } from './sources.ts';

/** A signing secret, and what it is sealed under. */
export interface Signing {
  readonly key: ServerKey;
  readonly secret: string;
}

/** @returns the stored record and the token itself, which is shown once and kept nowhere */
export async function createToken(
  database: Database,
  wish: { readonly name: string; readonly role: Role; readonly source: SourceName },
  signing: Signing | null,
): Promise<{ record: Token; token: string }> {
  const token = randomToken();
  const record = await database.transaction(async (sql) => {
    const made = await insertToken(sql, { ...wish, id: randomUUID(), digest: digest(token) });
    if (signing) await insertSecret(sql, made.id, sealSecret(signing.key, signing.secret), 0);
    return made;
  });
  return { record, token };
}

/**
 * A new token, or a new signing secret, in the place of the old one, which holds for `overlap` seconds more.
 * @returns the new token, or null for a signing secret; false when there is no live token with this id
 */
export async function rotateToken(database: Database, id: string, overlap: number, signing: Signing | null): Promise<string | null | false> {
  const token = signing ? null : randomToken();
  return database.transaction(async (sql) => {
    if (!(await lockToken(sql, id))) return false;
    if (signing) await insertSecret(sql, id, sealSecret(signing.key, signing.secret), overlap);
    else if (token !== null) await replaceDigest(sql, id, digest(token), overlap);
    return token;
  });
}

/** @returns the signing secret that a sender has handed over, null where it is sealed under another key, or false where none waits */
export async function showPending(database: Database, id: string, key: ServerKey): Promise<string | null | false> {
  const pending = await database.read((sql) => findPending(sql, id));
  return pending ? openSecret(key, pending) : false;
}

/** What an operator compares and names a handed-over secret by. */
export const fingerprint = (secret: string): string => digest(secret).toString('hex').slice(0, 16);

/**
 * Puts a signing secret that a sender has handed over in force; the one of before holds for `overlap` seconds more.
 * @param expected the fingerprint of the one that the operator has seen: another may have come since
 * @returns whether that one was there
 */
export async function acceptPending(database: Database, id: string, key: ServerKey, expected: string, overlap: number): Promise<boolean> {
  return database.transaction(async (sql) => {
    const pending = (await lockToken(sql, id)) && (await findPending(sql, id));
    const secret = pending && openSecret(key, pending);
    if (!secret || fingerprint(secret) !== expected) return false;
    await removePending(sql, id);
    await insertSecret(sql, id, sealSecret(key, secret), overlap);
    return true;
  });
}

/**
 * The first token, where there is none at all.
 * @param given the one to use, or null to make one
 * @returns null when there is a token already, whoever made it, and whether revoked or not
 */
export async function createFirstToken(database: Database, given: string | null): Promise<string | null> {
  const token = given ?? randomToken();
  return withNamedLock(database, SCHEMA, 'first token', async (sql) => {
    if (await anyTokenExists(sql)) return null;
    await insertToken(sql, { id: randomUUID(), name: 'first', role: 'sender', source: 'generic', digest: digest(token) });
    return token;
  });
}
