/**
 * Versions 1 and 2 of the box and the row tag a second time, from their description alone: plain,
 * slow, and sharing no line with src/crypto/. What one makes the other must open; where they
 * differ, one of them is not that version.
 */
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, scryptSync } from 'node:crypto';
import type { Metadata } from '../../support/envelope.ts';

const hmac = (key: Buffer, ...parts: Buffer[]) =>
  createHmac('sha256', key).update(Buffer.concat(parts)).digest();

const hkdf = (input: Buffer, salt: Buffer, info: Buffer, length: number) =>
  Buffer.from(hkdfSync('sha256', input, salt, info, length));

/**
 * Padmé in whole numbers, as its authors write it ("Reducing Metadata Leakage from Encrypted
 * Files", 2019).
 */
export function plainPadme(length: number): number {
  const exponent = 31 - Math.clz32(length);
  const mask = 2 ** (exponent - (32 - Math.clz32(exponent))) - 1;
  return (length + mask) & ~mask;
}

export type Terms = Metadata & Readonly<{ serverSecret: string; clientKey: Buffer }>;
export type PlainSealed = Readonly<{ blob: Buffer; commitment: Buffer }>;

type Keys = Record<'salt' | 'rowKey' | 'throttleKey' | 'capabilityKey', Buffer>;

export function plainServerKey(serverSecret: string): Keys & { id: string } {
  const derived = (label: string, length = 32) => {
    const info = Buffer.from(`gatehouse/secrets/v1/${label}`);
    return hkdf(Buffer.from(serverSecret), Buffer.alloc(0), info, length);
  };
  return {
    id: derived('key id', 8).toString('hex'),
    salt: derived('salt'),
    rowKey: derived('row'),
    throttleKey: derived('throttle'),
    capabilityKey: derived('capability'),
  };
}

type Version = '00' | '01' | '02';

/** The version is bound to what is sealed; the key itself is made alike in both. */
function prepare({ serverSecret, clientKey, id, expiresAt, maxReads }: Terms, version: Version) {
  const serverKey = plainServerKey(serverSecret);
  const bound = serverKey.id + id.replaceAll('-', '');
  const info = Buffer.concat([
    Buffer.from('gatehouse/secrets/v1/'),
    Buffer.from(`01${bound}`, 'hex'),
  ]);
  const derived = hkdf(clientKey, serverKey.salt, info, 64);
  const expiry = (expiresAt ?? 0).toString(16).padStart(16, '0');
  const reads = (maxReads ?? 0).toString(16).padStart(8, '0');
  return {
    key: derived.subarray(0, 32),
    commitment: derived.subarray(32),
    associated: Buffer.from(version + bound + expiry + reads, 'hex'),
  };
}

export function plainPad(text: Buffer): Buffer {
  const length = 4 + text.length;
  const lengthField = Buffer.from(text.length.toString(16).padStart(8, '0'), 'hex');
  const padding = Buffer.alloc((length <= 256 ? 256 : plainPadme(length)) - length);
  return Buffer.concat([lengthField, text, padding]);
}

/**
 * Seals bytes that have been padded already, so that a test can also seal what no honest box holds.
 */
export function plainSeal(
  terms: Terms,
  nonce: Buffer,
  padded: Buffer,
  version: Version = '01',
): PlainSealed {
  const { key, commitment, associated } = prepare(terms, version);
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(associated);
  const sealed = [cipher.update(padded), cipher.final(), cipher.getAuthTag()];
  return { blob: Buffer.concat([Buffer.from(version, 'hex'), nonce, ...sealed]), commitment };
}

/** Throws where anything does not fit. */
export function plainOpen(terms: Terms, sealed: PlainSealed, version: Version = '01'): Buffer {
  const { key, commitment, associated } = prepare(terms, version);
  const { blob } = sealed;
  if (blob[0] !== Number(version) || !commitment.equals(sealed.commitment))
    throw new Error('another version or key');
  const decipher = createDecipheriv('aes-256-gcm', key, blob.subarray(1, 13), {
    authTagLength: 16,
  }).setAAD(associated);
  decipher.setAuthTag(blob.subarray(-16));
  const padded = Buffer.concat([decipher.update(blob.subarray(13, -16)), decipher.final()]);
  const text = padded.subarray(4, 4 + Number(`0x${padded.toString('hex', 0, 4)}`));
  if (!plainPad(text).equals(padded)) throw new Error('padded in another way');
  return text;
}

/**
 * scrypt of the passphrase in NFKC, at the cost and with the salt of a PHC string that ends with
 * the salt.
 */
export function plainStretch(passphrase: string, stretching: string): Buffer {
  const numbers = [...stretching.matchAll(/(?:ln|r|p)=([0-9]+)/g)];
  const [logN = 0, r = 0, p = 0] = numbers.map(([, value]) => Number(value));
  const salt = Buffer.from(stretching.slice(stretching.lastIndexOf('$') + 1), 'base64');
  return scryptSync(Buffer.from(passphrase.normalize('NFKC')), salt, 32, {
    N: 2 ** logN,
    r,
    p,
    maxmem: 512 * 1024 * 1024,
  });
}

/**
 * The envelope inside has the same terms, but for a client key that the passphrase was mixed into.
 */
export function plainLockedTerms(terms: Terms, stretched: Buffer): Terms {
  const info = Buffer.from('gatehouse/secrets/v1/passphrase');
  return { ...terms, clientKey: hkdf(terms.clientKey, stretched, info, 32) };
}

/**
 * Version 2: what to stretch with, behind its length, and an envelope of version 1 in the place of
 * the text. Throws where anything does not fit.
 * @returns what needs the passphrase, and what to stretch it with
 */
export function plainOpenLocked(
  terms: Terms,
  sealed: PlainSealed,
): PlainSealed & { stretching: string } {
  const content = plainOpen(terms, sealed, '02');
  const start = 1 + (content[0] ?? 0);
  return {
    stretching: content.toString('utf8', 1, start),
    commitment: content.subarray(start, start + 32),
    blob: content.subarray(start + 32),
  };
}

export function plainUnlock(
  terms: Terms,
  locked: PlainSealed & { stretching: string },
  passphrase: string,
): Buffer {
  return plainOpen(plainLockedTerms(terms, plainStretch(passphrase, locked.stretching)), locked);
}

/** Of a whole row. It is no envelope, and says so with a version of zero. */
export function plainRowTag(terms: Terms, { commitment, blob }: PlainSealed): Buffer {
  const { rowKey } = plainServerKey(terms.serverSecret);
  return hmac(rowKey, prepare(terms, '00').associated, commitment, blob);
}
