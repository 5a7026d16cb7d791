/** A software authenticator and its browser: makes passkeys and signs with them. */
import { Rejection } from '../../src/identity/factors/webauthn.ts';
import { coseOf } from './cbor.ts';
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';

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
    /** @param cose the key as the authenticator writes it */
    register(around: Circumstances, spki: Buffer = key.spki, cose = coseOf(spki)) {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(id.length, 0);
      const more = Buffer.concat([Buffer.alloc(16), length, id, cose]);
      return {
        clientData: clientDataOf(around.type ?? 'webauthn.create', around),
        data: dataOf(around, more, 0x40),
        spki,
      };
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
