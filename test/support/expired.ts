/**
 * Secrets with any expiry. The ciphertext is bound to it, so it cannot be changed after the row was
 * stored.
 */
import { randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { createClientKey } from '../../src/platform/crypto/seal.ts';
import { createServerKey } from '../../src/secrets/envelope.ts';
import { seal } from './envelope.ts';
import { SERVER_SECRET } from './gatehouse.ts';

interface Kept {
  readonly id: string;
  readonly secret: string;
}

export async function keepUntil(
  sql: Sql,
  millisecondsFromNow: number,
  text: string,
): Promise<Kept> {
  const [clock] = await sql`select date_trunc('milliseconds', now()) as now`;
  const expiresAt = Number(clock?.now.getTime()) + millisecondsFromNow;
  const metadata = { id: randomUUID(), expiresAt, maxReads: null };
  const serverKey = createServerKey(SERVER_SECRET);
  const clientKey = createClientKey();
  const sealed = seal(serverKey, clientKey, metadata, Buffer.from(text));
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at)
    values (${metadata.id}, ${serverKey.id}, ${sealed.commitment}, ${sealed.blob},
      ${sealed.tag}, ${new Date(expiresAt)})`;
  return { id: metadata.id, secret: clientKey.toString('base64url') };
}

export const keepExpired = (sql: Sql, text = 'expired'): Promise<Kept> =>
  keepUntil(sql, -60_000, text);
