import { createPublicKey, type JsonWebKey, type KeyObject, verify } from 'node:crypto';
import { sha256 } from '../../platform/crypto/token.ts';
import { isObject } from '../../platform/http/route/schema.ts';
import { decodeUtf8 } from '../../platform/runtime/text.ts';
import { type Cbor, decodeCbor } from './cbor.ts';

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

/** Its message says why, in one word for the log. */
export class Rejection extends Error {}

/** @throws Rejection */
export function insist(holds: boolean, reason = 'malformed'): asserts holds {
  if (!holds) throw new Rejection(reason);
}

/** EdDSA, ES256, RS256, in the order of preference that is offered to the browser. */
export const ALGORITHMS = [-8, -7, -257] as const;

const MAX_CLIENT_DATA_BYTES = 4_096;
const MAX_ID_BYTES = 1_023;
const HEAD_BYTES = 37;
const AAGUID_BYTES = 16;
const FLAG = {
  present: 1,
  verified: 4,
  backupEligible: 8,
  backedUp: 16,
  credential: 64,
};

/**
 * No attestation is requested: a signature of the new key would prove only that the key is the
 * same.
 * @throws Rejection
 */
export function verifyRegistration(clientData: Buffer, data: Buffer, ceremony: Ceremony) {
  const proof = verifyData('webauthn.create', clientData, data, ceremony);
  return { ...proof, ...readCredential(data) };
}

/** The data in an attestation object, whose statement is ignored. @throws Rejection */
export function authenticatorDataIn(attestationObject: Buffer) {
  const object = orMalformed(() => decodeCbor(attestationObject));
  const data = object instanceof Map ? object.get('authData') : null;
  insist(Buffer.isBuffer(data));
  return data;
}

function orMalformed<T>(work: () => T) {
  try {
    return work();
  } catch (error) {
    if (error instanceof RangeError) throw new Rejection('malformed');
    throw error;
  }
}

/**
 * The caller checks that the counter grows, and that `isBackupEligible` is as at registration.
 * @throws Rejection
 */
export function verifySignIn(
  clientData: Buffer,
  data: Buffer,
  signature: Buffer,
  spki: Buffer,
  ceremony: Ceremony,
) {
  const proof = verifyData('webauthn.get', clientData, data, ceremony);
  const signed = Buffer.concat([data, sha256(clientData)]);
  const key = createPublicKey({ key: spki, format: 'der', type: 'spki' });
  const hash = key.asymmetricKeyType === 'ed25519' ? null : 'sha256';
  insist(verify(hash, signed, key, signature), 'wrong_signature');
  return proof;
}

/**
 * The checks that both ceremonies share, in the order of the specification.
 * @returns `isBackupEligible`: whether the passkey can be synchronized to other devices. It never
 * changes. `isUserVerified`: whether this time the user has entered a PIN or used a fingerprint.
 */
function verifyData(type: string, clientData: Buffer, data: Buffer, ceremony: Ceremony) {
  const client = parseClientData(clientData);
  insist(client !== null && data.length >= HEAD_BYTES);
  const flags = data.readUInt8(32);
  const has = (flag: number) => (flags & flag) !== 0;
  const isBackupEligible = has(FLAG.backupEligible);
  const isUserVerified = has(FLAG.verified);
  insist(client.type === type, 'wrong_type');
  insist(client.challenge === ceremony.challenge.toString('base64url'), 'wrong_challenge');
  insist(client.origin === ceremony.origin, 'wrong_origin');
  // Another site may have put the page into a frame.
  insist(client.crossOrigin !== true && client.topOrigin === undefined, 'in_frame');
  insist(data.subarray(0, 32).equals(sha256(ceremony.host)), 'wrong_host');
  insist(has(FLAG.present), 'user_absent');
  insist(isUserVerified || !ceremony.needsVerification, 'user_not_verified');
  insist(isBackupEligible || !has(FLAG.backedUp), 'inconsistent_backup');
  return { counter: data.readUInt32BE(33), isBackupEligible, isUserVerified };
}

/** Browsers may add members. */
function parseClientData(bytes: Buffer) {
  if (bytes.length > MAX_CLIENT_DATA_BYTES) return null;
  try {
    const parsed: unknown = JSON.parse(decodeUtf8(bytes).replace(/^\ufeff/, ''));
    return isObject(parsed) ? parsed : null;
  } catch {
    return null;
  }
}

/** The new credential. */
function readCredential(data: Buffer) {
  const idAt = HEAD_BYTES + AAGUID_BYTES + 2;
  insist((data.readUInt8(32) & FLAG.credential) !== 0 && data.length >= idAt);
  const length = data.readUInt16BE(idAt - 2);
  insist(length > 0 && length <= MAX_ID_BYTES && data.length >= idAt + length);
  return { id: data.subarray(idAt, idAt + length), spki: readKey(data.subarray(idAt + length)) };
}

/**
 * The key as SubjectPublicKeyInfo. Only the offered kinds are accepted: a browser could send any
 * (CVE-2026-8830).
 */
function readKey(cose: Buffer) {
  try {
    // Rejects a point that is not on the curve.
    const key = createPublicKey({ key: jwkOf(decodeCbor(cose)), format: 'jwk' });
    const spki = key.export({ format: 'der', type: 'spki' });
    insist(isStrong(key, spki));
    return spki;
  } catch {
    throw new Rejection('unsupported_key');
  }
}

/** COSE's numbers of kind, algorithm and curve (RFC 9053, 2 and 7.1; RFC 8230, 4). */
function jwkOf(key: Cbor): JsonWebKey {
  const member = (label: number) => (key instanceof Map ? key.get(label) : undefined);
  const text = (label: number) => {
    const value = member(label);
    return Buffer.isBuffer(value) ? value.toString('base64url') : '';
  };
  switch ([1, 3, -1].map(member).join()) {
    case '1,-8,6':
      return { kty: 'OKP', crv: 'Ed25519', x: text(-2) };
    case '2,-7,1':
      return { kty: 'EC', crv: 'P-256', x: text(-2), y: text(-3) };
    default:
      // The third is the modulus.
      insist(member(1) === 3 && member(3) === -257);
      return { kty: 'RSA', n: text(-1), e: text(-2) };
  }
}

function isStrong({ asymmetricKeyType: type, asymmetricKeyDetails }: KeyObject, spki: Buffer) {
  if (type === 'ed25519') return !isOfSmallOrder(spki.subarray(-32));
  if (type === 'ec') return true;
  const { modulusLength = 0, publicExponent } = asymmetricKeyDetails ?? {};
  // With an exponent of 1, a signature needs no private key.
  return publicExponent === 65_537n && modulusLength >= 2_048 && modulusLength <= 4_096;
}

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
