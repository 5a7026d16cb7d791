import { createHmac, randomInt } from 'node:crypto';
import { digest, sameDigest } from '../../crypto/token.ts';

/** Authenticator apps agree on these values only (RFC 6238 with SHA-1). */
const [STEP_SECONDS, DIGITS, SECRET_BYTES] = [30, 6, 20];

/**
 * The secret of an enrolment, which is stored only with its first right code. @param key IDENTITY_SECRET
 * @param parts the user, a token of this browser, and the account's time of change, which a removal changes
 */
export const enrolmentSecret = (key: string, parts: readonly [string, string, Date]): Buffer =>
  createHmac('sha256', key).update(JSON.stringify(['totp', ...parts])).digest().subarray(0, SECRET_BYTES);

/** The code of one step (RFC 4226, 5.3). */
export function totpCode(secret: Buffer, step: number): string {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const mac = createHmac('sha1', secret).update(counter).digest();
  const number = mac.readUInt32BE(mac.readUInt8(mac.length - 1) & 15) & 0x7fff_ffff;
  return String(number % 10 ** DIGITS).padStart(DIGITS, '0');
}

/** The step of this code. One before and after is accepted, because clocks differ. @param seconds of the database */
export function findTotpStep(secret: Buffer, code: string, seconds: number): number | null {
  const [current, given] = [Math.floor(seconds / STEP_SECONDS), Buffer.from(code)];
  // All three are compared, so that the time does not depend on the step.
  const isCode = (step: number) => sameDigest(Buffer.from(totpCode(secret, step)), given);
  return [current - 1, current, current + 1].filter(isCode).at(-1) ?? null;
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

/** Letters and digits that are not mistaken for each other (Crockford's Base32). */
const LETTERS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** Ten codes of 120 random bits, so that a plain digest may be stored (ASVS 6.5.2: from 112 bits). */
export const createRecoveryCodes = (): string[] => Array.from({ length: 10 }, () => {
  const letters = Array.from({ length: 24 }, () => LETTERS[randomInt(LETTERS.length)]).join('');
  return letters.replace(/.{4}(?=.)/g, '$&-');
});

/** Reads what a person copied by hand: case, spaces and hyphens do not matter. @returns null if it is not a code */
export function recoveryDigest(text: string): Buffer | null {
  const letters = text.toUpperCase().replace(/[\s-]/g, '').replaceAll('O', '0').replace(/[IL]/g, '1');
  return /^[0-9A-HJKMNP-TV-Z]{24}$/.test(letters) ? digest(letters) : null;
}
