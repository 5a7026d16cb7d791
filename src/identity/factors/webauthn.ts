import { createHash, createPublicKey, type JsonWebKey, verify } from 'node:crypto';
import { isObject } from '../../http/shape.ts';

/**
 * What a registration or sign-in must match (WebAuthn Level 3, 7.1 and 7.2). `host`: the portal's, which is the RP ID;
 * `needsVerification`: whether the authenticator must have verified the user, by a PIN or a fingerprint.
 */
export type Ceremony = Readonly<{
  challenge: Buffer;
  origin: string;
  host: string;
  needsVerification: boolean;
}>;

/** Its message says why a response was rejected. The client gets the same reply for every reason. */
export class Rejection extends Error {}

function check(holds: boolean, reason: string): asserts holds {
  if (!holds) throw new Rejection(reason);
}

/** `algorithm`: of COSE; `spki`: SubjectPublicKeyInfo, DER. */
export type PublicKey = Readonly<{ algorithm: number; spki: Buffer }>;
/** `isBackupEligible`: whether the passkey can be synchronized to other devices. It never changes. */
type Proof = Readonly<{ counter: number; isVerified: boolean; isBackupEligible: boolean }>;
export type Registered = Proof & { readonly id: Buffer; readonly key: PublicKey };

/** EdDSA, ES256, RS256, in the order of preference that is offered to the browser. */
export const ALGORITHMS = [-8, -7, -257] as const;

const [MAX_CLIENT_DATA, MAX_ATTESTATION, MAX_ID] = [4 * 1024, 16 * 1024, 1_023];
const [HEAD_BYTES, AAGUID_BYTES] = [37, 16];
const FLAG = {
  present: 1,
  verified: 4,
  backupEligible: 8,
  backedUp: 16,
  credential: 64,
  extensions: 128,
} as const;

/** No attestation is requested or checked: a signature proves only that the key is the same. @throws Rejection */
export function verifyRegistration(
  clientData: Buffer,
  attestation: Buffer,
  ceremony: Ceremony,
): Registered {
  const object = attestation.length > MAX_ATTESTATION ? null : readCbor(attestation);
  const data =
    object?.end === attestation.length && object.value instanceof Map
      ? object.value.get('authData')
      : null;
  check(Buffer.isBuffer(data), 'malformed');
  return { ...verifyData('webauthn.create', clientData, data, ceremony), ...readCredential(data) };
}

/** The caller checks that the counter grows, and that `isBackupEligible` is as at registration. @throws Rejection */
export function verifySignIn(
  clientData: Buffer,
  authenticatorData: Buffer,
  signature: Buffer,
  key: PublicKey,
  ceremony: Ceremony,
): Proof {
  const proof = verifyData('webauthn.get', clientData, authenticatorData, ceremony);
  const signed = Buffer.concat([authenticatorData, sha256(clientData)]);
  const spki = { key: key.spki, format: 'der', type: 'spki' } as const;
  check(verify(key.algorithm === -8 ? null : 'sha256', signed, spki, signature), 'wrong_signature');
  return proof;
}

/** The checks that both ceremonies share, in the order of the specification. */
function verifyData(type: string, clientData: Buffer, data: Buffer, ceremony: Ceremony): Proof {
  const client = parseClientData(clientData);
  check(client !== null && data.length >= HEAD_BYTES, 'malformed');
  const flags = data.readUInt8(32);
  const [isVerified, isBackupEligible] = [
    (flags & FLAG.verified) !== 0,
    (flags & FLAG.backupEligible) !== 0,
  ];
  check(client.type === type, 'wrong_type');
  check(client.challenge === ceremony.challenge.toString('base64url'), 'wrong_challenge');
  check(client.origin === ceremony.origin, 'wrong_origin');
  // Another site may have put the page into a frame.
  check(client.crossOrigin !== true && client.topOrigin === undefined, 'in_frame');
  check(data.subarray(0, 32).equals(sha256(ceremony.host)), 'wrong_host');
  check((flags & FLAG.present) !== 0, 'user_absent');
  check(isVerified || !ceremony.needsVerification, 'user_not_verified');
  check(isBackupEligible || (flags & FLAG.backedUp) === 0, 'inconsistent_backup');
  return { counter: data.readUInt32BE(33), isVerified, isBackupEligible };
}

/** Browsers may add members. */
function parseClientData(bytes: Buffer): Readonly<Record<string, unknown>> | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    const parsed: unknown = bytes.length > MAX_CLIENT_DATA ? null : JSON.parse(text);
    return isObject(parsed) ? parsed : null;
  } catch {
    return null;
  }
}

function readCredential(data: Buffer): Pick<Registered, 'id' | 'key'> {
  const [flags, idAt] = [data.readUInt8(32), HEAD_BYTES + AAGUID_BYTES + 2];
  check((flags & FLAG.credential) !== 0 && data.length >= idAt, 'malformed');
  const idLength = data.readUInt16BE(idAt - 2);
  const id = data.subarray(idAt, idAt + idLength);
  check(idLength > 0 && idLength <= MAX_ID && id.length === idLength, 'malformed');
  const key = readCbor(data, idAt + idLength);
  const rest = key && (flags & FLAG.extensions) !== 0 ? readCbor(data, key.end) : key;
  check(key?.value instanceof Map && rest?.end === data.length, 'malformed');
  return { id, key: parseKey(key.value) };
}

