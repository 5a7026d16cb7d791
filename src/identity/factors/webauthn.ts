import { createHash, createPublicKey, type JsonWebKey, verify } from 'node:crypto';
import { type Cbor, type CborMap, readCbor } from './cbor.ts';

/** What a registration or sign-in must match (WebAuthn Level 3, 7.1 and 7.2). */
export interface Ceremony {
  readonly challenge: Buffer;
  /** The portal's origin, such as `https://login.example.org`, and its host, the RP ID. */
  readonly origin: string;
  readonly host: string;
  /** Whether the authenticator must have verified the user, by a PIN or a fingerprint. */
  readonly needsVerification: boolean;
}

/** Why a response was rejected, for the audit trail. The client gets the same answer for each. */
export type Reason =
  | 'malformed' | 'wrong_type' | 'wrong_challenge' | 'wrong_origin' | 'in_frame' | 'wrong_host' | 'user_absent'
  | 'user_not_verified' | 'inconsistent_backup' | 'unsupported_key' | 'wrong_signature';

export class Rejection {
  readonly reason: Reason;
  constructor(reason: Reason) {
    this.reason = reason;
  }
}

export interface PublicKey {
  /** A COSE algorithm: -8, -7 or -257. */
  readonly algorithm: number;
  /** SubjectPublicKeyInfo, DER. */
  readonly spki: Buffer;
}

interface Proof {
  readonly counter: number;
  readonly isVerified: boolean;
  /** Whether the passkey can be synchronized to other devices. It never changes. */
  readonly isBackupEligible: boolean;
}
export type Registered = Proof & { readonly id: Buffer; readonly key: PublicKey };

/** EdDSA, ES256, RS256, in the order of preference that is offered to the browser. */
export const ALGORITHMS = [-8, -7, -257] as const;

const MAX_CLIENT_DATA = 4 * 1024;
const MAX_ATTESTATION = 16 * 1024;
const MAX_ID = 1_023;
const HEAD_BYTES = 37;
const AAGUID_BYTES = 16;
const FLAG = { present: 1, verified: 4, backupEligible: 8, backedUp: 16, credential: 64, extensions: 128 } as const;

/** The attestation statement is not checked: none is asked for, and the key proves only that it is the same again. */
export function verifyRegistration(
  clientData: Buffer, attestation: Buffer, ceremony: Ceremony,
): Registered | Rejection {
  if (attestation.length > MAX_ATTESTATION) return new Rejection('malformed');
  const object = readCbor(attestation);
  const data = object?.end === attestation.length && object.value instanceof Map ? object.value.get('authData') : null;
  if (!Buffer.isBuffer(data)) return new Rejection('malformed');
  const proof = verifyData('webauthn.create', clientData, data, ceremony);
  if (proof instanceof Rejection) return proof;
  const credential = readCredential(data);
  return credential instanceof Rejection ? credential : { ...proof, ...credential };
}

/** The caller checks that the counter grows, and that `isBackupEligible` is as it was at registration. */
export function verifySignIn(
  clientData: Buffer, authenticatorData: Buffer, signature: Buffer, key: PublicKey, ceremony: Ceremony,
): Proof | Rejection {
  const proof = verifyData('webauthn.get', clientData, authenticatorData, ceremony);
  if (proof instanceof Rejection) return proof;
  const signed = Buffer.concat([authenticatorData, sha256(clientData)]);
  const spki = { key: key.spki, format: 'der', type: 'spki' } as const;
  const isSigned = verify(key.algorithm === -8 ? null : 'sha256', signed, spki, signature);
  return isSigned ? proof : new Rejection('wrong_signature');
}

/** The checks that both ceremonies share, in the order of the specification. */
function verifyData(type: string, clientData: Buffer, data: Buffer, ceremony: Ceremony): Proof | Rejection {
  const client = parseClientData(clientData);
  if (!client || data.length < HEAD_BYTES) return new Rejection('malformed');
  const flags = data.readUInt8(32);
  const has = (flag: number) => (flags & flag) !== 0;
  const checks: ReadonlyArray<readonly [Reason, boolean]> = [
    ['wrong_type', client.type === type],
    ['wrong_challenge', client.challenge === ceremony.challenge.toString('base64url')],
    ['wrong_origin', client.origin === ceremony.origin],
    // Another site may have put the page into a frame.
    ['in_frame', client.crossOrigin !== true && client.topOrigin === undefined],
    ['wrong_host', data.subarray(0, 32).equals(sha256(ceremony.host))],
    ['user_absent', has(FLAG.present)],
    ['user_not_verified', has(FLAG.verified) || !ceremony.needsVerification],
    ['inconsistent_backup', has(FLAG.backupEligible) || !has(FLAG.backedUp)],
  ];
  const failed = checks.find(([, holds]) => !holds);
  if (failed) return new Rejection(failed[0]);
  return { counter: data.readUInt32BE(33), isVerified: has(FLAG.verified), isBackupEligible: has(FLAG.backupEligible) };
}

