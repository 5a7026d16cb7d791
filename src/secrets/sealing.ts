import { createHmac, hkdfSync } from 'node:crypto';
import {
  associatedData,
  type BoundMetadata,
  deriveKeys,
  deriveServerKey,
  isSealable,
  KEY_BYTES,
  LABEL,
  seal,
  type Sealed,
  type ServerKey,
  TEXT,
  unsealVersion,
} from '../platform/crypto/envelope.ts';
import { equalDigests } from '../platform/crypto/token.ts';

/**
 * Version 2 of the envelope also needs a passphrase. Its key is derived as in version 1. In place
 * of the text it contains length ‖ KDF parameters ‖ commitment ‖ blob: an envelope of version 1 for
 * the client key HKDF-SHA256(client key, salt = scrypt(passphrase), info = label ‖ "passphrase").
 * So only the holder of the client key can try passphrases, and the parameters cannot be altered.
 */
export const LOCKED = 2;
/** The content of an envelope of version 2. */
export type PassphraseSealed = Sealed & Readonly<{ kdfParams: string }>;

export const createServerKey = (secret: string) => deriveServerKey(secret, LABEL);

/**
 * A key that allows one use of a record without opening it. It is not stored: the server key is
 * enough to check it.
 * @returns Base64url
 */
export const capabilityOf = (
  { capabilityKey }: ServerKey,
  use: 'receipt' | 'delete',
  recordId: string,
) => createHmac('sha256', capabilityKey).update(`${use} ${recordId}`).digest('base64url');

/**
 * Recognizes an altered row without the client key.
 * @returns HMAC-SHA256(row key, associated data with version 0 ‖ commitment ‖ blob)
 */
export const rowTagOf = (
  serverKey: ServerKey,
  metadata: BoundMetadata,
  { blob, commitment }: Sealed,
) =>
  createHmac('sha256', serverKey.rowKey)
    .update(associatedData(serverKey, metadata, 0))
    .update(commitment)
    .update(blob)
    .digest();

/** What a request holds until it is answered. The answer also sets its own key and its expiry. */
export type RequestTerms = Readonly<{
  id: string;
  creator: string | null;
  kind: string;
  title: string;
  public_key: string;
  digest: string; // in both links: the parties recognize by it what was asked for
  key_digest: Buffer; // of the key in the link to keep
  max_reads: number; // of the answer
  seconds: number; // how long the request is open, and how long its answer is kept
  answer_key: string | null;
  expires_at: Date;
}>;

const TAGGED = [
  'id',
  'creator',
  'kind',
  'title',
  'public_key',
  'digest',
  'key_digest',
  'max_reads',
  'seconds',
  'answer_key',
  'expires_at',
] as const;

/**
 * Recognizes an altered request, which its answer would take over. The tag of a secret is made of
 * other bytes: it begins with 0.
 */
export const requestTagOf = (serverKey: ServerKey, terms: RequestTerms) =>
  createHmac('sha256', serverKey.rowKey)
    .update(JSON.stringify([serverKey.id, ...TAGGED.map((name) => terms[name])]))
    .digest();

type Limited = Readonly<{ id: string; expires_at: Date | null; max_reads: number | null }>;

export const metadataOf = ({ id, expires_at, max_reads: maxReads }: Limited): BoundMetadata => ({
  id,
  expiresAt: expires_at?.getTime() ?? null,
  maxReads,
});

/** @param tag a row without one counts as altered */
export const isUnaltered = (
  serverKey: ServerKey,
  metadata: BoundMetadata,
  row: Sealed,
  tag: Buffer | null,
) =>
  isSealable(metadata) &&
  row.commitment.length === KEY_BYTES &&
  tag !== null &&
  equalDigests(tag, rowTagOf(serverKey, metadata, row));

/** @param stretched the passphrase, after `stretch` with these parameters */
export function sealWithPassphrase(
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: BoundMetadata,
  text: Buffer,
  kdfParams: string,
  stretched: Buffer,
) {
  const inner = seal(serverKey, lockedKey(clientKey, stretched), metadata, text);
  const parts = [Buffer.of(kdfParams.length), Buffer.from(kdfParams), inner.commitment, inner.blob];
  return seal(serverKey, clientKey, metadata, Buffer.concat(parts), LOCKED);
}

/**
 * @returns the text, or the content that still needs a passphrase; null for another key, record,
 * metadata or bit
 */
export function unseal(
  serverKey: ServerKey,
  keys: ReturnType<typeof deriveKeys>,
  metadata: BoundMetadata,
  sealed: Sealed,
): Buffer | PassphraseSealed | null {
  if (sealed.blob[0] !== LOCKED) return unsealVersion(TEXT, serverKey, keys, metadata, sealed);
  const content = unsealVersion(LOCKED, serverKey, keys, metadata, sealed);
  const paramsEnd = 1 + (content?.[0] ?? 0);
  const commitmentEnd = paramsEnd + KEY_BYTES;
  if (!content || content.length < commitmentEnd) return null;
  return {
    kdfParams: content.toString('latin1', 1, paramsEnd),
    commitment: content.subarray(paramsEnd, commitmentEnd),
    blob: content.subarray(commitmentEnd),
  };
}

/** @returns null for another passphrase, key, record, metadata or bit */
export function openWithPassphrase(
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: BoundMetadata,
  locked: PassphraseSealed,
  stretched: Buffer,
) {
  const keys = deriveKeys(serverKey, lockedKey(clientKey, stretched), metadata.id);
  return unsealVersion(TEXT, serverKey, keys, metadata, locked);
}

const lockedKey = (clientKey: Buffer, stretched: Buffer) =>
  Buffer.from(hkdfSync('sha256', clientKey, stretched, `${LABEL}passphrase`, KEY_BYTES));