/** Accepts only the offered kinds of keys, in COSE form (RFC 9053): a browser could send any (CVE-2026-8830). */
function parseKey(key: CborMap): PublicKey {
  const [jwk, algorithm] = [jwkOf(key), key.get(3)];
  check(jwk !== null && typeof algorithm === 'number', 'unsupported_key');
  try {
    const publicKey = createPublicKey({ key: jwk, format: 'jwk' }); // rejects a point that is not on the curve
    const { modulusLength = 2_048 } = publicKey.asymmetricKeyDetails ?? {};
    check(modulusLength >= 2_048 && modulusLength <= 4_096, 'unsupported_key');
    return { algorithm, spki: publicKey.export({ type: 'spki', format: 'der' }) };
  } catch {
    throw new Rejection('unsupported_key');
  }
}

function jwkOf(key: CborMap): JsonWebKey | null {
  const [type, algorithm, first, x, y] = [1, 3, -1, -2, -3].map((label) => key.get(label));
  if (type === 1 && algorithm === -8 && first === 6 && isBytes(x, 32) && !isOfSmallOrder(x)) {
    return { kty: 'OKP', crv: 'Ed25519', x: x.toString('base64url') };
  }
  if (type === 2 && algorithm === -7 && first === 1 && isBytes(x, 32) && isBytes(y, 32)) {
    return { kty: 'EC', crv: 'P-256', x: x.toString('base64url'), y: y.toString('base64url') };
  }
  // With an exponent of 1, a signature needs no private key.
  const isRsa =
    type === 3 &&
    algorithm === -257 &&
    Buffer.isBuffer(first) &&
    isBytes(x, 3) &&
    x.readUIntBE(0, 3) === 65_537;
  return isRsa ? { kty: 'RSA', n: first.toString('base64url'), e: x.toString('base64url') } : null;
}

const isBytes = (value: Cbor | undefined, length: number): value is Buffer =>
  Buffer.isBuffer(value) && value.length === length;

const PRIME = 2n ** 255n - 19n;
/** The y coordinates of the points of small order. The other such points have the negatives of these. */
const SMALL_ORDER = [0n, 1n, 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n];

/** Under such a key, one fixed signature is valid for at least one message in eight, and Node accepts it. */
function isOfSmallOrder(key: Buffer): boolean {
  // Little-endian, with the sign of x in the highest bit. A coordinate may have a second form, above the prime.
  const y = BigInt.asUintN(255, BigInt(`0x${Buffer.from(key).reverse().toString('hex')}`)) % PRIME;
  return SMALL_ORDER.some((one) => y === one || y === PRIME - one);
}

const sha256 = (data: Buffer | string): Buffer => createHash('sha256').update(data).digest();

type Cbor = number | boolean | string | Buffer | readonly Cbor[] | CborMap;
type CborMap = ReadonlyMap<number | string, Cbor>;

/** An attestation object has three levels, an attestation statement with certificates one more. */
const MAX_DEPTH = 4;

/**
 * A strict reader for the subset of CBOR that WebAuthn uses (RFC 8949; CTAP 2.1, section 8): integers, byte strings,
 * text, arrays, maps and booleans, with definite lengths in their shortest form. Its input comes from an attacker.
 * @returns the item at `start` and where it ends; null if it is malformed or outside the subset
 */
export function readCbor(
  bytes: Buffer,
  start = 0,
): { readonly value: Cbor; readonly end: number } | null {
  let at = start;
  try {
    return { value: readItem(0), end: at };
  } catch {
    return null;
  }

  function take(length: number): Buffer {
    check(length <= bytes.length - at, 'malformed');
    at += length;
    return bytes.subarray(at - length, at);
  }

  /** The argument of an item's head: a value or a length. */
  function readArgument(info: number): number {
    if (info < 24) return info;
    check(info <= 26, 'malformed'); // not 64 bits, reserved, or an indefinite length
    const size = 2 ** (info - 24);
    const value = take(size).readUIntBE(0, size);
    check(value >= (size === 1 ? 24 : 2 ** (4 * size)), 'malformed'); // the shortest form
    return value;
  }

  function readItem(depth: number): Cbor {
    check(depth <= MAX_DEPTH, 'malformed');
    const head = take(1).readUInt8();
    if (head === 0xf4 || head === 0xf5) return head === 0xf5;
    const [type, argument] = [head >> 5, readArgument(head & 31)];
    if (type === 0) return argument;
    if (type === 1) return -1 - argument;
    if (type === 2) return take(argument);
    if (type === 3)
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(take(argument));
    check(type < 6, 'malformed'); // not a tag, a floating-point number, or null
    check(argument <= bytes.length - at, 'malformed'); // an item takes a byte, so that a length allocates nothing
    if (type === 4) return Array.from({ length: argument }, () => readItem(depth + 1));
    const map = new Map<number | string, Cbor>();
    for (let left = argument; left > 0; left -= 1) {
      const key = readItem(depth + 1);
      check((typeof key === 'number' || typeof key === 'string') && !map.has(key), 'malformed');
      map.set(key, readItem(depth + 1));
    }
    return map;
  }
}
