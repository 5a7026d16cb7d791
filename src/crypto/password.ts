import { timingSafeEqual } from 'node:crypto';
import {
  createKdfParams,
  derive,
  parse,
  PHC,
  prefixOf,
  type ScryptCost,
  stretch,
  unpadded,
} from './scrypt.ts';

/** @returns a PHC string: `$scrypt$ln=15,r=8,p=3$salt$hash`, Base64 without padding */
export async function hashPassword(password: string, cost: ScryptCost): Promise<string> {
  const kdfParams = createKdfParams(cost);
  return `${kdfParams}$${unpadded(await stretch(password, kdfParams))}`;
}

/**
 * Throws if the stored hash is malformed or costs too much. No password contains U+0000: HMAC, and so scrypt, pads a
 * short key with zeros, and a password with U+0000 appended would have the same hash.
 */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const parsed = parse(stored, PHC.hash);
  return timingSafeEqual(await derive(password, parsed), parsed.hash) && !password.includes('\0');
}

/** Whether the hash has another cost and should be replaced at the next successful login. */
export const needsRehash = (stored: string, cost: ScryptCost): boolean =>
  !stored.startsWith(prefixOf(cost));

/** A hash that no password matches. Verifying against it takes as long as for a real one, for names without a user. */
export const decoyHash = (cost: ScryptCost): string =>
  `${prefixOf(cost)}${'A'.repeat(22)}$${'A'.repeat(43)}`;
