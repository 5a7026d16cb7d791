import { randomUUID } from 'node:crypto';
import { createClientKey, deriveServerKey, seal, type ServerKey, unseal } from '../crypto/box.ts';

/** A signing secret as stored: sealed, not hashed, because verifying a signature needs the secret itself. */
export interface SealedSecret {
  readonly id: string;
  readonly key_id: string;
  /** Stored beside the box, so WEBHOOK_SECRET alone protects the secret. */
  readonly client_key: Buffer;
  readonly commitment: Buffer;
  readonly blob: Buffer;
}

/** @param secret WEBHOOK_SECRET, or one of WEBHOOK_SECRET_PREVIOUS */
export const createSigningKey = (secret: string): ServerKey => deriveServerKey(secret, 'gatehouse/webhook/v1/');

/** The first seals, all of them open. */
export type SigningKeys = readonly [ServerKey, ...ServerKey[]];

export function sealSecret(key: ServerKey, secret: string): SealedSecret {
  const [id, client_key] = [randomUUID(), createClientKey()];
  const sealed = seal(key, client_key, { id, expiresAt: null, maxReads: null }, Buffer.from(secret, 'utf8'));
  return { id, key_id: key.id, client_key, ...sealed };
}

/** @returns null if the secret is sealed under none of these keys or was altered */
export function openSecret(keys: readonly ServerKey[], sealed: SealedSecret): string | null {
  const key = keys.find(({ id }) => id === sealed.key_id);
  const text = key && unseal(key, sealed.client_key, { id: sealed.id, expiresAt: null, maxReads: null }, sealed);
  return Buffer.isBuffer(text) ? text.toString('utf8') : null;
}
