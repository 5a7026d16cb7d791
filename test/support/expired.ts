/** A secret that has expired. Its ciphertext is bound to the expiry, which cannot be changed. */
import { randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { createClientKey } from '../../src/platform/crypto/seal.ts';
import { createServerKey } from '../../src/secrets/envelope.ts';
import { seal } from './envelope.ts';
import { SERVER_SECRET } from './gatehouse.ts';

export async function keepExpired(
  sql: Sql,
  maxReads: number | null = null,
): Promise<{ id: string; secret: string }> {
  const [clock] = await sql`select date_trunc('milliseconds', now()) as now`;
  const expiresAt = Number(clock?.now.getTime()) - 60_000;
  const metadata = { id: randomUUID(), expiresAt, maxReads };
  const serverKey = createServerKey(SERVER_SECRET);
  const clientKey = createClientKey();
  const sealed = seal(serverKey, clientKey, metadata, Buffer.from('expired'));
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads)
    values (${metadata.id}, ${serverKey.id}, ${sealed.commitment}, ${sealed.blob},
      ${sealed.tag}, ${new Date(expiresAt)}, ${maxReads})`;
  return { id: metadata.id, secret: clientKey.toString('base64url') };
}
