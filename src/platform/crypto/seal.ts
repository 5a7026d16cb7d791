import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { uuidToBytes } from './text.ts';
import { equalDigests } from './token.ts';

/**
 * Sealed bytes. Opening them takes two keys, the server's and the client's, and the same context.
 *
 *   salt, key id     = HKDF-SHA256(server secret, info = label ‖ purpose), once, at startup
 *   key ‖ commitment = HKDF-SHA256(client key, salt, info = LABEL ‖ 1 ‖ key id ‖ record id)
 *   blob             = version ‖ nonce ‖ AES-256-GCM(key, nonce, padded text, context) ‖ tag
 *
 * Each key seals one message, far from the limit of 2^32 random nonces per key (SP 800-38D). GCM
 * does not commit to its key: one ciphertext can be made to open under two. The commitment, a PRF
 * output under both keys, prevents that.
 */
export type Sealed = Readonly<{ blob: Buffer; commitment: Buffer }>;

const LABEL = 'gatehouse/secrets/v1/';
export const KEY_BYTES = 32;
const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TEXT_START = 1 + NONCE_BYTES;
// Without it, Node accepts tags of 4 bytes, which can be guessed.
const TAG = { authTagLength: 16 };
const LENGTH_BYTES = 4;
/** Hides the length of ordinary passwords. */
const MIN_PADDED = 256;

/** HKDF-SHA256 (RFC 5869). */
export const derive = (
  key: string | Buffer,
  salt: string | Buffer,
  info: string | Buffer,
  length = KEY_BYTES,
) => Buffer.from(hkdfSync('sha256', key, salt, info, length));

/**
 * @param secret of high entropy: guessing is fast
 * @param label separates the keys of different uses of one secret
 */
export const deriveServerKey = (secret: string, label: string) => ({
  /** Identifies the server secret and reveals nothing about it. */
  id: derive(secret, '', `${label}key id`, 8).toString('hex'),
  salt: derive(secret, '', `${label}salt`),
});
export type ServerKey = ReturnType<typeof deriveServerKey>;

export const createClientKey = (): Buffer => randomBytes(KEY_BYTES);

/** What every context begins with. All lengths are fixed. */
export const headerOf = (version: number, { id }: ServerKey, recordId: string) =>
  Buffer.concat([Buffer.of(version), Buffer.from(id, 'hex'), uuidToBytes(recordId)]);

/** The key of the text of one record, and the commitment to it. */
export function deriveKeys(serverKey: ServerKey, clientKey: Buffer, recordId: string) {
  if (clientKey.length !== KEY_BYTES)
    throw new RangeError(`internal error: a client key has ${KEY_BYTES} bytes`);
  const info = Buffer.concat([Buffer.from(LABEL), headerOf(1, serverKey, recordId)]);
  const output = derive(clientKey, serverKey.salt, info, 2 * KEY_BYTES);
  return {
    key: output.subarray(0, KEY_BYTES),
    commitment: output.subarray(KEY_BYTES),
  };
}
type RecordKeys = ReturnType<typeof deriveKeys>;

/** @param context starts with the version, which the blob starts with, too */
export function seal({ key, commitment }: RecordKeys, context: Buffer, text: Buffer): Sealed {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, TAG).setAAD(context);
  const sealed = [cipher.update(pad(text)), cipher.final(), cipher.getAuthTag()];
  return {
    blob: Buffer.concat([context.subarray(0, 1), nonce, ...sealed]),
    commitment,
  };
}

/**
 * @returns null for another key, context or bit. Nothing is returned before the tag has been
 * verified.
 */
export function unseal({ key, commitment }: RecordKeys, context: Buffer, sealed: Sealed) {
  const { blob } = sealed;
  const end = blob.length - TAG.authTagLength;
  const isWellFormed = blob[0] === context[0] && end - TEXT_START >= MIN_PADDED;
  if (!isWellFormed || !equalDigests(sealed.commitment, commitment)) return null;
  const decipher = createDecipheriv(ALGORITHM, key, blob.subarray(1, TEXT_START), TAG);
  decipher.setAAD(context).setAuthTag(blob.subarray(end));
  try {
    return unpad(
      Buffer.concat([decipher.update(blob.subarray(TEXT_START, end)), decipher.final()]),
    );
  } catch {
    return null;
  }
}

/** Length, text, zeros. All of it is authenticated, so the zeros are not checked. */
function pad(text: Buffer) {
  const padded = Buffer.alloc(paddedLength(LENGTH_BYTES + text.length));
  padded.writeUInt32BE(text.length, 0);
  text.copy(padded, LENGTH_BYTES);
  return padded;
}

function unpad(padded: Buffer) {
  const end = LENGTH_BYTES + padded.readUInt32BE(0);
  return end <= padded.length ? padded.subarray(LENGTH_BYTES, end) : null;
}

/**
 * Padmé above a floor ("Reducing Metadata Leakage from Encrypted Files", PURBs, 2019): at most 12 %
 * longer.
 */
export function paddedLength(length: number) {
  if (length <= MIN_PADDED) return MIN_PADDED;
  const exponent = Math.floor(Math.log2(length));
  const step = 2 ** (exponent - (Math.floor(Math.log2(exponent)) + 1));
  return Math.ceil(length / step) * step;
}
