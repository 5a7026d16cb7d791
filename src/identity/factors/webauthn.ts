import { isUtf8 } from 'node:buffer';
import { createPublicKey, type JsonWebKey, verify } from 'node:crypto';
import { sha256 } from '../../crypto/token.ts';
import { isObject } from '../../http/schema.ts';
import { decodeUtf8 } from '../../runtime/text.ts';

/**
 * What a registration or sign-in must match (WebAuthn Level 3, 7.1 and 7.2). `host`: the portal's,
 * which is the RP ID; `needsVerification`: whether the authenticator must have verified the user,
 * by a PIN or a fingerprint.
 */
export type Ceremony = Readonly<{
  challenge: Buffer;
  origin: string;
  host: string;
  needsVerification: boolean;
}>;

/** Its message says why. The client gets the same reply for every reason. */
export class Rejection extends Error {}

function check(holds: boolean, reason = 'malformed'): asserts holds {
  if (!holds) throw new Rejection(reason);
}

/** `algorithm`: of COSE; `spki`: SubjectPublicKeyInfo, DER. */
export type PublicKey = Readonly<{ algorithm: number; spki: Buffer }>;
/**
 * `isBackupEligible`: whether the passkey can be synchronized to other devices. It never changes.
 */
type Proof = Readonly<{ counter: number; isBackupEligible: boolean }>;
export type Registered = Proof & { readonly id: Buffer; readonly key: PublicKey };

/** EdDSA, ES256, RS256, in the order of preference that is offered to the browser. */
export const ALGORITHMS = [-8, -7, -257] as const;

const MAX_CLIENT_DATA_BYTES = 4_096;
const MAX_ATTESTATION_BYTES = 16_384;
const MAX_ID_BYTES = 1_023;
const HEAD_BYTES = 37;
const AAGUID_BYTES = 16;
const FLAG = {
  present: 1,
  verified: 4,
  backupEligible: 8,
  backedUp: 16,
  credential: 64,
  extensions: 128,
} as const;

/**
 * No attestation is requested or checked: a signature proves only that the key is the same.
 * @throws Rejection
 */
export function verifyRegistration(
  clientData: Buffer,
  attestation: Buffer,
  ceremony: Ceremony,
): Registered {
  check(attestation.length <= MAX_ATTESTATION_BYTES);
  const { value, end } = readCbor(attestation);
  const data = value instanceof Map && end === attestation.length ? value.get('authData') : null;
  check(Buffer.isBuffer(data));
  return { ...verifyData('webauthn.create', clientData, data, ceremony), ...readCredential(data) };
}

/**
 * The caller checks that the counter grows, and that `isBackupEligible` is as at registration.
 * @throws Rejection
 */
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
  check(client !== null && data.length >= HEAD_BYTES);
  const flags = data.readUInt8(32);
  const has = (flag: number) => (flags & flag) !== 0;
  const isBackupEligible = has(FLAG.backupEligible);
  check(client.type === type, 'wrong_type');
  check(client.challenge === ceremony.challenge.toString('base64url'), 'wrong_challenge');
  check(client.origin === ceremony.origin, 'wrong_origin');
  // Another site may have put the page into a frame.
  check(client.crossOrigin !== true && client.topOrigin === undefined, 'in_frame');
  check(data.subarray(0, 32).equals(sha256(ceremony.host)), 'wrong_host');
  check(has(FLAG.present), 'user_absent');
  check(has(FLAG.verified) || !ceremony.needsVerification, 'user_not_verified');
  check(isBackupEligible || !has(FLAG.backedUp), 'inconsistent_backup');
  return { counter: data.readUInt32BE(33), isBackupEligible };
}

/** Browsers may add members. */
function parseClientData(bytes: Buffer): Readonly<Record<string, unknown>> | null {
  if (bytes.length > MAX_CLIENT_DATA_BYTES) return null;
  try {
    const parsed: unknown = JSON.parse(decodeUtf8(bytes).replace(/^\ufeff/, ''));
    return isObject(parsed) ? parsed : null;
  } catch {
    return null;
  }
}

function readCredential(data: Buffer): Pick<Registered, 'id' | 'key'> {
  const flags = data.readUInt8(32);
  const idAt = HEAD_BYTES + AAGUID_BYTES + 2;
  check((flags & FLAG.credential) !== 0 && data.length >= idAt);
  const idLength = data.readUInt16BE(idAt - 2);
  check(idLength > 0 && idLength <= MAX_ID_BYTES);
  const keyAt = idAt + idLength;
  const key = readCbor(data, keyAt); // rejects data that end before
  const last = (flags & FLAG.extensions) === 0 ? key : readCbor(data, key.end);
  check(key.value instanceof Map && last.end === data.length);
  return { id: data.subarray(idAt, keyAt), key: parseKey(key.value) };
}

/**
 * Accepts only the offered kinds of keys, in COSE form (RFC 9053): a browser could send any
 * (CVE-2026-8830).
 */
