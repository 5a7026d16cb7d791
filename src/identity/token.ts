import { randomUUID } from 'node:crypto';
import { fromAnyBase64, isUuid } from '../crypto/text.ts';
import { digest, randomToken } from '../crypto/token.ts';

const PREFIX = 'session:';

/** A session token in its one plain form, `session:<uuid>`, made only in this file: a raw string cannot be taken for one. */
declare const checked: unique symbol;
export type SessionToken = string & { readonly [checked]: true };

/** The specification fixes the form; a version 4 UUID has 122 random bits (see SECURITY.md on ASVS 7.2.3). */
export const createSessionToken = (): SessionToken => `${PREFIX}${randomUUID()}` as SessionToken;

/** What the database holds in place of the token. */
export const digestOf = (token: SessionToken): Buffer => digest(token);

/**
 * The forms in which a token may come, all of them and no others:
 * `session:<uuid>`; that whole text in Base64 or Base64url; `session:` and that Base64.
 * @returns the plain form, or null
 */
export function parseSessionToken(credential: string): SessionToken | null {
  if (credential.length > 256) return null;
  const encoded = credential.startsWith(PREFIX) ? credential.slice(PREFIX.length) : credential;
  return parsePlain(credential) ?? parsePlain(fromAnyBase64(encoded)?.toString('latin1') ?? '');
}

function parsePlain(text: string): SessionToken | null {
  // The form has just been checked.
  return text.startsWith(PREFIX) && isUuid(text.slice(PREFIX.length)) ? (text as SessionToken) : null;
}

export const KEY_PREFIX = 'key:';

/** What lists show of a key: enough to tell it from others, and 208 bits short of the whole. */
export const maskedKey = (key: string): string => key.slice(0, KEY_PREFIX.length + 8);

/** @returns `key:`, 256 random bits as 43 characters of Base64url, and a checksum of 6 */
export function createApiKey(): string {
  const random = randomToken();
  return KEY_PREFIX + random + checksum(random);
}

/**
 * The checksum keeps garbage away from the database, and tells a mistyped key from a revoked one. It is no protection:
 * who makes one up still has to guess 256 bits.
 * @returns the digest under which the key is stored, or null
 */
export function parseApiKey(credential: string): Buffer | null {
  const [, random = '', sum = ''] = /^key:([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})$/.exec(credential) ?? [];
  return random !== '' && checksum(random) === sum ? digest(credential) : null;
}

const checksum = (random: string): string => digest(random).subarray(0, 4).toString('base64url');
