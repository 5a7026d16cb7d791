import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { uuidToBytes } from './text.ts';
import { sameDigest } from './token.ts';

/**
 * The envelope, version 1. Opening it takes two keys: the server's, and the client's, which is never stored.
 *
 *   salt, key id, …    = HKDF-SHA256(server secret, info = label ‖ purpose)          once, at startup
 *   key ‖ commitment   = HKDF-SHA256(client key, salt, info = label ‖ 1 ‖ key id ‖ record id)
 *   blob               = version ‖ nonce ‖ AES-256-GCM(key, nonce, padded text, associated data) ‖ tag
 *   associated data    = version ‖ key id ‖ record id ‖ expiry ‖ reads
 *   row tag            = HMAC-SHA256(row key, associated data with version 0 ‖ commitment ‖ blob)
 *
 * Each key seals one message, far from the limit of 2^32 random nonces per key (SP 800-38D). GCM does not commit to its
 * key: one ciphertext can be made to open under two. The commitment, a PRF output under both keys, prevents that.
 *
 * Version 2 also needs a passphrase. Its key is derived as in version 1. In place of the text it contains
 * length ‖ KDF parameters ‖ commitment ‖ blob: an envelope of version 1 for the client key
 * HKDF-SHA256(client key, salt = scrypt(passphrase), info = label ‖ "passphrase"). So only the holder of the client
 * key can try passphrases, and the parameters cannot be altered.
 */
const TEXT = 1;
export const LOCKED = 2;
const LABEL = 'gatehouse/secrets/v1/';
export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const LENGTH_BYTES = 4;
/** Hides the length of ordinary passwords. */
const MIN_PADDED = 256;

/** Authenticated with the text, so that rows of the database cannot be swapped or edited. */
export interface BoundMetadata {
  readonly id: string; // the record's UUID
  readonly expiresAt: number | null; // milliseconds since 1970; null: never
  readonly maxReads: number | null; // null: unlimited
}

export type Sealed = Readonly<{ blob: Buffer; commitment: Buffer }>;
/** The content of an envelope of version 2. */
export type Locked = Sealed & { readonly kdfParams: string };

/** @param secret of high entropy: guessing is fast  @param label separates the keys of different uses of one secret */
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
  } as const;
}
export type ServerKey = ReturnType<typeof deriveServerKey>;

export const createServerKey = (secret: string): ServerKey => deriveServerKey(secret, LABEL);
export const createClientKey = (): Buffer => randomBytes(KEY_BYTES);

/** A key that allows one use of a record without opening it. It is not stored: the server key is enough to check it. */
export const capabilityOf = (
  { capabilityKey }: ServerKey,
  use: 'receipt' | 'delete',
  recordId: string,
): Buffer => createHmac('sha256', capabilityKey).update(`${use} ${recordId}`).digest();

/** Recognizes the client key of a record. */
export const commitmentOf = (serverKey: ServerKey, clientKey: Buffer, recordId: string): Buffer =>
  deriveKeys(serverKey, clientKey, recordId).commitment;

/** Recognizes an altered row without the client key. */
export function rowTagOf(
  serverKey: ServerKey,
  metadata: BoundMetadata,
  { blob, commitment }: Sealed,
): Buffer {
  const hmac = createHmac('sha256', serverKey.rowKey).update(
    associatedData(serverKey, metadata, 0),
  );
  return hmac.update(commitment).update(blob).digest();
}

/** @param tag a row without one counts as altered */
export const isUnaltered = (
  serverKey: ServerKey,
  metadata: BoundMetadata,
  row: Sealed,
  tag: Buffer | null,
): boolean =>
  isSealable(metadata) &&
  row.commitment.length === KEY_BYTES &&
  tag !== null &&
  sameDigest(tag, rowTagOf(serverKey, metadata, row));

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
  return { blob: Buffer.concat([Buffer.of(version), nonce, ...ciphertext]), commitment };
}

/** @param stretched the passphrase, after `stretch` with these parameters */
export function sealLocked(
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: BoundMetadata,
  text: Buffer,
  kdfParams: string,
  stretched: Buffer,
): Sealed {
  const inner = seal(serverKey, lockedKey(clientKey, stretched), metadata, text);
  const parts = [Buffer.of(kdfParams.length), Buffer.from(kdfParams), inner.commitment, inner.blob];
  return seal(serverKey, clientKey, metadata, Buffer.concat(parts), LOCKED);
}

/**
 * @param keys if they were derived before
 * @returns null for another key, record, metadata or bit. Nothing is returned before the tag has been verified.
 */
