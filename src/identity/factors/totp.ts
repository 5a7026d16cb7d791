import { createHmac, randomBytes } from 'node:crypto';
import { sameDigest } from '../../crypto/token.ts';

/** Authenticator apps agree on these values only (RFC 6238 with SHA-1). */
const STEP_SECONDS = 30;
const DIGITS = 6;
const SECRET_BYTES = 20;

export const createTotpSecret = (): Buffer => randomBytes(SECRET_BYTES);

/** The code of one step (RFC 4226, 5.3). */
export function totpCode(secret: Buffer, step: number): string {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const mac = createHmac('sha1', secret).update(counter).digest();
  const number = mac.readUInt32BE(mac.readUInt8(mac.length - 1) & 15) & 0x7fff_ffff;
  return String(number % 10 ** DIGITS).padStart(DIGITS, '0');
}

/**
 * The step of which this is the code, or null. One step before and after is accepted, because clocks differ. The caller
 * stores the step and accepts no earlier one and not the same again (RFC 6238, 5.2).
 * @param seconds since 1970, by the database's clock
 */
export function findTotpStep(secret: Buffer, code: string, seconds: number): number | null {
  const current = Math.floor(seconds / STEP_SECONDS);
  const given = Buffer.from(code);
  // All three are compared, so that the time does not depend on the step.
  const isCode = (step: number) => sameDigest(Buffer.from(totpCode(secret, step)), given);
  const found = [current - 1, current, current + 1].filter(isCode);
  return found.at(-1) ?? null;
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** Base32 (RFC 4648) without padding, which some apps reject. */
export function base32(bytes: Buffer): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  return (bits.match(/.{1,5}/g) ?? []).map((five) => ALPHABET[Number.parseInt(five.padEnd(5, '0'), 2)]).join('');
}

/** What the QR code holds. A colon separates issuer and account, and so may be in neither. */
export function totpUri(secret: Buffer, issuer: string, account: string): string {
  const [site, name] = [issuer, account].map((part) => encodeURIComponent(part.replaceAll(':', ' ')));
  return `otpauth://totp/${site}:${name}?secret=${base32(secret)}&issuer=${site}`;
}
