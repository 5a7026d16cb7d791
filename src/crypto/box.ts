import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { uuidToBytes } from './text.ts';

/**
 * The envelope, version 1. Two keys are needed to open it: the server's, which never leaves the process, and the
 * client's, which is handed out once and never stored.
 *
 *   salt, key id, …    = HKDF-SHA256(server secret, …)                       once, at start
 *   key ‖ commitment   = HKDF-SHA256(client key, salt, info = label ‖ 1 ‖ key id ‖ record id)
 *   blob               = version ‖ nonce ‖ AES-256-GCM(key, nonce, padded text, associated data) ‖ tag
 *   associated data    = version ‖ key id ‖ record id ‖ expiry ‖ reads
 *   row tag            = HMAC-SHA256(row key, associated data with version 0 ‖ commitment ‖ blob)
 *
 * Each key seals one message, so the limit on random nonces (2^32 messages for a key, SP 800-38D) is never near.
 * The commitment closes what GCM leaves open: one ciphertext can be made to open under two keys, but HKDF cannot be
 * made to give two keys the same commitment. It is a PRF output under both keys, so storing it tells nothing.
 * The row tag needs no client key: an altered row is told from a wrong key, whoever asks.
 *
 * Version 2 is locked with a passphrase as well. Its key is derived as in version 1; in the place of the text it has
 * length ‖ stretching ‖ commitment ‖ blob: how the passphrase is stretched, and another envelope of version 1, for the
 * client key HKDF-SHA256(client key, stretched passphrase, info = label ‖ "passphrase"). So only who has the client key can try a passphrase, and what
 * is needed to try it cannot be altered.
 */
const TEXT = 1;
const LOCKED = 2;
const LABEL = 'gatehouse/secrets/v1/';
export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_ID_BYTES = 8;
const LENGTH_BYTES = 4;
/** Every ordinary password is stored at this length; above it, lengths leak about their logarithm's logarithm. */
const MIN_PADDED = 256;

export interface ServerKey {
  /** Hex; names the server secret without telling anything of it. */
  readonly id: string;
  readonly salt: Buffer;
  readonly rowKey: Buffer;
  /** Keys the digests of what throttles count by. */
  readonly throttleKey: Buffer;
}

/** What is sealed in besides the text, so that a row of the database cannot be swapped or its conditions edited. */
export interface BoundMetadata {
  /** The record's UUID. */
  readonly id: string;
  /** Milliseconds since 1970, or null for never. */
  readonly expiresAt: number | null;
  /** How often it may be read, or null for any number. */
  readonly maxReads: number | null;
}

export interface Sealed {
  readonly blob: Buffer;
  readonly commitment: Buffer;
}

/** What an envelope of version 2 holds in the place of a text. */
export interface Locked extends Sealed {
  /** For `stretch`. */
  readonly kdfParams: string;
}

/** @param secret the server secret: a text of high entropy, which is not stretched */
export function createServerKey(secret: string): ServerKey {
  const input = Buffer.from(secret, 'utf8');
  const derived = (purpose: string, length: number) => Buffer.from(hkdfSync('sha256', input, '', LABEL + purpose, length));
  return {
    id: derived('key id', KEY_ID_BYTES).toString('hex'),
    salt: derived('salt', KEY_BYTES),
    rowKey: derived('row', KEY_BYTES),
    throttleKey: derived('throttle', KEY_BYTES),
  };
}

/** @returns a fresh client key; the caller hands it out once and forgets it */
export const createClientKey = (): Buffer => randomBytes(KEY_BYTES);

/** What is stored to recognise a key by, for one record and one server key. */
export function commitmentOf(serverKey: ServerKey, clientKey: Buffer, recordId: string): Buffer {
  return derive(serverKey, clientKey, recordId).commitment;
}

/** What is stored to recognise an altered row by, without the client's key. */
export function rowTagOf(serverKey: ServerKey, conditions: BoundMetadata, { blob, commitment }: Sealed): Buffer {
  return createHmac('sha256', serverKey.rowKey).update(associatedData(serverKey, conditions, 0)).update(commitment).update(blob).digest();
}

/** @param tag null in rows that are older than tags: what is altered in them shows when the right key is brought */
export function isUnaltered(serverKey: ServerKey, conditions: BoundMetadata, sealed: Sealed, tag: Buffer | null): boolean {
  if (!isSealable(conditions) || sealed.commitment.length !== KEY_BYTES) return false;
  return tag === null || (tag.length === KEY_BYTES && timingSafeEqual(tag, rowTagOf(serverKey, conditions, sealed)));
}

export function seal(serverKey: ServerKey, clientKey: Buffer, conditions: BoundMetadata, text: Buffer): Sealed {
  return sealAs(TEXT, serverKey, clientKey, conditions, text);
}

/** @param stretched the passphrase, after the work that `stretching` says */
export function sealLocked(serverKey: ServerKey, clientKey: Buffer, conditions: BoundMetadata, text: Buffer, stretching: string, stretched: Buffer): Sealed {
  const inner = seal(serverKey, lockedKey(clientKey, stretched), conditions, text);
  const content = Buffer.concat([Buffer.of(stretching.length), Buffer.from(stretching), inner.commitment, inner.blob]);
  return sealAs(LOCKED, serverKey, clientKey, conditions, content);
}

/**
 * @returns the text, or what still needs the passphrase, or null when anything does not fit: another key, record,
 * condition, version, length or bit. Nothing is returned before the tag has been checked.
 */
