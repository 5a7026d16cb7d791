import { randomUUID } from 'node:crypto';
import { createClientKey, seal, type ServerKey, unseal } from './box.ts';

/** A secret that a service itself must read, as stored: sealed, not hashed. */
export interface SealedSecret {
  readonly id: string;
  readonly key_id: string;
  /** Stored beside the box, so the server's key alone protects the secret. */
  readonly client_key: Buffer;
  readonly commitment: Buffer;
  readonly blob: Buffer;
}

/** @param id of the row that holds the secret: in another row, it does not open */
export function sealSecret(
  key: ServerKey,
  secret: string,
  id: string = randomUUID(),
): SealedSecret {
  const client_key = createClientKey();
  const sealed = seal(
    key,
    client_key,
    { id, expiresAt: null, maxReads: null },
    Buffer.from(secret, 'utf8'),
  );
  return { id, key_id: key.id, client_key, ...sealed };
}

/** @returns null if the secret is sealed under none of these keys or was altered */
export function openSecret(keys: readonly ServerKey[], sealed: SealedSecret): string | null {
  const key = keys.find(({ id }) => id === sealed.key_id);
  const text =
    key &&
    unseal(key, sealed.client_key, { id: sealed.id, expiresAt: null, maxReads: null }, sealed);
  return Buffer.isBuffer(text) ? text.toString('utf8') : null;
}
