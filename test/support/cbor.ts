/** CBOR (RFC 8949) and COSE keys (RFC 9053), as authenticators write them. */
import { createPublicKey } from 'node:crypto';

export type Encoded = number | string | Buffer | readonly Encoded[] | EncodedMap;
export type EncodedMap = ReadonlyMap<Encoded, Encoded>;

export function encodeCbor(value: Encoded): Buffer {
  if (typeof value === 'number') return value < 0 ? head(1, -1 - value) : head(0, value);
  if (typeof value === 'string') return withHead(3, Buffer.from(value));
  if (Buffer.isBuffer(value)) return withHead(2, value);
  const items = value instanceof Map ? [...value].flat() : [...value.values()];
  const type = value instanceof Map ? 5 : 4;
  const count = type === 5 ? items.length / 2 : items.length;
  return Buffer.concat([head(type, count), ...items.map((item) => encodeCbor(item as Encoded))]);
}

const withHead = (type: number, bytes: Buffer) => Buffer.concat([head(type, bytes.length), bytes]);

function head(type: number, argument: number): Buffer {
  if (argument < 24) return Buffer.of((type << 5) | argument);
  if (argument < 256) return Buffer.of((type << 5) | 24, argument);
  return Buffer.of((type << 5) | 25, argument >> 8, argument & 255);
}

/** The key of ES256, EdDSA or RS256. @param algorithm in place of its own */
export function coseOf(spki: Buffer, algorithm?: number): Buffer {
  const jwk = createPublicKey({ key: spki, format: 'der', type: 'spki' }).export({ format: 'jwk' });
  const bytes = (text = '') => Buffer.from(text, 'base64url');
  const { kty = '', x, y, n, e } = jwk;
  const members: Record<string, Readonly<Record<string, number | Buffer>>> = {
    EC: { 1: 2, 3: algorithm ?? -7, [-1]: 1, [-2]: bytes(x), [-3]: bytes(y) },
    OKP: { 1: 1, 3: algorithm ?? -8, [-1]: 6, [-2]: bytes(x) },
    RSA: { 1: 3, 3: algorithm ?? -257, [-1]: bytes(n), [-2]: bytes(e) },
  };
  const pairs = Object.entries(members[kty] ?? {});
  return encodeCbor(new Map(pairs.map(([label, value]) => [Number(label), value])));
}

/** @param statement of an attestation, which the service ignores */
export const attestationObjectOf = (
  data: Buffer,
  format = 'none',
  statement: Encoded = new Map(),
) =>
  encodeCbor(
    new Map<Encoded, Encoded>([
      ['fmt', format],
      ['attStmt', statement],
      ['authData', data],
    ]),
  );
