/** Envelopes of secrets by numbers, as vectors and tables state them. */
import {
  type Envelope,
  isUnaltered as isRowUnaltered,
  type LockedText,
  openEnvelope,
  rowTagOf as tagOfRow,
  sealText,
  type ServerKey,
  type Terms,
} from '../../src/secrets/envelope.ts';
import type { Sealed } from '../../src/platform/crypto/seal.ts';

export interface Metadata {
  readonly id: string;
  readonly expiresAt: number | null; // milliseconds since 1970
  readonly maxReads: number | null;
}

const termsOf = ({ id, expiresAt, maxReads }: Metadata): Terms => ({
  id,
  expires_at: expiresAt === null ? null : new Date(expiresAt),
  max_reads: maxReads,
});

export const seal = (
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: Metadata,
  text: Buffer,
): Envelope => sealText(serverKey, clientKey, termsOf(metadata), text, null);

export const sealWithPassphrase = (
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: Metadata,
  text: Buffer,
  kdfParams: string,
  stretched: Buffer,
): Envelope => sealText(serverKey, clientKey, termsOf(metadata), text, { kdfParams, stretched });

/**
 * @returns the text, or what still needs a passphrase; null if the key or anything else is wrong
 */
export function open(
  serverKey: ServerKey,
  clientKey: Buffer,
  metadata: Metadata,
  { blob, commitment }: Sealed,
): Buffer | LockedText | null {
  const row = { ...termsOf(metadata), blob, commitment };
  const opened = openEnvelope(serverKey, clientKey, row);
  if (opened.kind === 'text') return opened.text;
  return opened.kind === 'locked' ? opened : null;
}

export const rowTagOf = (serverKey: ServerKey, metadata: Metadata, sealed: Sealed): Buffer =>
  tagOfRow(serverKey, termsOf(metadata), sealed);

export const isUnaltered = (
  serverKey: ServerKey,
  metadata: Metadata,
  sealed: Sealed,
  tag: Buffer | null,
): boolean =>
  isRowUnaltered(serverKey, { ...sealed, ...termsOf(metadata), key_id: serverKey.id, tag });
