import { randomInt } from 'node:crypto';
import { digest } from '../../crypto/token.ts';

/** Letters and digits that are not mistaken for each other (Crockford's Base32). */
const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const [CODES, GROUPS, GROUP] = [10, 6, 4];

/** Ten codes of 120 random bits, so that a plain digest may be stored (ASVS 6.5.2: from 112 bits). */
export const createRecoveryCodes = (): string[] =>
  Array.from({ length: CODES }, () => Array.from({ length: GROUPS }, createGroup).join('-'));

const createGroup = (): string => Array.from({ length: GROUP }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');

/** Reads what a person copied by hand: case, spaces and hyphens do not matter. @returns null if it is not a code */
export function recoveryDigest(text: string): Buffer | null {
  const letters = text.toUpperCase().replace(/[\s-]/g, '').replaceAll('O', '0').replace(/[IL]/g, '1');
  return /^[0-9A-HJKMNP-TV-Z]{24}$/.test(letters) ? digest(letters) : null;
}
