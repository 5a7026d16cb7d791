import {
  createPrivateKey,
  createPublicKey,
  generateKeyPair,
  type KeyObject,
  sign,
  verify,
} from 'node:crypto';
import { promisify } from 'node:util';
import { deriveServerKey } from '../../platform/crypto/seal.ts';
import { sealSecret, unsealServiceSecret } from '../../platform/crypto/service-secret.ts';
import type { IdentityService } from '../service.ts';
import { insertFirstKey, listKeys } from '../store/oidc/keys.ts';

/** Keys that sign ID tokens: RS256, which every program knows. */

const BITS = 2_048;
/** How old the keys that a process holds may be, in milliseconds. */
const FRESH_MS = 60_000;

const generate = promisify(generateKeyPair);

/** @param secret IDENTITY_SECRET, or an earlier one */
const serverKeyOf = (secret: string) => deriveServerKey(secret, 'gatehouse/oidc/v1/');

/** @returns a new private key, sealed. It takes some 100 ms, in a thread of its own. */
export async function createSealedKey(secret: string) {
  const { privateKey } = await generate('rsa', { modulusLength: BITS });
  const text = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  return sealSecret(serverKeyOf(secret), text);
}

/** `isWaiting`: published, and not yet used. */
export type SigningKey = Readonly<{ id: string; isWaiting: boolean; key: KeyObject }>;

/** The type of ID tokens, in their head. */
export const ID_TOKEN = 'JWT';

const base64url = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A signed token (RFC 7515). @param typ of the token, in its head */
export function signToken({ id, key }: SigningKey, claims: object, typ: string) {
  const head = base64url({ alg: 'RS256', typ, kid: id });
  const text = `${head}.${base64url(claims)}`;
  return `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`;
}

const NOT_OPEN =
  'a signing key does not open: add its secret to IDENTITY_SECRET_PREVIOUS, or run "gatehouse oidc rotate --now"';

export type Keys = ReturnType<typeof createKeys>;

export function createKeys({ database, factorSecrets: secrets, log }: IdentityService) {
  const serverKeys = secrets.map(serverKeyOf);
  let held: Readonly<{ keys: readonly SigningKey[]; readAt: number }> | null = null;

  async function read(): Promise<readonly SigningKey[]> {
    if (held && performance.now() - held.readAt < FRESH_MS) return held.keys;
    const rows = await listKeys(database);
    const keys = rows.flatMap((row) => {
      // Null if the key was altered, or its secret is missing.
      const text = unsealServiceSecret(serverKeys, row);
      if (text === null) return [];
      return [{ id: row.id, isWaiting: row.is_waiting, key: createPrivateKey(text) }];
    });
    if (keys.length < rows.length) log.limited(NOT_OPEN, {});
    held = { keys, readAt: performance.now() };
    return keys;
  }

  return {
    /** Creates the first key, if there is none. */
    async prepare() {
      const [secret] = secrets;
      if (secret === undefined || (await listKeys(database)).length > 0) return;
      await insertFirstKey(database, await createSealedKey(secret));
    },

    /** The public keys (RFC 7517). */
    async published() {
      const keys = await read();
      return keys.map(({ id, key }) => {
        const { kty, n, e } = createPublicKey(key).export({ format: 'jwk' });
        return { kty, n, e, kid: id, use: 'sig', alg: 'RS256' };
      });
    },

    /** The key that signs now, or null without one. */
    async signing() {
      const keys = await read();
      return keys.find(({ isWaiting }) => !isWaiting) ?? keys.at(-1) ?? null;
    },

    /**
     * The claims of an ID token that was signed here, even after its end, or null. Logout tokens
     * are signed with the same keys (RFC 8725, 3.11).
     */
    async readToken(token: string): Promise<IdClaims | null> {
      const [head = '', body = '', signature = ''] = token.split('.');
      const text = Buffer.from(`${head}.${body}`);
      const bytes = Buffer.from(signature, 'base64url');
      const keys = await read();
      if (!keys.some(({ key }) => verify('sha256', text, key, bytes))) return null;
      const partOf = (encoded: string) => JSON.parse(Buffer.from(encoded, 'base64url').toString());
      return partOf(head).typ === ID_TOKEN ? partOf(body) : null;
    },
  };
}

/** Of an ID token. */
type IdClaims = Readonly<Record<'aud' | 'sub' | 'sid', string>>;
