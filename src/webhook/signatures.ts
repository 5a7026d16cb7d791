import { createHmac, createPublicKey, timingSafeEqual, verify } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { fromAnyBase64 } from '../platform/crypto/text.ts';

/** The algorithms, and how many bytes their signatures have. */
const SIGNATURE_BYTES = {
  'hmac-sha256': 32,
  'hmac-sha512': 64,
  'hmac-sha1': 20,
  ed25519: 64,
} as const;
type Algorithm = keyof typeof SIGNATURE_BYTES;
export const ALGORITHMS = ['hmac-sha256', 'hmac-sha512', 'hmac-sha1', 'ed25519'] as const;
export const ENCODINGS = ['hex', 'hex-upper', 'base64', 'base64url'] as const;
export const SECRET_ENCODINGS = ['text', 'hex', 'base64'] as const;

/** How a source signs its requests. Names of headers are in lower case. */
export type Scheme = Readonly<{
  header: string; // of the signature
  prefix?: string | undefined; // before the signature
  /**
   * Each of these characters separates parts of the header. One of its signatures must match: a
   * sender that rotates its secret signs with both.
   */
  separators?: string | undefined;
  encoding?: (typeof ENCODINGS)[number] | undefined; // hex by default
  algorithm?: Algorithm | undefined; // hmac-sha256 by default
  secretEncoding?: (typeof SECRET_ENCODINGS)[number] | undefined; // of an HMAC key; text by default
  /** The signed text, with {body}, {timestamp} and {id}; by default the body alone. */
  text?: string;
  time?: string | undefined; // the header of {timestamp}
  timePrefix?: string | undefined; // if the time is a part of the signature's header
  id?: string | undefined; // the header of {id}
  /** Other names of these three headers. */
  alias?: Readonly<{ header: string; time?: string; id?: string }>;
  /**
   * Set for Standard Webhooks, whose secret has a prefix and is decoded: before the signature, if
   * the secret is a public key.
   */
  publicPrefix?: string;
}>;

/**
 * Strict Base64 with padding, and no Base64url: other values, such as `whpk_…`, must not be taken
 * for a key.
 */
const fromBase64 = (text: string) =>
  /[-_]/.test(text) || text.length % 4 !== 0 ? null : fromAnyBase64(text);

const fromHex = (text: string) => (/^([0-9a-f]{2})*$/.test(text) ? Buffer.from(text, 'hex') : null);

const DECODERS = {
  hex: fromHex,
  'hex-upper': (text: string) => (/[a-f]/.test(text) ? null : fromHex(text.toLowerCase())),
  base64: fromBase64,
  base64url: (text: string) => (/[+/]/.test(text) ? null : fromAnyBase64(text)),
};
const KEY_DECODERS = {
  text: (secret: string) => Buffer.from(secret, 'utf8'),
  hex: (secret: string) => fromHex(secret.toLowerCase()),
  base64: fromAnyBase64,
};

/** @returns the HMAC key of Standard Webhooks, with or without `whsec_`; null for another value */
export function standardKey(secret: string) {
  const key = fromBase64(secret.replace(/^whsec_/, ''));
  return key && key.length >= 24 && key.length <= 64 ? key : null;
}

/**
 * An algorithm has keys of its own: a public key, which is no secret, is never an HMAC key.
 * @returns null if the secret has not the form that the scheme needs
 */
export function keyOf(scheme: Scheme, secret: string) {
  const { algorithm = 'hmac-sha256', publicPrefix, secretEncoding = 'text' } = scheme;
  const isPublic = publicPrefix !== undefined && secret.startsWith('whpk_');
  if (algorithm === 'ed25519' || isPublic) return publicKey(secret);
  const decode = publicPrefix === undefined ? KEY_DECODERS[secretEncoding] : standardKey;
  const key = decode(secret);
  return key && { algorithm, key };
}

/** An Ed25519 key of 32 bytes in hex or Base64. */
function publicKey(secret: string) {
  const bytes = fromHex(secret) ?? fromBase64(secret.replace(/^whpk_/, ''));
  if (bytes?.length !== 32) return null;
  const jwk = { kty: 'OKP', crv: 'Ed25519', x: bytes.toString('base64url') };
  return { algorithm: 'ed25519' as const, key: createPublicKey({ key: jwk, format: 'jwk' }) };
}

/** A request with more is an attack. All HMACs of a request are compared with the same one. */
const MAX_SIGNATURES = 8;
/**
 * How many signatures are checked with a public key: a sender that rotates its key sends two. Each
 * check takes time in proportion to the body, in which the process does nothing else.
 */
const MAX_PUBLIC_KEY_CHECKS = 2;

/** Without the spaces around them. */
const partsOf = (value: string, separators: string) =>
  [...separators]
    .reduce((parts, separator) => parts.flatMap((part) => part.split(separator)), [value])
    .map((part) => part.trim());

const behind = (prefix: string, parts: readonly string[]) =>
  parts.filter((part) => part.startsWith(prefix)).map((part) => part.slice(prefix.length));

/**
 * The names that a request uses, all of one set: a signature must not be read under other names
 * than it was made for, or a recorded request could be repeated as another one.
 */
export function namesIn({ header, time, id, alias }: Scheme, headers: IncomingHttpHeaders) {
  const own = { header, time, id };
  const isOwn = Object.values(own).some((name) => name && headers[name] !== undefined);
  const isAlias = alias !== undefined && headers[alias.header] !== undefined;
  return isAlias && !isOwn ? alias : own;
}

/** Which headers of its signature a request lacks. */
export function missingHeaders(scheme: Scheme, headers: IncomingHttpHeaders) {
  const { header, time, id } = namesIn(scheme, headers);
  return [header, time, id].filter((name) => name !== undefined && !headers[name]);
}

