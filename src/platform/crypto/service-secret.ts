import { randomUUID } from 'node:crypto';
import {
  createClientKey,
  deriveKeys,
  headerOf,
  KEY_BYTES,
  seal,
  type Sealed,
  type ServerKey,
  unseal,
} from './seal.ts';

/**
 * A secret that a service itself must read, as stored: sealed, not hashed. Its client key is stored
 * beside it, so the server's key alone protects it.
 */
export type SealedSecret = Sealed &
  Readonly<{
    id: string;
    key_id: string;
    client_key: Buffer;
  }>;

/** As of a secret to share that has no limits, for which the zeros stand. */
const contextOf = (key: ServerKey, id: string) =>
  Buffer.concat([headerOf(1, key, id), Buffer.alloc(12)]);

/** @param id of the row that holds the secret: in another row, it does not open */
export function sealSecret(
  key: ServerKey,
  secret: string,
  id: string = randomUUID(),
): SealedSecret {
  const client_key = createClientKey();
  const sealed = seal(deriveKeys(key, client_key, id), contextOf(key, id), Buffer.from(secret));
  return {
    id,
    key_id: key.id,
    client_key,
    ...sealed,
  };
}

/** @returns null if the secret is sealed under none of these keys or was altered */
export function unsealServiceSecret(keys: readonly ServerKey[], sealed: SealedSecret) {
  const { id, client_key } = sealed;
  const key = keys.find((one) => one.id === sealed.key_id);
  if (!key || client_key.length !== KEY_BYTES) return null;
  const text = unseal(deriveKeys(key, client_key, id), contextOf(key, id), sealed);
  return text && text.toString('utf8');
}

/**
 * What an operator must know before an earlier server secret is removed.
 * @param keys the current one first
 * @param rows how many sealed values need each key
 * @returns the rows whose key is not configured, and those under an earlier key
 */
export function staleKeys<Row extends Readonly<{ key_id: string }>>(
  keys: readonly ServerKey[],
  rows: readonly Row[],
) {
  const ids = keys.map(({ id }) => id);
  return {
    unknown: rows.filter(({ key_id }) => !ids.includes(key_id)),
    earlier: rows.filter(({ key_id }) => ids.indexOf(key_id) > 0),
  };
}
