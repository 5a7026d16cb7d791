/**
 * The test vectors of WebAuthn Level 3, section 16, derived as that section says: every random
 * value is HKDF-SHA-256 of one seed, and signatures are deterministic (RFC 6979). Attestation
 * statements are not derived, because browsers send the authenticator data without them.
 */
import assert from 'node:assert/strict';
import {
  createECDH,
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  hkdfSync,
  type KeyObject,
  sign,
} from 'node:crypto';
import test from 'node:test';
import {
  type Ceremony,
  Rejection,
  verifyRegistration as registration,
  verifySignIn as assertion,
} from '../../../src/identity/factors/webauthn.ts';
import { orRejection } from '../../support/authenticator.ts';
import { encodeCbor } from '../../support/cbor.ts';

const verifyRegistration = orRejection(registration);
const verifySignIn = orRejection(assertion);

const HOST = 'example.org';
const ORIGIN = `https://${HOST}`;
const sha256 = (data: Buffer | string) => createHash('sha256').update(data).digest();

/** The values of one vector, one after the other. */
function derive(info: string) {
  let index = 0;
  return (length: number) => {
    const salt = Buffer.of(index);
    index += 1;
    return Buffer.from(hkdfSync('sha256', 'WebAuthn test vectors', salt, info, length));
  };
}

const toNumber = (bytes: Buffer) => BigInt(`0x${bytes.toString('hex')}`);
const toBytes = (value: bigint, length: number) =>
  Buffer.from(value.toString(16).padStart(2 * length, '0'), 'hex');

function inverse(value: bigint, modulus: bigint): bigint {
  let a = value % modulus;
  let b = modulus;
  let x = 1n;
  let y = 0n;
  while (a > 1n) {
    const quotient = a / b;
    const rest = a % b;
    const next = x - quotient * y;
    a = b;
    b = rest;
    x = y;
    y = next;
  }
  return ((x % modulus) + modulus) % modulus;
}

const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/** ECDSA over P-256 with SHA-256 and the nonce of RFC 6979, 3.2, in DER. */
function signEs256(privateKey: Buffer, data: Buffer): Buffer {
  const hash = toBytes(toNumber(sha256(data)) % ORDER, 32);
  const mac = (key: Buffer, ...parts: Buffer[]) =>
    createHmac('sha256', key).update(Buffer.concat(parts)).digest();
  let key = Buffer.alloc(32);
  let value = Buffer.alloc(32, 1);
  for (const marker of [0, 1]) {
    key = mac(key, value, Buffer.of(marker), privateKey, hash);
    value = mac(key, value);
  }
  value = mac(key, value);
  const nonce = toNumber(value);
  assert.ok(nonce > 0n && nonce < ORDER);
  const point = createECDH('prime256v1');
  point.setPrivateKey(value);
  const r = toNumber(point.getPublicKey().subarray(1, 33)) % ORDER;
  const s = (inverse(nonce, ORDER) * (toNumber(hash) + r * toNumber(privateKey))) % ORDER;
  const integers = [r, s].map((number) => {
    const bytes = toBytes(number, Math.ceil(number.toString(16).length / 2));
    const positive = bytes.readUInt8(0) < 128 ? bytes : Buffer.concat([Buffer.of(0), bytes]);
    return Buffer.concat([Buffer.of(2, positive.length), positive]);
  });
  const body = Buffer.concat(integers);
  return Buffer.concat([Buffer.of(0x30, body.length), body]);
}

type Cose = ReadonlyMap<number, number | Buffer>;

const spkiOf = (key: Parameters<typeof createPublicKey>[0]) =>
  createPublicKey(key).export({ type: 'spki', format: 'der' });

interface Credential {
  readonly cose: Cose;
  readonly spki: Buffer;
  sign(data: Buffer): Buffer;
}
const cannotSign = () => assert.fail('no sign-in with this algorithm');

function ecdsa(
  curve: 'prime256v1' | 'secp384r1' | 'secp521r1',
  algorithm: number,
  id: number,
  privateKey: Buffer,
): Credential {
  const key = createECDH(curve);
  key.setPrivateKey(privateKey);
  const point = key.getPublicKey();
  const length = (point.length - 1) / 2;
  const x = point.subarray(1, 1 + length);
  const y = point.subarray(1 + length);
  const cose = new Map<number, number | Buffer>([
    [1, 2],
    [3, algorithm],
    [-1, id],
    [-2, x],
    [-3, y],
  ]);
  const jwk = {
    kty: 'EC',
    crv: `P-${/[0-9]{3}/.exec(curve)?.[0]}`,
    x: x.toString('base64url'),
    y: y.toString('base64url'),
  };
  return {
    cose,
    spki: spkiOf({ key: jwk, format: 'jwk' }),
    sign: curve === 'prime256v1' ? (data) => signEs256(privateKey, data) : cannotSign,
  };
}

