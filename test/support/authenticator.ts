/** A software authenticator: makes passkeys and signs with them, by its own encoder of CBOR. */
import { Rejection } from '../../src/identity/factors/webauthn.ts';
import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';

type Encodable =
  | number
  | boolean
  | string
  | Buffer
  | readonly Encodable[]
  | ReadonlyMap<number | string, Encodable>;

function sizeOf(argument: number): 1 | 2 | 4 {
  if (argument < 256) return 1;
  return argument < 65_536 ? 2 : 4;
}

function head(type: number, argument: number): Buffer {
  if (argument < 24) return Buffer.of((type << 5) | argument);
  const size = sizeOf(argument);
  const bytes = Buffer.alloc(1 + size, (type << 5) | (24 + Math.log2(size)));
  bytes.writeUIntBE(argument, 1, size);
  return bytes;
}

export function encodeCbor(value: Encodable): Buffer {
  if (typeof value === 'boolean') return Buffer.of(value ? 0xf5 : 0xf4);
  if (typeof value === 'number') return value < 0 ? head(1, -1 - value) : head(0, value);
  if (typeof value === 'string')
    return Buffer.concat([head(3, Buffer.byteLength(value)), Buffer.from(value)]);
  if (Buffer.isBuffer(value)) return Buffer.concat([head(2, value.length), value]);
  if (value instanceof Map) {
    return Buffer.concat([
      head(5, value.size),
      ...[...value].flat().map((item: Encodable) => encodeCbor(item)),
    ]);
  }
  if (Array.isArray(value))
    return Buffer.concat([
      head(4, value.length),
      ...value.map((item: Encodable) => encodeCbor(item)),
    ]);
  throw new TypeError('not encodable');
}

const sha256 = (data: Buffer | string) => createHash('sha256').update(data).digest();
const part = (key: KeyObject, name: 'x' | 'y' | 'n' | 'e') =>
  Buffer.from(key.export({ format: 'jwk' })[name] ?? '', 'base64url');

export interface Key {
  readonly cose: Buffer;
  sign(data: Buffer): Buffer;
}

export function createKey(kind: 'ES256' | 'EdDSA' | 'RS256'): Key {
  if (kind === 'ES256') {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const cose = new Map<number, Encodable>([
      [1, 2],
      [3, -7],
      [-1, 1],
      [-2, part(publicKey, 'x')],
      [-3, part(publicKey, 'y')],
    ]);
    return { cose: encodeCbor(cose), sign: (data) => sign('sha256', data, privateKey) };
  }
  if (kind === 'EdDSA') {
    const { publicKey, privateKey } = generateKeyPairSync('ed25519');
    const cose = new Map<number, Encodable>([
      [1, 1],
      [3, -8],
      [-1, 6],
      [-2, part(publicKey, 'x')],
    ]);
    return { cose: encodeCbor(cose), sign: (data) => sign(null, data, privateKey) };
  }
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 });
  const cose = new Map<number, Encodable>([
    [1, 3],
    [3, -257],
    [-1, part(publicKey, 'n')],
    [-2, part(publicKey, 'e')],
  ]);
  return { cose: encodeCbor(cose), sign: (data) => sign('sha256', data, privateKey) };
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

function dataOf(
  { host, flags = 5, counter = 0 }: Circumstances,
  more: Buffer,
  moreFlags: number,
): Buffer {
  const fixed = Buffer.alloc(5);
  fixed.writeUInt8(flags | moreFlags, 0);
  fixed.writeUInt32BE(counter, 1);
  return Buffer.concat([sha256(host), fixed, more]);
}

const clientDataOf = (type: string, { challenge, origin, client = {} }: Circumstances): Buffer =>
  Buffer.from(
    JSON.stringify({
      type,
      challenge: challenge.toString('base64url'),
      origin,
      crossOrigin: false,
      ...client,
    }),
  );

export function createPasskey(key: Key = createKey('ES256'), id: Buffer = randomBytes(16)) {
  return {
    id,
    register(around: Circumstances, cose: Buffer = key.cose) {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(id.length, 0);
      const authData = dataOf(around, Buffer.concat([Buffer.alloc(16), length, id, cose]), 0x40);
      const attestation = encodeCbor(
        new Map<string, Encodable>([
          ['fmt', 'none'],
          ['attStmt', new Map()],
          ['authData', authData],
        ]),
      );
      return { clientData: clientDataOf(around.type ?? 'webauthn.create', around), attestation };
    },
    signIn(around: Circumstances) {
      const clientData = clientDataOf(around.type ?? 'webauthn.get', around);
      const data = dataOf(around, Buffer.alloc(0), 0);
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
