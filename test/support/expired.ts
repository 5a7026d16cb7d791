/** A secret whose time is over: its expiry is sealed in, so it can be stored late but not moved. */
import { randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { createClientKey, createServerKey, rowTagOf, seal } from '../../src/crypto/box.ts';
import { SERVER_SECRET } from './gatehouse.ts';

export async function keepExpired(sql: Sql, text = 'expired'): Promise<{ id: string; secret: string }> {
  const [clock] = await sql`select date_trunc('milliseconds', now()) as now`;
  const conditions = { id: randomUUID(), expiresAt: Number(clock?.now.getTime()) - 60_000, maxReads: null };
  const [serverKey, clientKey] = [createServerKey(SERVER_SECRET), createClientKey()];
  const sealed = seal(serverKey, clientKey, conditions, Buffer.from(text));
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at)
    values (${conditions.id}, ${serverKey.id}, ${sealed.commitment}, ${sealed.blob}, ${rowTagOf(serverKey, conditions, sealed)}, ${new Date(conditions.expiresAt)})`;
  return { id: conditions.id, secret: clientKey.toString('base64url') };
}
