import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { fromAnyBase64 } from '../crypto/text.ts';

interface Scheme {
  /**
   * What a request says about its signature.
   * @param header returns the empty text for a missing one
   */
  readonly read: (header: (name: string) => string) => {
    readonly prefix: string; // the signed text is this prefix and the raw body
    /**
     * Null if malformed. One of these must match: a sender that rotates its secret signs with both.
     */
    readonly signatures: ReadonlyArray<Buffer | null>;
    /** Seconds since 1970, not checked yet; null if the scheme signs no time. */
    readonly at: string | null;
  };
  /** The HMAC-SHA256 key; null if the secret has not this scheme's form. */
  readonly keyOf: (secret: string) => Buffer | null;
}

/**
 * Strict Base64, padded or not, and no Base64url: other values, such as `whpk_…`, must not be taken
 * for a key.
 */
const fromBase64 = (text: string): Buffer | null =>
  /[-_]/.test(text) ? null : fromAnyBase64(text);

function hex(prefix: string, text: string) {
  const digits = text.startsWith(prefix) ? text.slice(prefix.length) : '';
  return /^[0-9a-f]{64}$/.test(digits) ? Buffer.from(digits, 'hex') : null;
}
const utf8Key = (secret: string) => Buffer.from(secret, 'utf8');

/** `sha256=` and the HMAC of the body alone. No time is signed. */
const overBody = (name: string): Scheme => ({
  read: (header) => ({ prefix: '', signatures: [hex('sha256=', header(name))], at: null }),
  keyOf: utf8Key,
});

/** From each sender's documentation. */
export const SCHEMES = {
  /**
   * Standard Webhooks 1.0.0, symmetric signatures. Svix uses the same scheme with its own header
   * names.
   */
  standard: {
    read(header) {
      const named = (name: string) => header(`webhook-${name}`) || header(`svix-${name}`);
      const id = named('id');
      const at = named('timestamp');
      const found = named('signature').matchAll(/(?<=^| )v1,([A-Za-z0-9+/]{43}=)(?= |$)/g);
      const signatures =
        id === '' ? [] : [...found].map(([, signature = '']) => fromBase64(signature));
      return { prefix: `${id}.${at}.`, signatures, at };
    },
    keyOf(secret) {
      const key = fromBase64(secret.replace(/^whsec_/, ''));
      return key && key.length >= 24 && key.length <= 64 ? key : null;
    },
  },
  github: overBody('x-hub-signature-256'),
  stripe: {
    read(header) {
      const parts = header('stripe-signature')
        .split(',')
        .map((part) => part.trim());
      const at = parts.find((part) => part.startsWith('t='))?.slice('t='.length) ?? '';
      return { prefix: `${at}.`, signatures: parts.map((part) => hex('v1=', part)), at };
    },
    keyOf: utf8Key,
  },
  slack: {
    read(header) {
      const at = header('x-slack-request-timestamp');
      return { prefix: `v0:${at}:`, signatures: [hex('v0=', header('x-slack-signature'))], at };
    },
    keyOf: utf8Key,
  },
  notion: overBody('x-notion-signature'),
} as const satisfies Record<string, Scheme>;

/** A signed time may differ by this much. An older request is treated as a replay. */
export const WINDOW_SECONDS = 300;

/**
 * Compares the signature over the raw bytes, in constant time for each secret.
 * @param now seconds since 1970
 */
export function checkSignature(
  scheme: keyof typeof SCHEMES,
  headers: IncomingHttpHeaders,
  raw: Buffer,
  secrets: ReadonlyArray<{ readonly id: string; readonly secret: string }>,
  now: number,
) {
  const { read, keyOf } = SCHEMES[scheme];
  const { prefix, signatures, at } = read((name) => {
    const value = headers[name];
    return typeof value === 'string' ? value : '';
  });
  const sent = signatures.filter((signature) => signature !== null);
  const isTimeValid = at === null || /^[0-9]{1,12}$/.test(at);
  if (sent.length === 0 || !isTimeValid) return { kind: 'no signature' } as const;
  const found = secrets.find(({ secret }) => {
    const key = keyOf(secret);
    if (key === null) return false;
    const expected = createHmac('sha256', key).update(prefix, 'utf8').update(raw).digest();
    return sent.some((signature) => timingSafeEqual(signature, expected));
  });
  if (!found) return { kind: 'wrong signature' } as const;
  const isOld = at !== null && Math.abs(now - Number(at)) > WINDOW_SECONDS;
  if (isOld) return { kind: 'too old' } as const;
  return { kind: 'valid', secretId: found.id } as const;
}