export function unseal(
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: BoundMetadata,
  sealed: Sealed,
  keys = deriveKeys(serverKey, clientKey, metadata.id),
) {
  if (sealed.blob[0] !== LOCKED) return unsealAs(TEXT, serverKey, keys, metadata, sealed);
  const content = unsealAs(LOCKED, serverKey, keys, metadata, sealed);
  const end = 1 + (content?.[0] ?? 0);
  if (!content || content.length < end + KEY_BYTES) return null;
  const [commitment, blob] = [
    content.subarray(end, end + KEY_BYTES),
    content.subarray(end + KEY_BYTES),
  ];
  return { kdfParams: content.toString('latin1', 1, end), commitment, blob };
}

export const unlock = (
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: BoundMetadata,
  locked: Locked,
  stretched: Buffer,
): Buffer | null => {
  const keys = deriveKeys(serverKey, lockedKey(clientKey, stretched), metadata.id);
  return unsealAs(TEXT, serverKey, keys, metadata, locked);
};

const lockedKey = (clientKey: Buffer, stretched: Buffer): Buffer =>
  Buffer.from(hkdfSync('sha256', clientKey, stretched, `${LABEL}passphrase`, KEY_BYTES));

function unsealAs(
  version: number,
  serverKey: ServerKey,
  keys: RecordKeys,
  metadata: BoundMetadata,
  sealed: Sealed,
) {
  // The metadata comes from the row: an edited one may be anything.
  if (!isSealable(metadata)) return null;
  const { blob } = sealed;
  const [start, end] = [1 + NONCE_BYTES, blob.length - TAG_BYTES];
  if (blob[0] !== version || end - start < MIN_PADDED) return null;
  if (!sameDigest(sealed.commitment, keys.commitment)) return null;
  // Without authTagLength Node accepts tags of 4 bytes, which can be guessed.
  const decipher = createDecipheriv('aes-256-gcm', keys.key, blob.subarray(1, start), {
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

function isSealable({ expiresAt, maxReads }: BoundMetadata): boolean {
  const fits = (n: number | null, max: number) =>
    n === null || (Number.isInteger(n) && n > 0 && n <= max);
  return fits(expiresAt, Number.MAX_SAFE_INTEGER) && fits(maxReads, 2 ** 32 - 1);
}

type RecordKeys = ReturnType<typeof deriveKeys>;
export function deriveKeys(serverKey: ServerKey, clientKey: Buffer, recordId: string) {
  if (clientKey.length !== KEY_BYTES)
    throw new RangeError(`internal error: a client key has ${KEY_BYTES} bytes`);
  const info = [
    Buffer.from(LABEL),
    Buffer.of(TEXT),
    Buffer.from(serverKey.id, 'hex'),
    uuidToBytes(recordId),
  ];
  const output = Buffer.from(
    hkdfSync('sha256', clientKey, serverKey.salt, Buffer.concat(info), 2 * KEY_BYTES),
  );
  return { key: output.subarray(0, KEY_BYTES), commitment: output.subarray(KEY_BYTES) };
}

/** Unambiguous: all lengths are fixed, and 0, which is not a valid limit, means "no limit". */
function associatedData(
  serverKey: ServerKey,
  { id, expiresAt, maxReads }: BoundMetadata,
  version: number,
): Buffer {
  const limits = Buffer.alloc(12);
  limits.writeBigUInt64BE(BigInt(expiresAt ?? 0), 0);
  limits.writeUInt32BE(maxReads ?? 0, 8);
  return Buffer.concat([
    Buffer.of(version),
    Buffer.from(serverKey.id, 'hex'),
    uuidToBytes(id),
    limits,
  ]);
}

/** Length, text, zeros. All of it is authenticated, so the zeros are not checked. */
function pad(text: Buffer): Buffer {
  const padded = Buffer.alloc(paddedLength(LENGTH_BYTES + text.length));
  padded.writeUInt32BE(text.length, 0);
  text.copy(padded, LENGTH_BYTES);
  return padded;
}

function unpad(padded: Buffer): Buffer | null {
  const end = LENGTH_BYTES + padded.readUInt32BE(0);
  return end <= padded.length ? padded.subarray(LENGTH_BYTES, end) : null;
}

/** Padmé above a floor ("Reducing Metadata Leakage from Encrypted Files", PURBs, 2019): at most 12 % longer. */
export function paddedLength(length: number): number {
  if (length <= MIN_PADDED) return MIN_PADDED;
  const exponent = Math.floor(Math.log2(length));
  const step = 2 ** (exponent - (Math.floor(Math.log2(exponent)) + 1));
  return Math.ceil(length / step) * step;
}
