import { randomBytes, scrypt, type ScryptOptions } from 'node:crypto';
import { promisify } from 'node:util';
import { type Env, Expected } from '../runtime/env.ts';
import { isStreamSafe } from '../runtime/text.ts';
import { unpadded } from './text.ts';

/**
 * scrypt: N = 2^logN, block size r, parallelism p (RFC 7914). Memory per hash: 128 · N · r bytes.
 */
export type ScryptCost = Readonly<Record<'logN' | 'r' | 'p', number>>;

/**
 * 32 MiB: the least memory that both the OWASP password storage cheat sheet and ASVS 5.0, appendix
 * C, list.
 */
export const DEFAULT_COST: ScryptCost = {
  logN: 15,
  r: 8,
  p: 3,
};

/**
 * Bounds for stored hashes: an edited row must not make the process allocate gigabytes. The default
 * uses an eighth.
 */
const MAX_BYTES = 256 * 1024 * 1024;
const MAX_WORK = 2 ** 20 * 8;

const SALT_BYTES = 16;
const HASH_BYTES = 32;

const hash = promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt);

/** Checks the setting and stored hashes. */
export function isAffordable({ logN, r, p }: ScryptCost) {
  // RFC 7914, section 2: N < 2^(128 · r / 8).
  const isValid = logN >= 1 && r >= 1 && p >= 1 && logN < 16 * r;
  const blocks = 2 ** logN * r;
  return isValid && 128 * blocks <= MAX_BYTES && blocks * p <= MAX_WORK;
}

/** @returns not affordable if the text is no cost */
export function costOf(text: string): ScryptCost {
  const [, logN, r, p] = /^ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})$/.exec(text) ?? [];
  return {
    logN: Number(logN),
    r: Number(r),
    p: Number(p),
  };
}

function parseCost(text: string) {
  const cost = costOf(text);
  if (isAffordable(cost)) return cost;
  throw new Expected('a cost such as ln=15,r=8,p=3 that needs at most 256 MiB');
}

/**
 * The cost of new hashes. Warns of one below the minimum of the OWASP password storage cheat sheet
 * (ASVS 11.4.2).
 */
export function readCost(env: Env): ScryptCost {
  const cost = env.get('PASSWORD_SCRYPT', DEFAULT_COST, parseCost, 'ln=15,r=8,p=3');
  const blocks = 2 ** cost.logN * cost.r;
  const minimum = 2 ** 13 * 8;
  const isSufficient = blocks >= minimum && blocks * cost.p >= minimum * 10;
  if (!isSufficient) env.warnings.add(COST_WARNING);
  return cost;
}
const COST_WARNING =
  'PASSWORD_SCRYPT is below the minimum of OWASP; set ln=15,r=8,p=3 or at least ln=13,r=8,p=10.';

export const prefixOf = ({ logN, r, p }: ScryptCost) => `$scrypt$ln=${logN},r=${r},p=${p}$`;

/** @returns the cost and a new salt, as a PHC string without a hash */
export const createKdfParams = (cost: ScryptCost) =>
  prefixOf(cost) + unpadded(randomBytes(SALT_BYTES));

/** A stored hash, or its parameters, cannot be used. */
export const MALFORMED = 'a stored password hash is malformed or costs too much';

/**
 * @param kdfParams from `createKdfParams`
 * @returns 32 bytes
 * @throws if the parameters are malformed or cost too much
 */
export async function stretch(password: string, kdfParams: string) {
  const [, , params = '', encoded = ''] = kdfParams.split('$');
  const cost = costOf(params);
  const salt = Buffer.from(encoded, 'base64');
  const isCanonical = prefixOf(cost) + unpadded(salt) === kdfParams;
  const isUsable = isCanonical && salt.length === SALT_BYTES && isAffordable(cost);
  if (!isUsable) throw new Error(MALFORMED);
  return scryptOf(normalizePassword(password), salt, HASH_BYTES, cost);
}

/** scrypt itself, of a cost that is affordable. */
export function scryptOf(password: string, salt: Buffer, bytes: number, cost: ScryptCost) {
  const { logN, r, p } = cost;
  const N = 2 ** logN;
  // Node's default maxmem, 32 MiB, is too small for every cost that ASVS lists.
  const maxmem = 128 * r * (N + p) + 1024 * 1024;
  return hash(password, salt, bytes, {
    N,
    r,
    p,
    maxmem,
  });
}

/**
 * NFKC, because keyboards differ. No new password is like the others, which stay as they are.
 */
export const normalizePassword = (password: string) =>
  isStreamSafe(password) ? password.normalize('NFKC') : password;
