import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { fromBase64 } from '../crypto/text.ts';

/** What a request says about its signature. */
interface Signed {
  /** The signed text is this prefix and the raw body. */
  readonly prefix: string;
  /** One of these must match: a sender that rotates its secret signs with both. */
  readonly signatures: readonly Buffer[];
  /** Seconds since 1970; null if the scheme signs no time. */
  readonly at: number | null;
}

interface Scheme {
  /** @returns null if a header is missing or malformed */
  readonly read: (headers: IncomingHttpHeaders) => Signed | null;
  /** The HMAC-SHA256 key; null if the secret has not this scheme's form. */
  readonly keyOf: (secret: string) => Buffer | null;
}

function header(headers: IncomingHttpHeaders, name: string): string {
  const value = headers[name];
  return typeof value === 'string' ? value : '';
}
const hex = (text = ''): Buffer | null => (/^[0-9a-f]{64}$/.test(text) ? Buffer.from(text, 'hex') : null);
const seconds = (text = ''): number | null => (/^[0-9]{1,12}$/.test(text) ? Number(text) : null);
const utf8Key = (secret: string) => Buffer.from(secret, 'utf8');

/** `sha256=` and the HMAC of the body alone. No time is signed. */
const overBody = (name: string): Scheme => ({
  read(headers) {
    const signature = hex(/^sha256=(.*)$/.exec(header(headers, name))?.[1]);
    return signature && { prefix: '', signatures: [signature], at: null };
  },
  keyOf: utf8Key,
});

/** From each sender's documentation. */
export const SCHEMES = {
  /** Standard Webhooks 1.0.0, symmetric signatures. Svix uses the same scheme with its own header names. */
  standard: {
    read(headers) {
      const named = (name: string) => header(headers, `webhook-${name}`) || header(headers, `svix-${name}`);
      const [id, at, list] = [named('id'), named('timestamp'), named('signature')] as const;
      const entries = list.split(' ').map((entry) => /^v1,([A-Za-z0-9+/]{43}=)$/.exec(entry)?.[1]);
      const signatures = entries.flatMap((entry) => (entry && fromBase64(entry)) || []);
      const time = seconds(at);
      if (id === '' || time === null || signatures.length === 0) return null;
      return { prefix: `${id}.${at}.`, signatures, at: time };
    },
    keyOf(secret) {
      const key = fromBase64(secret.replace(/^whsec_/, ''));
      return key && key.length >= 24 && key.length <= 64 ? key : null;
    },
  },
  github: overBody('x-hub-signature-256'),
  stripe: {
    read(headers) {
      const parts = header(headers, 'stripe-signature').split(',').map((part) => part.trim());
      const values = (name: string) =>
        parts.filter((part) => part.startsWith(`${name}=`)).map((part) => part.slice(name.length + 1));
      const [at] = values('t');
      const signatures = values('v1').flatMap((value) => hex(value) ?? []);
      const time = seconds(at);
      return time === null || signatures.length === 0 ? null : { prefix: `${at}.`, signatures, at: time };
    },
    keyOf: utf8Key,
  },
  slack: {
    read(headers) {
      const at = header(headers, 'x-slack-request-timestamp');
      const signature = hex(/^v0=(.*)$/.exec(header(headers, 'x-slack-signature'))?.[1]);
      const time = seconds(at);
      return time === null || !signature ? null : { prefix: `v0:${at}:`, signatures: [signature], at: time };
    },
    keyOf: utf8Key,
  },
  notion: overBody('x-notion-signature'),
} as const satisfies Record<string, Scheme>;

/** A signed time may differ by this much. An older request is treated as a replay. */
export const WINDOW_SECONDS = 300;

export type Verdict = 'valid' | 'no signature' | 'wrong signature' | 'too old';

/** Verifies the signature over the raw bytes, in constant time for each secret. @param now seconds since 1970 */
export function verify(
  scheme: keyof typeof SCHEMES, headers: IncomingHttpHeaders, raw: Buffer, secrets: readonly string[], now: number,
): Verdict {
  const signed = SCHEMES[scheme].read(headers);
  if (!signed) return 'no signature';
  const isValid = secrets.some((secret) => {
    const key = SCHEMES[scheme].keyOf(secret);
    const expected = key && createHmac('sha256', key).update(signed.prefix, 'utf8').update(raw).digest();
    return expected !== null && signed.signatures.some((signature) => timingSafeEqual(signature, expected));
  });
  if (!isValid) return 'wrong signature';
  return signed.at !== null && Math.abs(now - signed.at) > WINDOW_SECONDS ? 'too old' : 'valid';
}
