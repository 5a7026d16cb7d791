import { randomUUID } from 'node:crypto';
import { fromAnyBase64 } from '../platform/crypto/text.ts';
import { randomToken, sha256, sha256Hex } from '../platform/crypto/token.ts';
import { throttleKey } from '../platform/db/throttle.ts';
import { type Schema, text } from '../platform/http/route/schema.ts';
import { isUuid } from '../platform/runtime/text.ts';

const SESSION_PREFIX = 'session:';
export const KEY_PREFIX = 'key:';

/**
 * The specification fixes the form; a version 4 UUID has 122 random bits (see SECURITY.md on ASVS
 * 7.2.3).
 */
export const createSessionToken = () => `${SESSION_PREFIX}${randomUUID()}`;

/** Whether it begins like one of Gatehouse's, or the Base64 of one, well formed or not. */
export const isOwnCredential = (credential: string) =>
  /^(session:|c2Vzc2lvbj|key:)/.test(credential);

/** @returns the digest under which the session of this token is stored, in hexadecimal, or null */
export function parseSessionToken(credential: string) {
  const token = plainToken(credential);
  return token === null ? null : sha256Hex(token);
}

/** `session:<uuid>`, its Base64 (also Base64url), and `session:` before that encoding. */
const TOKEN_FORM = /^(session:[0-9a-f-]{36}|(session:)?c2Vzc2lvbj[A-Za-z0-9]{49}=?)$/;

/** Any text is read: what it stands for is decided later, and may count as an attempt. */
export const tokenText = (description: string): Schema<string> => ({
  ...text(),
  jsonSchema: { type: 'string', pattern: TOKEN_FORM.source, description },
});

/** @returns the plain form of a token in one of its forms */
export function plainToken(credential: string) {
  if (!TOKEN_FORM.test(credential)) return null;
  if (isSessionToken(credential)) return credential;
  const encoded = credential.replace(/^session:/, '');
  const decoded = fromAnyBase64(encoded)?.toString('latin1') ?? '';
  return isSessionToken(decoded) ? decoded : null;
}

const isSessionToken = (text: string) =>
  text.startsWith(SESSION_PREFIX) && isUuid(text.slice(SESSION_PREFIX.length));

/** @returns `key:`, 256 random bits as 43 characters of Base64url, and a checksum of 6 */
export function createApiKey() {
  const random = randomToken();
  return KEY_PREFIX + random + checksum(random);
}

/** What lists show of a key: it distinguishes keys, and leaves 208 bits unknown. */
export const maskedKey = (key: string) => key.slice(0, KEY_PREFIX.length + 8);

/**
 * Like `parseSessionToken`. The checksum saves queries for malformed keys. It is not for security.
 */
export function parseApiKey(credential: string) {
  const [, random = '', sum = ''] =
    /^key:([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})$/.exec(credential) ?? [];
  return random !== '' && checksum(random) === sum ? sha256Hex(credential) : null;
}

const checksum = (random: string) => sha256(random).subarray(0, 4).toString('base64url');

/** 132 bits. */
const RANDOM_CHARACTERS = 22;

/**
 * The token of a cookie. A MAC over its random first half shows every replica, without a look-up,
 * that it was issued to this network and is no guess.
 * @param token whose first half it gets; omitted for a new one
 */
export function cookieTokenFor(network: string, secret: Buffer, token = randomToken()) {
  const random = token.slice(0, RANDOM_CHARACTERS);
  const mac = throttleKey(secret, ['issued', network, random]).toString('base64url');
  return random + mac.slice(0, token.length - random.length);
}