/**
 * What a request says about its signature.
 * @returns `sent`: the signatures; `at` in seconds since 1970, null if malformed, undefined if the
 * scheme signs no time; the signed text is `before`, the raw body and `after`
 */
export function readSigned(scheme: Scheme, headers: IncomingHttpHeaders) {
  const { prefix = '', encoding = 'hex', algorithm = 'hmac-sha256', text = '{body}' } = scheme;
  const { separators, timePrefix, publicPrefix } = scheme;
  const names = namesIn(scheme, headers);
  const valueOf = (name = '') => {
    const value = headers[name];
    return typeof value === 'string' ? value : '';
  };
  const id = valueOf(names.id);
  // Without an id that is part of the signed text, there is no signature.
  const isMissing = text.includes('{id}') && id === '';
  const value = isMissing ? '' : valueOf(names.header);
  const parts = separators === undefined ? [value] : partsOf(value, separators);
  const [timestamp = ''] =
    timePrefix === undefined ? [valueOf(names.time)] : behind(timePrefix, parts);
  const decode = DECODERS[encoding];
  const signaturesOf = (kind: Algorithm, start: string) =>
    behind(start, parts)
      .map((part) => ({ kind, bytes: decode(part) ?? Buffer.alloc(0) }))
      .filter(({ bytes }) => bytes.length === SIGNATURE_BYTES[kind])
      .slice(0, MAX_SIGNATURES);
  const sent = signaturesOf(algorithm, prefix);
  if (publicPrefix !== undefined) sent.push(...signaturesOf('ed25519', publicPrefix));
  const [before = '', after = ''] = text
    .split('{body}')
    .map((part) =>
      part.replace(/\{(timestamp|id)\}/g, (name) => (name === '{id}' ? id : timestamp)),
    );
  const at = text.includes('{timestamp}') ? secondsOf(timestamp) : undefined;
  return { sent, at, before, after };
}

/**
 * @param value seconds, ms, µs or ns since 1970, or an ISO time; as text or number, because the
 * sender's objects and lists must not be converted to text
 * @returns null for another value
 */
export function secondsOf(value: unknown) {
  if (typeof value !== 'string' && typeof value !== 'number') return null;
  const text = String(value);
  if (/^(\d{1,14}|\d{16}|\d{19})$/.test(text)) {
    // The unit by the number of digits: 12 to 14 of milliseconds, 16, or 19.
    const thousands = Math.max(0, Math.floor((text.length - 9) / 3));
    return Number(text) / 1e3 ** thousands;
  }
  const isIso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)$/.test(text);
  const ms = isIso ? Date.parse(text) : Number.NaN;
  return Number.isNaN(ms) ? null : ms / 1_000;
}

/** How far ahead of ours the clock of a sender may be. */
const MAX_AHEAD_SECONDS = 300;
/** How old a signed time may be. An older request is treated as a replay. */
export const MAX_AGE_SECONDS = 300;
/** @param at null for a malformed time */
export const isInWindow = (at: number | null, now: number, maxAge = MAX_AGE_SECONDS) =>
  at !== null && now - at <= maxAge && at - now <= MAX_AHEAD_SECONDS;

/** Whether a secret made a signature of the request, by the id of the secret. */
export type Verdicts = Map<string, boolean>;

/**
 * Compares the signature over the raw bytes, in constant time for each secret.
 * @param maxAge of the signed time, in seconds
 * @param now seconds since 1970
 * @param verdicts of an earlier check of the same request, to which those of this one are added
 */
export function checkSignature(
  { scheme, maxAge }: Readonly<{ scheme: Scheme; maxAge?: number | undefined }>,
  headers: IncomingHttpHeaders,
  raw: Buffer,
  secrets: ReadonlyArray<{ readonly id: string; readonly secret: string }>,
  now: number,
  verdicts: Verdicts = new Map(),
) {
  const signed = readSigned(scheme, headers);
  const { sent, at } = signed;
  if (sent.length === 0 || at === null) return { kind: 'no signature' } as const;
  const found = secrets.find(({ id, secret }) => {
    const isSigned = verdicts.get(id) ?? isSignedWith(scheme, secret, signed, raw);
    verdicts.set(id, isSigned);
    return isSigned;
  });
  if (!found) return { kind: 'wrong signature' } as const;
  const isOld = at !== undefined && !isInWindow(at, now, maxAge);
  if (isOld) return { kind: 'too old' } as const;
  return { kind: 'valid', secretId: found.id, secret: found.secret } as const;
}

/** Whether one of the signatures was made with the secret, whatever the signed time. */
export function isSignedWith(
  scheme: Scheme,
  secret: string,
  { sent, before, after }: ReturnType<typeof readSigned>,
  raw: Buffer,
) {
  const found = keyOf(scheme, secret);
  if (!found) return false;
  const { algorithm, key } = found;
  const signatures = sent.filter(({ kind }) => kind === algorithm);
  if (algorithm === 'ed25519') {
    if (signatures.length === 0) return false;
    const text = Buffer.concat([Buffer.from(before), raw, Buffer.from(after)]);
    const checked = signatures.slice(0, MAX_PUBLIC_KEY_CHECKS);
    return checked.some(({ bytes }) => verify(null, text, key, bytes));
  }
  // In pieces, so that a large body is not copied.
  const hmac = createHmac(algorithm.slice('hmac-'.length), key);
  const expected = hmac.update(before).update(raw).update(after).digest();
  return signatures.some(({ bytes }) => timingSafeEqual(bytes, expected));
}