export function unseal(serverKey: ServerKey, clientKey: Buffer, conditions: BoundMetadata, sealed: Sealed): Buffer | Locked | null {
  if (sealed.blob[0] === TEXT) return unsealAs(TEXT, serverKey, clientKey, conditions, sealed);
  const content = sealed.blob[0] === LOCKED ? unsealAs(LOCKED, serverKey, clientKey, conditions, sealed) : null;
  const end = 1 + (content?.[0] ?? 0);
  if (!content || content.length < end + KEY_BYTES) return null;
  return {
    kdfParams: content.subarray(1, end).toString('latin1'),
    commitment: content.subarray(end, end + KEY_BYTES),
    blob: content.subarray(end + KEY_BYTES),
  };
}

/** @returns the text, or null for another passphrase */
export function unlock(serverKey: ServerKey, clientKey: Buffer, conditions: BoundMetadata, locked: Locked, stretched: Buffer): Buffer | null {
  return unsealAs(TEXT, serverKey, lockedKey(clientKey, stretched), conditions, locked);
}

const lockedKey = (clientKey: Buffer, stretched: Buffer): Buffer => Buffer.from(hkdfSync('sha256', clientKey, stretched, `${LABEL}passphrase`, KEY_BYTES));

function sealAs(version: number, serverKey: ServerKey, clientKey: Buffer, conditions: BoundMetadata, content: Buffer): Sealed {
  if (!isSealable(conditions)) throw new RangeError('internal error: a limit is null or a positive whole number');
  const { key, commitment } = derive(serverKey, clientKey, conditions.id);
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(associatedData(serverKey, conditions, version));
  const blob = Buffer.concat([Buffer.of(version), nonce, cipher.update(pad(content)), cipher.final(), cipher.getAuthTag()]);
  return { blob, commitment };
}

function unsealAs(version: number, serverKey: ServerKey, clientKey: Buffer, conditions: BoundMetadata, sealed: Sealed): Buffer | null {
  // Conditions come from the row: an edited one may be anything.
  if (!isSealable(conditions)) return null;
  const { blob } = sealed;
  if (blob[0] !== version || blob.length < 1 + NONCE_BYTES + MIN_PADDED + TAG_BYTES) return null;
  const { key, commitment } = derive(serverKey, clientKey, conditions.id);
  if (sealed.commitment.length !== commitment.length || !timingSafeEqual(sealed.commitment, commitment)) return null;
  const nonce = blob.subarray(1, 1 + NONCE_BYTES);
  // Without authTagLength Node accepts tags of 4 bytes, which a forger guesses.
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(associatedData(serverKey, conditions, version));
  decipher.setAuthTag(blob.subarray(blob.length - TAG_BYTES));
  try {
    return unpad(Buffer.concat([decipher.update(blob.subarray(1 + NONCE_BYTES, blob.length - TAG_BYTES)), decipher.final()]));
  } catch {
    return null;
  }
}

function isSealable({ expiresAt, maxReads }: BoundMetadata): boolean {
  const fits = (limit: number | null, most: number) => limit === null || (Number.isInteger(limit) && limit > 0 && limit <= most);
  return fits(expiresAt, Number.MAX_SAFE_INTEGER) && fits(maxReads, 2 ** 32 - 1);
}

function derive(serverKey: ServerKey, clientKey: Buffer, recordId: string): { key: Buffer; commitment: Buffer } {
  if (clientKey.length !== KEY_BYTES) throw new RangeError(`internal error: a client key has ${KEY_BYTES} bytes`);
  const info = Buffer.concat([Buffer.from(LABEL), Buffer.of(TEXT), Buffer.from(serverKey.id, 'hex'), uuidToBytes(recordId)]);
  const output = Buffer.from(hkdfSync('sha256', clientKey, serverKey.salt, info, 2 * KEY_BYTES));
  return { key: output.subarray(0, KEY_BYTES), commitment: output.subarray(KEY_BYTES) };
}

/** Fixed lengths only, and zero, which no limit may be, for "no limit": no two sets of conditions have the same bytes. */
function associatedData(serverKey: ServerKey, { id, expiresAt, maxReads }: BoundMetadata, version: number): Buffer {
  const limits = Buffer.alloc(12);
  limits.writeBigUInt64BE(BigInt(expiresAt ?? 0), 0);
  limits.writeUInt32BE(maxReads ?? 0, 8);
  return Buffer.concat([Buffer.of(version), Buffer.from(serverKey.id, 'hex'), uuidToBytes(id), limits]);
}

/** Length, text, zeros. The whole is sealed, so the zeros need no check of their own. */
function pad(text: Buffer): Buffer {
  const padded = Buffer.alloc(paddedLength(LENGTH_BYTES + text.length));
  padded.writeUInt32BE(text.length, 0);
  text.copy(padded, LENGTH_BYTES);
  return padded;
}

function unpad(padded: Buffer): Buffer | null {
  const length = padded.readUInt32BE(0);
  return LENGTH_BYTES + length <= padded.length ? padded.subarray(LENGTH_BYTES, LENGTH_BYTES + length) : null;
}

/** Padmé above a floor ("Reducing Metadata Leakage from Encrypted Files", PURBs, 2019): at most 12 % longer. */
export function paddedLength(length: number): number {
  if (length <= MIN_PADDED) return MIN_PADDED;
  const exponent = Math.floor(Math.log2(length));
  const bits = exponent - (Math.floor(Math.log2(exponent)) + 1);
  const step = 2 ** bits;
  return Math.ceil(length / step) * step;
}
