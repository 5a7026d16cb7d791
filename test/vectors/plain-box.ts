/**
 * Version 1 of the box a second time, from its description alone: plain, slow, and sharing no line with
 * src/crypto/box.ts. What one makes the other must open; where they differ, one of them is not version 1.
 */
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';

const hmac = (key: Buffer, ...parts: Buffer[]) => createHmac('sha256', key).update(Buffer.concat(parts)).digest();

/** HKDF-SHA256 by hand: RFC 5869, sections 2.2 (extract) and 2.3 (expand). */
export function plainHkdf(input: Buffer, salt: Buffer, info: Buffer, length: number): Buffer {
  const extracted = hmac(salt.length === 0 ? Buffer.alloc(32) : salt, input);
  const blocks: Buffer[] = [];
  for (let last = Buffer.alloc(0), counter = 1; blocks.length * 32 < length; counter += 1) {
    last = hmac(extracted, last, info, Buffer.of(counter));
    blocks.push(last);
  }
  return Buffer.concat(blocks).subarray(0, length);
}

/** Padmé in whole numbers, as its authors write it ("Reducing Metadata Leakage from Encrypted Files", 2019). */
export function plainPadme(length: number): number {
  const exponent = 31 - Math.clz32(length);
  const mask = 2 ** (exponent - (32 - Math.clz32(exponent))) - 1;
  return (length + mask) & ~mask;
}

export interface Terms {
  readonly serverSecret: string;
  readonly clientKey: Buffer;
  readonly id: string;
  readonly expiresAt: number | null;
  readonly maxReads: number | null;
}

export function plainServerKey(serverSecret: string): { id: string; salt: Buffer } {
  const derived = (label: string, length: number) => plainHkdf(Buffer.from(serverSecret), Buffer.alloc(0), Buffer.from(label), length);
  return { id: derived('gatehouse/secrets/v1/key id', 8).toString('hex'), salt: derived('gatehouse/secrets/v1/salt', 32) };
}

function prepare({ serverSecret, clientKey, id, expiresAt, maxReads }: Terms) {
  const serverKey = plainServerKey(serverSecret);
  const bound = '01' + serverKey.id + id.replaceAll('-', '');
  const info = Buffer.concat([Buffer.from('gatehouse/secrets/v1/'), Buffer.from(bound, 'hex')]);
  const derived = plainHkdf(clientKey, serverKey.salt, info, 64);
  const expiry = (expiresAt ?? 0).toString(16).padStart(16, '0');
  const reads = (maxReads ?? 0).toString(16).padStart(8, '0');
  return { key: derived.subarray(0, 32), commitment: derived.subarray(32), associated: Buffer.from(bound + expiry + reads, 'hex') };
}

export function plainPad(text: Buffer): Buffer {
  const length = 4 + text.length;
  const lengthField = Buffer.from(text.length.toString(16).padStart(8, '0'), 'hex');
  return Buffer.concat([lengthField, text, Buffer.alloc((length <= 256 ? 256 : plainPadme(length)) - length)]);
}

/** Seals bytes that have been padded already, so that a test can also seal what no honest box holds. */
export function plainSeal(terms: Terms, nonce: Buffer, padded: Buffer): { blob: Buffer; commitment: Buffer } {
  const { key, commitment, associated } = prepare(terms);
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: 16 }).setAAD(associated);
  const ciphertext = Buffer.concat([cipher.update(padded), cipher.final()]);
  return { blob: Buffer.concat([Buffer.of(1), nonce, ciphertext, cipher.getAuthTag()]), commitment };
}

/** Throws where anything does not fit. */
export function plainOpen(terms: Terms, sealed: { blob: Buffer; commitment: Buffer }): Buffer {
  const { key, commitment, associated } = prepare(terms);
  const { blob } = sealed;
  if (blob[0] !== 1 || !commitment.equals(sealed.commitment)) throw new Error('another version or key');
  const decipher = createDecipheriv('aes-256-gcm', key, blob.subarray(1, 13), { authTagLength: 16 }).setAAD(associated);
  decipher.setAuthTag(blob.subarray(-16));
  const padded = Buffer.concat([decipher.update(blob.subarray(13, -16)), decipher.final()]);
  const text = padded.subarray(4, 4 + Number(`0x${padded.toString('hex', 0, 4)}`));
  if (!plainPad(text).equals(padded)) throw new Error('padded in another way');
  return text;
}