function parseKey(key: CborMap): PublicKey {
  const jwk = jwkOf(key);
  const algorithm = key.get(3);
  check(jwk !== null && typeof algorithm === 'number', 'unsupported_key');
  try {
    // Rejects a point that is not on the curve.
    const publicKey = createPublicKey({ key: jwk, format: 'jwk' });
    const { modulusLength = 2_048 } = publicKey.asymmetricKeyDetails ?? {};
    check(modulusLength >= 2_048 && modulusLength <= 4_096, 'unsupported_key');
    return { algorithm, spki: publicKey.export({ type: 'spki', format: 'der' }) };
  } catch {
    throw new Rejection('unsupported_key');
  }
}

function jwkOf(key: CborMap): JsonWebKey | null {
  const type = key.get(1);
  const algorithm = key.get(3);
  const first = key.get(-1); // the curve, or of RSA the modulus
  const x = key.get(-2); // of RSA the exponent
  const y = key.get(-3);
  if (type === 1 && algorithm === -8 && first === 6 && isBytes(x, 32) && !isOfSmallOrder(x)) {
    return { kty: 'OKP', crv: 'Ed25519', x: x.toString('base64url') };
  }
  if (type === 2 && algorithm === -7 && first === 1 && isBytes(x, 32) && isBytes(y, 32)) {
    return { kty: 'EC', crv: 'P-256', x: x.toString('base64url'), y: y.toString('base64url') };
  }
  // With an exponent of 1, a signature needs no private key. AQAB is 65,537.
  const exponent = isBytes(x, 3) ? x.toString('base64url') : '';
  if (type === 3 && algorithm === -257 && Buffer.isBuffer(first) && exponent === 'AQAB') {
    return { kty: 'RSA', n: first.toString('base64url'), e: exponent };
  }
  return null;
}

const isBytes = (value: Cbor | undefined, length: number): value is Buffer =>
  Buffer.isBuffer(value) && value.length === length;

const PRIME = 2n ** 255n - 19n;
/**
 * The y coordinates of the points of small order. The other such points have the negatives of
 * these.
 */
const SMALL_ORDER = [0n, 1n, 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n];

/**
 * Under such a key, one fixed signature is valid for at least one message in eight, and Node
 * accepts it.
 */
function isOfSmallOrder(key: Buffer) {
  // Little-endian, with the sign of x in the highest bit. A coordinate may have a second form,
  // above the prime.
  const y = BigInt.asUintN(255, BigInt(`0x${Buffer.from(key).reverse().toString('hex')}`)) % PRIME;
  return SMALL_ORDER.some((one) => y === one || y === PRIME - one);
}

type Cbor = number | boolean | string | Buffer | readonly Cbor[] | CborMap;
type CborMap = ReadonlyMap<number | string, Cbor>;

/** An attestation object has three levels, an attestation statement with certificates one more. */
const MAX_DEPTH = 4;

/**
 * A strict reader for the subset of CBOR that WebAuthn uses (RFC 8949; CTAP 2.1, section 8):
 * integers, byte strings, text, arrays, maps and booleans, with definite lengths in their shortest
 * form. Its input comes from an attacker.
 * @returns the item at `start` and where it ends
 * @throws Rejection if it is malformed or outside the subset
 */
export function readCbor(bytes: Buffer, start = 0): Readonly<{ value: Cbor; end: number }> {
  let at = start;
  const value = readItem(0);
  return { value, end: at };

  function take(length: number) {
    check(length <= bytes.length - at);
    at += length;
    return bytes.subarray(at - length, at);
  }

  /** The argument of an item's head: a value or a length. */
  function readArgument(info: number) {
    if (info < 24) return info;
    check(info <= 26); // not 64 bits, reserved, or an indefinite length
    const size = 2 ** (info - 24);
    const value = take(size).readUIntBE(0, size);
    check(value >= (size === 1 ? 24 : 2 ** (4 * size))); // the shortest form
    return value;
  }

  function readItem(depth: number): Cbor {
    check(depth <= MAX_DEPTH);
    const head = take(1).readUInt8();
    if (head === 0xf4 || head === 0xf5) return head === 0xf5;
    const type = head >> 5;
    const argument = readArgument(head & 31);
    if (type === 0) return argument;
    if (type === 1) return -1 - argument;
    if (type === 2) return take(argument);
    if (type === 3) {
      const text = take(argument);
      check(isUtf8(text));
      return text.toString();
    }
    check(type < 6); // not a tag, a floating-point number, or null
    // An item takes at least a byte, so a length alone allocates nothing.
    check(argument <= bytes.length - at);
    if (type === 4) return Array.from({ length: argument }, () => readItem(depth + 1));
    const map = new Map<number | string, Cbor>();
    for (let left = argument; left > 0; left -= 1) {
      const key = readItem(depth + 1);
      check((typeof key === 'number' || typeof key === 'string') && !map.has(key));
      map.set(key, readItem(depth + 1));
    }
    return map;
  }
}
