/** A second implementation of the end-to-end format of docs/envelope.md, on node:crypto alone. */
import { createCipheriv, createDecipheriv, hkdfSync, pbkdf2Sync } from 'node:crypto';
import { plainPadme } from './plain-envelope.ts';

const derive = (from: Buffer, use: string): Buffer =>
  Buffer.from(hkdfSync('sha256', from, '', `gatehouse/envelope/v1/${use}`, 32));

/** The key as it stands in a link. */
export const plainKey = (secret: Buffer): string =>
  Buffer.concat([secret, derive(secret, 'check').subarray(0, 4)]).toString('base64url');

/** @param key of the link, behind the dot */
export function plainKeys(
  key: string,
  passphrase: string,
): { content: Buffer; proof: string | undefined } {
  const secret = Buffer.from(key, 'base64url').subarray(0, 32);
  if (passphrase === '') return { content: derive(secret, 'content'), proof: undefined };
  const stretched = pbkdf2Sync(
    passphrase.normalize('NFKC'),
    derive(secret, 'salt'),
    600_000,
    32,
    'sha256',
  );
  const both = Buffer.concat([secret, stretched]);
  return { content: derive(both, 'content'), proof: derive(both, 'proof').toString('base64url') };
}

const withLength = (bytes: Buffer): Buffer => {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
};

export function plainSeal(
  contentKey: Buffer,
  nonce: Buffer,
  about: object,
  bytes: Buffer,
  version = 1,
): string {
  const parts = Buffer.concat([withLength(Buffer.from(JSON.stringify(about))), withLength(bytes)]);
  const padded = Buffer.alloc(Math.max(256, plainPadme(parts.length)));
  parts.copy(padded);
  const cipher = createCipheriv('aes-256-gcm', contentKey, nonce).setAAD(Buffer.of(version));
  const ciphertext = Buffer.concat([cipher.update(padded), cipher.final(), cipher.getAuthTag()]);
  return Buffer.concat([Buffer.of(version), nonce, ciphertext]).toString('base64url');
}

/** @throws for a wrong key or a damaged envelope */
export function plainOpen(
  contentKey: Buffer,
  envelope: string,
): { about: Record<string, unknown>; bytes: Buffer } {
  const whole = Buffer.from(envelope, 'base64url');
  const decipher = createDecipheriv('aes-256-gcm', contentKey, whole.subarray(1, 13)).setAAD(
    whole.subarray(0, 1),
  );
  decipher.setAuthTag(whole.subarray(-16));
  const padded = Buffer.concat([decipher.update(whole.subarray(13, -16)), decipher.final()]);
  const start = 4 + padded.readUInt32BE(0);
  const end = start + 4 + padded.readUInt32BE(start);
  return {
    about: JSON.parse(padded.toString('utf8', 4, start)),
    bytes: padded.subarray(start + 4, end),
  };
}
