/** A second implementation of the key agreement of docs/envelope.md, on node:crypto alone. */
import { createECDH, createHash, hkdfSync } from 'node:crypto';
import { plainKey } from './plain-browser-envelope.ts';

const LABEL = 'gatehouse/request/v1/';

const keyPairOf = (secret: Buffer) => {
  const pair = createECDH('prime256v1');
  pair.setPrivateKey(secret);
  return pair;
};

/** The public key of a private one, in Base64url. */
export const plainPoint = (secret: Buffer): string =>
  keyPairOf(secret).getPublicKey().toString('base64url');

export const plainDigest = (kind: string, title: string, publicKey: string): string =>
  createHash('sha256').update(`${LABEL}digest/${kind}/${publicKey}/${title}`).digest('base64url');

/** The keys of an answer, from the private key of one party and the public key of the other. */
export function plainAgreement(
  id: string,
  secret: Buffer,
  other: string,
  publicKey: string,
  answerKey: string,
): { serviceKey: string; key: string } {
  const shared = keyPairOf(secret).computeSecret(Buffer.from(other, 'base64url'));
  const info = `${LABEL}keys/${id}/${publicKey}/${answerKey}`;
  const both = Buffer.from(hkdfSync('sha256', shared, '', info, 64));
  return {
    serviceKey: both.subarray(0, 32).toString('base64url'),
    key: plainKey(both.subarray(32)),
  };
}
