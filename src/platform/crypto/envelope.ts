import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { uuidToBytes } from './text.ts';
import { equalDigests } from './token.ts';

/**
 * The envelope, version 1. Opening it takes two keys: the server's, and the client's, which is
 * never stored.
 *
 *   salt, key id, …   = HKDF-SHA256(server secret, info = label ‖ purpose), once, at startup
 *   key ‖ commitment  = HKDF-SHA256(client key, salt, info = label ‖ 1 ‖ key id ‖ record id)
 *   blob              = version ‖ nonce ‖ AES-256-GCM(key, nonce, padded text, associated data)
 *                       ‖ tag
 *   associated data   = version ‖ key id ‖ record id ‖ expiry ‖ reads
 *
 * Each key seals one message, far from the limit of 2^32 random nonces per key (SP 800-38D). GCM
 * does not commit to its key: one ciphertext can be made to open under two. The commitment, a PRF
 * output under both keys, prevents that.
 */
export const TEXT = 1;
export const LABEL = 'gatehouse/secrets/v1/';
export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const LENGTH_BYTES = 4;
/** Hides the length of ordinary passwords. */
const MIN_PADDED = 256;

/** Authenticated with the text, so that rows of the database cannot be swapped or edited. */
export type BoundMetadata = Readonly<{
  id: string; // the record's UUID
  expiresAt: number | null; // milliseconds since 1970; null: never
  maxReads: number | null; // null: unlimited
}>;

export type Sealed = Readonly<{ blob: Buffer; commitment: Buffer }>;

/**
 * @param secret of high entropy: guessing is fast
 * @param label separates the keys of different uses of one secret
 */
export function deriveServerKey(secret: string, label: string) {
  const derived = (use: string, length: number) =>
    Buffer.from(hkdfSync('sha256', secret, '', label + use, length));
  return {
    /** Identifies the server secret and reveals nothing about it. */
    id: derived('key id', 8).toString('hex'),
    salt: derived('salt', KEY_BYTES),
    rowKey: derived('row', KEY_BYTES),
    throttleKey: derived('throttle', KEY_BYTES),
    capabilityKey: derived('capability', KEY_BYTES),
  };
}
export type ServerKey = ReturnType<typeof deriveServerKey>;

export const createClientKey = (): Buffer => randomBytes(KEY_BYTES);

export function seal(
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: BoundMetadata,
  text: Buffer,
  version = TEXT,
): Sealed {
  if (!isSealable(metadata))
    throw new RangeError('internal error: a limit is null or a positive whole number');
  const { key, commitment } = deriveKeys(serverKey, clientKey, metadata.id);
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(associatedData(serverKey, metadata, version));
  const ciphertext = [cipher.update(pad(text)), cipher.final(), cipher.getAuthTag()];
  return {
    blob: Buffer.concat([Buffer.of(version), nonce, ...ciphertext]),
    commitment,
  };
}

/**
 * @param version TEXT, or another that `seal` was given
 * @returns null for another key, record, metadata or bit. Nothing is returned before the tag has
 * been verified.
 */
export function unsealVersion(
  version: number,
  serverKey: ServerKey,
  { key, commitment }: ReturnType<typeof deriveKeys>,
  metadata: BoundMetadata,
  { blob, commitment: stored }: Sealed,
) {
  const start = 1 + NONCE_BYTES;
  const end = blob.length - TAG_BYTES;
  const isWellFormed = isSealable(metadata) && blob[0] === version && end - start >= MIN_PADDED;
  if (!isWellFormed || !equalDigests(stored, commitment)) return null;
  // Without authTagLength Node accepts tags of 4 bytes, which can be guessed.
  const decipher = createDecipheriv('aes-256-gcm', key, blob.subarray(1, start), {
    authTagLength: TAG_BYTES,
  });
  decipher.setAAD(associatedData(serverKey, metadata, version));
  decipher.setAuthTag(blob.subarray(end));
  try {
    return unpad(Buffer.concat([decipher.update(blob.subarray(start, end)), decipher.final()]));
  } catch {
    return null;
  }
}

/** Whether an envelope may have these limits: an edited row may hold anything. */
export function isSealable({ expiresAt, maxReads }: BoundMetadata) {
  const fits = (n: number | null, max: number) =>
    n === null || (Number.isInteger(n) && n > 0 && n <= max);
  return fits(expiresAt, Number.MAX_SAFE_INTEGER) && fits(maxReads, 2 ** 32 - 1);
}

/** The key of the text of one record, and the commitment to it. */
export function deriveKeys(serverKey: ServerKey, clientKey: Buffer, recordId: string) {
  if (clientKey.length !== KEY_BYTES)
    throw new RangeError(`internal error: a client key has ${KEY_BYTES} bytes`);
  const info = Buffer.concat([Buffer.from(LABEL), headerOf(TEXT, serverKey, recordId)]);
  const output = Buffer.from(hkdfSync('sha256', clientKey, serverKey.salt, info, 2 * KEY_BYTES));
  return { key: output.subarray(0, KEY_BYTES), commitment: output.subarray(KEY_BYTES) };
}

/** Unambiguous: all lengths are fixed, and 0, which is not a valid limit, means "no limit". */
export function associatedData(
  serverKey: ServerKey,
  { id, expiresAt, maxReads }: BoundMetadata,
  version: number,
) {
  const limits = Buffer.alloc(12);
  limits.writeBigUInt64BE(BigInt(expiresAt ?? 0), 0);
  limits.writeUInt32BE(maxReads ?? 0, 8);
  return Buffer.concat([headerOf(version, serverKey, id), limits]);
}

const headerOf = (version: number, serverKey: ServerKey, recordId: string) =>
  Buffer.concat([Buffer.of(version), Buffer.from(serverKey.id, 'hex'), uuidToBytes(recordId)]);

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