type ClientData = Readonly<Partial<Record<'type' | 'challenge' | 'origin' | 'crossOrigin' | 'topOrigin', unknown>>>;

/** Browsers may add members. */
function parseClientData(bytes: Buffer): ClientData | null {
  if (bytes.length > MAX_CLIENT_DATA) return null;
  try {
    const parsed: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    return typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed) ? parsed : null;
  } catch {
    return null;
  }
}

function readCredential(data: Buffer): Pick<Registered, 'id' | 'key'> | Rejection {
  const flags = data.readUInt8(32);
  const idAt = HEAD_BYTES + AAGUID_BYTES + 2;
  if ((flags & FLAG.credential) === 0 || data.length < idAt) return new Rejection('malformed');
  const idLength = data.readUInt16BE(idAt - 2);
  const id = data.subarray(idAt, idAt + idLength);
  if (idLength === 0 || idLength > MAX_ID || id.length < idLength) return new Rejection('malformed');
  const key = readCbor(data, idAt + idLength);
  const rest = key && (flags & FLAG.extensions) !== 0 ? readCbor(data, key.end) : key;
  if (!(key?.value instanceof Map) || rest?.end !== data.length) return new Rejection('malformed');
  const parsed = parseKey(key.value);
  return parsed ? { id, key: parsed } : new Rejection('unsupported_key');
}

/** Of a key in COSE form (RFC 9053) only what was offered is accepted, whatever the browser says (CVE-2026-8830). */
function parseKey(key: CborMap): PublicKey | null {
  const jwk = jwkOf(key);
  const algorithm = ALGORITHMS.find((offered) => offered === key.get(3));
  if (!jwk || algorithm === undefined) return null;
  try {
    const publicKey = createPublicKey({ key: jwk, format: 'jwk' }); // rejects a point that is not on the curve
    const { modulusLength } = publicKey.asymmetricKeyDetails ?? {};
    if (modulusLength !== undefined && (modulusLength < 2_048 || modulusLength > 4_096)) return null;
    return { algorithm, spki: publicKey.export({ type: 'spki', format: 'der' }) };
  } catch {
    return null;
  }
}

function jwkOf(key: CborMap): JsonWebKey | null {
  const kind = [1, 3].map((label) => key.get(label)).join();
  const [x, y] = [key.get(-2), key.get(-3)];
  if (kind === '1,-8') {
    const isUsable = key.get(-1) === 6 && isBytes(x, 32) && !isOfSmallOrder(x);
    return isUsable ? { kty: 'OKP', crv: 'Ed25519', x: x.toString('base64url') } : null;
  }
  if (kind === '2,-7') {
    const isUsable = key.get(-1) === 1 && isBytes(x, 32) && isBytes(y, 32);
    return isUsable ? { kty: 'EC', crv: 'P-256', x: x.toString('base64url'), y: y.toString('base64url') } : null;
  }
  if (kind !== '3,-257') return null;
  const [n, e] = [key.get(-1), x];
  // With an exponent of 1, anybody can sign.
  const isUsable = Buffer.isBuffer(n) && isBytes(e, 3) && e.readUIntBE(0, 3) === 65_537;
  return isUsable ? { kty: 'RSA', n: n.toString('base64url'), e: e.toString('base64url') } : null;
}

const isBytes = (value: Cbor | undefined, length: number): value is Buffer =>
  Buffer.isBuffer(value) && value.length === length;

/** The y coordinates, in big-endian order, of the points of small order and their forms above the prime 2^255 - 19. */
const SMALL_ORDER = new Set([
  '00'.repeat(32),
  `${'00'.repeat(31)}01`,
  `7f${'ff'.repeat(30)}ec`,
  `7f${'ff'.repeat(30)}ed`,
  `7f${'ff'.repeat(30)}ee`,
  '05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826',
  '7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd83d3d706a17c7',
]);

/** Under such a key, one fixed signature is valid for every message, and Node accepts it. */
function isOfSmallOrder(x: Buffer): boolean {
  const y = Buffer.from(x).reverse();
  y.writeUInt8(y.readUInt8(0) & 0x7f, 0); // without the sign of x
  return SMALL_ORDER.has(y.toString('hex'));
}

const sha256 = (data: Buffer | string): Buffer => createHash('sha256').update(data).digest();
