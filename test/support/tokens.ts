import { randomUUID } from 'node:crypto';
import { randomToken, sha256 } from '../../src/platform/crypto/token.ts';
import type { SealedSecret } from '../../src/platform/crypto/service-secret.ts';
import type { Database } from '../../src/platform/db/pool.ts';
import { insertToken, replaceToken } from '../../src/platform/db/tokens.ts';
import { PREFIX } from '../../src/secrets/store/tokens.ts';
import { insertToken as insertWebhookToken, type Token } from '../../src/webhook/store/tokens.ts';

type NewToken = Pick<Token, 'name' | 'role' | 'source'> &
  Partial<Pick<Token, 'custom' | 'order_by'>>;

/** Stores a token of webhook. */
export async function createToken(
  database: Database,
  { custom = null, order_by = null, ...row }: NewToken,
  secret: SealedSecret | null,
): Promise<{ id: string; token: string }> {
  const id = randomUUID();
  const token = randomToken();
  const stored = { ...row, custom, order_by, id, digest: sha256(token) };
  await insertWebhookToken(database, stored, secret);
  return { id, token };
}

/** @returns the new token of webhook, or null if no active token has this id */
export async function rotateToken(
  database: Database,
  id: string,
  overlap: number,
): Promise<string | null> {
  const token = randomToken();
  const isReplaced = await replaceToken(database, 'webhook', id, sha256(token), overlap);
  return isReplaced ? token : null;
}

/** Stores a token of secrets. */
export async function createSecretToken(
  database: Database,
  row: Pick<Token, 'name' | 'role'>,
): Promise<{ id: string; token: string }> {
  const id = randomUUID();
  const token = PREFIX + randomToken();
  const digest = sha256(token);
  await database.write((sql) => insertToken(sql, 'secrets', { ...row, id, digest }));
  return { id, token };
}
