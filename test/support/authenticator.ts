/**
 * A software authenticator and its browser: makes passkeys and signs with them. It writes CBOR (RFC
 * 8949) and COSE keys (RFC 9053).
 */
import { createHash, createPublicKey, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { Rejection } from '../../src/identity/factors/webauthn.ts';

const sha256 = (data: Buffer | string) => createHash('sha256').update(data).digest();

export interface Key {
  readonly spki: Buffer;
  sign(data: Buffer): Buffer;
}

/** By COSE's names of the algorithms. */
const PAIRS = {
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 2_048 }),
};

export function createKey(kind: keyof typeof PAIRS): Key {
  const { publicKey, privateKey } = PAIRS[kind]();
  const hash = kind === 'EdDSA' ? null : 'sha256';
  return {
    spki: publicKey.export({ type: 'spki', format: 'der' }),
    sign: (data) => sign(hash, data, privateKey),
  };
}

export interface Circumstances {
  readonly challenge: Buffer;
  readonly origin: string;
  readonly host: string;
  /** User present 1, verified 4, backup eligible 8, backed up 16. */
  readonly flags?: number;
  readonly counter?: number;
  readonly client?: Readonly<Record<string, unknown>>;
  readonly type?: string;
}

/** @param credential that is registered */
function dataOf({ host, flags = 5, counter = 0 }: Circumstances, credential = Buffer.of()): Buffer {
  const fixed = Buffer.alloc(5);
  fixed.writeUInt8(credential.length > 0 ? flags | 0x40 : flags, 0);
  fixed.writeUInt32BE(counter, 1);
  return Buffer.concat([sha256(host), fixed, credential]);
}

function clientDataOf(type: string, { challenge, origin, client }: Circumstances): Buffer {
  const given = { type, challenge: challenge.toString('base64url'), origin, crossOrigin: false };
  return Buffer.from(JSON.stringify({ ...given, ...client }));
}

export function createPasskey(key: Key = createKey('ES256'), id: Buffer = randomBytes(16)) {
  return {
    id,
    /** @param cose the key as the authenticator writes it */
    register(around: Circumstances, spki: Buffer = key.spki, cose = coseOf(spki)) {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(id.length, 0);
      return {
        clientData: clientDataOf(around.type ?? 'webauthn.create', around),
        data: dataOf(around, Buffer.concat([Buffer.alloc(16), length, id, cose])),
      };
    },
    signIn(around: Circumstances) {
      const clientData = clientDataOf(around.type ?? 'webauthn.get', around);
      const data = dataOf(around);
      return { clientData, data, signature: key.sign(Buffer.concat([data, sha256(clientData)])) };
    },
  };
}

/** The rejection as a result. Any other error fails the test. */
export const orRejection =
  <Args extends unknown[], T>(work: (...args: Args) => T) =>
  (...args: Args): T | Rejection => {
    try {
      return work(...args);
    } catch (error) {
      if (error instanceof Rejection) return error;
      throw error;
    }
  };

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

/** @param attStmt the statement of an attestation, which the service ignores */
export const attestationObjectOf = (authData: Buffer, fmt = 'none', attStmt: Encoded = new Map()) =>
  encodeCbor(new Map(Object.entries({ fmt, attStmt, authData })));
