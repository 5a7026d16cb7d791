import { createHmac } from 'node:crypto';
import {
  derive,
  deriveKeys,
  deriveServerKey,
  headerOf,
  KEY_BYTES,
  seal,
  type Sealed,
  unseal,
} from '../platform/crypto/seal.ts';
import { equalDigests } from '../platform/crypto/token.ts';

/**
 * The envelope of a secret. The client key is returned once and never stored.
 *
 * Version 1 seals the text in the context version ‖ key id ‖ record id ‖ expiry ‖ reads.
 *
 * Version 2 also needs a passphrase. In place of the text it seals length ‖ KDF parameters ‖
 * commitment ‖ blob: an envelope of version 1 for the client key HKDF-SHA256(client key,
 * salt = scrypt(passphrase), info = label ‖ "passphrase"). So only the holder of the client key can
 * try passphrases, and the parameters cannot be altered.
 */
export const TEXT = 1;
export const LOCKED = 2;
/** In the context of the row's tag, which is no envelope. */
const ROW = 0;
const LABEL = 'gatehouse/secrets/v1/';

/** Bound to the text, so that rows of the database cannot be swapped or edited. */
export type Terms = Readonly<{
  id: string;
  expires_at: Date | null; // null: never
  max_reads: number | null; // null: unlimited
}>;
/** As stored in a row, together with its terms. */
export type Envelope = Sealed &
  Readonly<{
    key_id: string; // the server secret it was sealed under
    tag: Buffer | null; // null only in a row that was altered
  }>;

export function createServerKey(secret: string) {
  const keyFor = (use: string) => derive(secret, '', LABEL + use);
  return {
    ...deriveServerKey(secret, LABEL),
    rowKey: keyFor('row'),
    throttleKey: keyFor('throttle'),
    capabilityKey: keyFor('capability'),
  };
}
export type ServerKey = ReturnType<typeof createServerKey>;

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

/** A passphrase, after `stretch` with these parameters. */
export type Lock = Readonly<{ kdfParams: string; stretched: Buffer }>;

/** @param lock null for a text without a passphrase  @returns the row with these terms */
export function sealText<Row extends Terms>(
  serverKey: ServerKey,
  clientKey: Buffer,
  terms: Row,
  text: Buffer,
  lock: Lock | null,
): Row & Envelope {
  const sealAs = (version: number, key: Buffer, content: Buffer) =>
    seal(deriveKeys(serverKey, key, terms.id), contextOf(version, serverKey, terms), content);
  const lockedContent = ({ kdfParams, stretched }: Lock) => {
    const { commitment, blob } = sealAs(TEXT, lockedKey(clientKey, stretched), text);
    return Buffer.concat([Buffer.of(kdfParams.length), Buffer.from(kdfParams), commitment, blob]);
  };
  const sealed = lock
    ? sealAs(LOCKED, clientKey, lockedContent(lock))
    : sealAs(TEXT, clientKey, text);
  const tag = rowTagOf(serverKey, terms, sealed);
  return Object.assign(sealed, { key_id: serverKey.id, tag }, terms);
}

/** @returns what a row holds for a client key, if the row is unaltered */
export function openEnvelope(serverKey: ServerKey, clientKey: Buffer, row: Terms & Sealed) {
  const { id, blob, commitment } = row;
  const keys = deriveKeys(serverKey, clientKey, id);
  if (!equalDigests(commitment, keys.commitment)) return { kind: 'wrong key' } as const;
  const version = blob[0] === LOCKED ? LOCKED : TEXT;
  const content = unseal(keys, contextOf(version, serverKey, row), row);
  if (!content) return { kind: 'altered' } as const;
  if (version === TEXT) return { kind: 'text', text: content } as const;
  const paramsEnd = 1 + (content[0] ?? 0);
  const commitmentEnd = paramsEnd + KEY_BYTES;
  const inner = {
    commitment: content.subarray(paramsEnd, commitmentEnd),
    blob: content.subarray(commitmentEnd),
  };
  return {
    kind: 'locked',
    serverKey,
    kdfParams: content.toString('latin1', 1, paramsEnd),
    /** @returns null for another passphrase */
    open(stretched: Buffer) {
      const innerKeys = deriveKeys(serverKey, lockedKey(clientKey, stretched), id);
      return unseal(innerKeys, contextOf(TEXT, serverKey, row), inner);
    },
  } as const;
}
export type LockedText = Extract<ReturnType<typeof openEnvelope>, { kind: 'locked' }>;

const lockedKey = (clientKey: Buffer, stretched: Buffer) =>
  derive(clientKey, stretched, `${LABEL}passphrase`);

/** Unambiguous: all lengths are fixed, and 0, which is not a valid limit, means "no limit". */
function contextOf(version: number, serverKey: ServerKey, terms: Terms) {
  if (!isSealable(terms))
    throw new RangeError('internal error: a limit is null or a positive whole number');
  const limits = Buffer.alloc(12);
  limits.writeBigUInt64BE(BigInt(terms.expires_at?.getTime() ?? 0), 0);
  limits.writeUInt32BE(terms.max_reads ?? 0, 8);
  return Buffer.concat([headerOf(version, serverKey, terms.id), limits]);
}

/** Whether an envelope may have these limits: an edited row may hold anything. */
function isSealable({ expires_at, max_reads }: Terms) {
  const fits = (n: number, max: number) => Number.isInteger(n) && n > 0 && n <= max;
  return (
    fits(expires_at?.getTime() ?? 1, Number.MAX_SAFE_INTEGER) && fits(max_reads ?? 1, 2 ** 32 - 1)
  );
}

/**
 * Recognizes an altered row without the client key.
 * @returns HMAC-SHA256(row key, context with version 0 ‖ commitment ‖ blob)
 */
export const rowTagOf = (serverKey: ServerKey, terms: Terms, { blob, commitment }: Sealed) =>
  createHmac('sha256', serverKey.rowKey)
    .update(contextOf(ROW, serverKey, terms))
    .update(commitment)
    .update(blob)
    .digest();

/** A row without a tag counts as altered. */
export const isUnaltered = (serverKey: ServerKey, row: Terms & Envelope) =>
  isSealable(row) &&
  row.commitment.length === KEY_BYTES &&
  row.tag !== null &&
  equalDigests(row.tag, rowTagOf(serverKey, row, row));