/** A raw private key of RFC 8410. */
function eddsa(oid: number, algorithm: number, curve: number, privateKey: Buffer): Credential {
  const inner = Buffer.concat([Buffer.of(4, privateKey.length), privateKey]);
  const body = Buffer.concat([
    Buffer.of(2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, oid, 4, inner.length),
    inner,
  ]);
  const key = createPrivateKey({
    key: Buffer.concat([Buffer.of(0x30, body.length), body]),
    format: 'der',
    type: 'pkcs8',
  });
  const x = Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url');
  const cose = new Map<number, number | Buffer>([
    [1, 1],
    [3, algorithm],
    [-1, curve],
    [-2, x],
  ]);
  return {
    cose,
    spki: spkiOf(key),
    sign: algorithm === -8 ? (data) => sign(null, data, key) : cannotSign,
  };
}

/** The two smallest Mersenne primes 2^p - 1 with p of at least 1,024. */
function rsa(): Credential {
  const p = 2n ** 1279n - 1n;
  const q = 2n ** 2203n - 1n;
  const e = 65_537n;
  const d = inverse(e, (p - 1n) * (q - 1n));
  const text = (value: bigint) =>
    toBytes(value, Math.ceil(value.toString(16).length / 2)).toString('base64url');
  const jwk = {
    kty: 'RSA',
    n: text(p * q),
    e: text(e),
    d: text(d),
    p: text(p),
    q: text(q),
    dp: text(d % (p - 1n)),
    dq: text(d % (q - 1n)),
    qi: text(inverse(q, p)),
  };
  const key: KeyObject = createPrivateKey({ key: jwk, format: 'jwk' });
  const cose = new Map<number, number | Buffer>([
    [1, 3],
    [3, -257],
    [-1, toBytes(p * q, 436)],
    [-2, toBytes(e, 3)],
  ]);
  return { cose, spki: spkiOf(key), sign: (data) => sign('sha256', data, key) };
}

interface Vector {
  readonly info: string;
  readonly credential: (random: (length: number) => Buffer) => Credential;
  /** Whether the authenticator is one of FIDO U2F, which draws no flags. */
  readonly isU2f?: true;
  /** How many bytes the values the attestation statement took. */
  readonly attestation?: readonly number[];
  readonly idLength?: number;
  readonly challengeLength?: number;
  readonly client?: Readonly<Record<string, unknown>>;
  readonly rejected?: string;
}

const es256 = (random: (length: number) => Buffer) => ecdsa('prime256v1', -7, 1, random(32));
const certified = [32, 16];
const VECTORS: readonly Vector[] = [
  { info: 'none.ES256', credential: es256 },
  { info: 'packed-self.ES256', credential: es256 },
  {
    info: 'none.ES256.crossOrigin',
    credential: es256,
    client: { crossOrigin: true },
    rejected: 'in_frame',
  },
  {
    info: 'none.ES256.topOrigin',
    credential: es256,
    client: { crossOrigin: true, topOrigin: 'https://example.com' },
    rejected: 'in_frame',
  },
  { info: 'none.ES256.long-credential-id', credential: es256, idLength: 1_023 },
  { info: 'packed.ES256', credential: es256, attestation: certified },
  {
    info: 'packed.ES384',
    credential: (random) => ecdsa('secp384r1', -35, 2, random(48)),
    attestation: certified,
    rejected: 'unsupported_key',
  },
  {
    info: 'packed.ES512',
    credential: (random) => ecdsa('secp521r1', -36, 3, random(65)),
    attestation: certified,
    challengeLength: 128,
    rejected: 'unsupported_key',
  },
  { info: 'packed.RS256', credential: rsa, attestation: certified },
  {
    info: 'packed.EdDSA',
    credential: (random) => eddsa(0x70, -8, 6, random(32)),
    attestation: certified,
  },
  {
    info: 'packed.Ed448',
    credential: (random) => eddsa(0x71, -53, 7, random(57)),
    attestation: certified,
    rejected: 'unsupported_key',
  },
  { info: 'tpm.ES256', credential: es256, attestation: certified },
  { info: 'android-key.ES256', credential: es256, attestation: [16] },
  { info: 'apple.ES256', credential: es256, attestation: [16] },
  { info: 'fido-u2f.ES256', credential: es256, isU2f: true, attestation: certified },
];

type Random = (length: number) => Buffer;

function clientDataOf(type: string, challenge: Buffer, random: Random, client: object): Buffer {
  const isExtended = (random(1).readUInt8(0) & 1) === 1;
  const extra = isExtended ? { extraData: EXTRA + random(16).toString('base64url') } : {};
  const members = { type, challenge: challenge.toString('base64url'), origin: ORIGIN };
  return Buffer.from(JSON.stringify({ ...members, crossOrigin: false, ...client, ...extra }));
}

const EXTRA = 'clientDataJSON may be extended with additional fields in the future, such as this: ';

