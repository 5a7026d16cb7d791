import { randomUUID } from 'node:crypto';
import { createClientKey, deriveServerKey, seal, type ServerKey, unseal } from '../crypto/box.ts';

/** A signing secret as it is stored: sealed, because unlike a token it must be read again to check with. */
export interface SealedSecret {
  readonly id: string;
  readonly key_id: string;
  /** The client's client_key of the key. It lies beside the box, so what protects the secret is WEBHOOK_SECRET alone. */
  readonly client_key: Buffer;
  readonly commitment: Buffer;
  readonly blob: Buffer;
}

/** @param secret WEBHOOK_SECRET */
export const createSigningKey = (secret: string): ServerKey => deriveServerKey(secret, 'gatehouse/webhook/v1/');

export function sealSecret(key: ServerKey, secret: string): SealedSecret {
  const [id, client_key] = [randomUUID(), createClientKey()];
  return { id, key_id: key.id, client_key, ...seal(key, client_key, { id, expiresAt: null, maxReads: null }, Buffer.from(secret, 'utf8')) };
}

/** @returns null for a secret that another WEBHOOK_SECRET has sealed, or that has been altered */
export function openSecret(key: ServerKey, sealed: SealedSecret): string | null {
  if (sealed.key_id !== key.id) return null;
  const text = unseal(key, sealed.client_key, { id: sealed.id, expiresAt: null, maxReads: null }, sealed);
  return Buffer.isBuffer(text) ? text.toString('utf8') : null;
}