const dataOf = (flags: number, more = Buffer.alloc(0)): Buffer =>
  Buffer.concat([sha256(HOST), Buffer.of(flags, 0, 0, 0, 0), more]);

/** No passkey is backed up that cannot be. */
const consistent = (flags: number): number => ((flags & 8) === 0 ? flags & ~0x18 : flags);

/** Draws in the order of the published derivation. */
function build({
  info,
  credential,
  isU2f,
  attestation = [],
  idLength = 32,
  challengeLength = 32,
  client = {},
}: Vector) {
  const random = derive(info);
  const challenge = random(challengeLength);
  const key = credential(random);
  const clientData = clientDataOf('webauthn.create', challenge, random, client);
  const aaguid = random(16);
  const id = random(idLength);
  const flags = consistent(isU2f ? 0 : random(1).readUInt8(0) & 0x1c);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(id.length, 0);
  const authData = dataOf(0x41 | flags, Buffer.concat([aaguid, length, id, encodeCbor(key.cose)]));
  for (const size of attestation) random(size);

  const getChallenge = random(challengeLength);
  const getClientData = clientDataOf('webauthn.get', getChallenge, random, client);
  const getFlags = random(1).readUInt8(0) & 0x14;
  const isBackupEligible = (flags & 8) !== 0;
  const data = dataOf(1 | (flags & 8) | (isBackupEligible ? getFlags : getFlags & ~0x18));
  const signed = () => key.sign(Buffer.concat([data, sha256(getClientData)]));
  return {
    challenge,
    clientData,
    authData,
    spki: key.spki,
    id,
    cose: encodeCbor(key.cose),
    getChallenge,
    getClientData,
    data,
    signed,
  };
}

const ceremony = (challenge: Buffer): Ceremony => ({
  challenge,
  origin: ORIGIN,
  host: HOST,
  needsVerification: false,
});
const hex = (bytes: Buffer) => bytes.toString('hex');

test('the derivation gives the published bytes of the first vector', () => {
  const vector = build({ info: 'none.ES256', credential: es256 });
  assert.equal(hex(vector.id), 'f91f391db4c9b2fde0ea70189cba3fb63f579ba6122b33ad94ff3ec330084be4');
  assert.equal(
    hex(vector.cose),
    'a5010203262001215820afefa16f97ca9b2d23eb86ccb64098d20db90856062eb249c33a9b672f26df61225820930a56b87a2fca66334b03458abf879717c12cc68ed73290af2e2664796b9220',
  );
  assert.equal(
    hex(vector.getChallenge),
    '39c0e7521417ba54d43e8dc95174f423dee9bf3cd804ff6d65c857c9abf4d408',
  );
  assert.equal(
    hex(vector.data),
    'bfabc37432958b063360d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b51900000000',
  );
  assert.equal(
    String(vector.getClientData),
    '{"type":"webauthn.get","challenge":"OcDnUhQXulTUPo3JUXT0I97pvzzYBP9tZchXyav01Ag","origin":"https://example.org","crossOrigin":false}',
  );
  assert.equal(
    hex(vector.signed()),
    '3046022100f50a4e2e4409249c4a853ba361282f09841df4dd4547a13a87780218deffcd380221008480ac0f0b93538174f575bf11a1dd5d78c6e486013f937295ea13653e331e87',
  );
});

for (const vector of VECTORS) {
  test(`${vector.info}: ${vector.rejected ?? 'accepted'}`, () => {
    const { challenge, clientData, authData, spki, id, ...next } = build(vector);
    const { getChallenge, getClientData, data, signed } = next;
    const registered = verifyRegistration(clientData, authData, spki, ceremony(challenge));
    const decoded = verifyRegistration(clientData, authData, null, ceremony(challenge));
    assert.deepEqual(decoded, registered, 'the key as the authenticator wrote it');
    if (registered instanceof Rejection) return assert.equal(registered.message, vector.rejected);
    assert.equal(vector.rejected, undefined, 'it was accepted');
    assert.deepEqual(registered.id, id);
    const signature = signed();
    const proof = verifySignIn(
      getClientData,
      data,
      signature,
      registered.spki,
      ceremony(getChallenge),
    );
    assert.ok(!(proof instanceof Rejection), proof instanceof Rejection ? proof.message : '');
    assert.equal(proof.isBackupEligible, registered.isBackupEligible);
    for (const [at, part] of [getClientData, data, signature].entries()) {
      const changed = [getClientData, data, signature].map((one, index) =>
        index === at ? Buffer.from(one) : one,
      );
      const [client = part, auth = part, sig = part] = changed;
      const target = changed[at] ?? part;
      target.writeUInt8(target.readUInt8(target.length - 1) ^ 1, target.length - 1);
      assert.ok(
        verifySignIn(client, auth, sig, registered.spki, ceremony(getChallenge)) instanceof
          Rejection,
      );
    }
  });
}
