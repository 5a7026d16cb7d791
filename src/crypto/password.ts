import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { Expected, number, type Variable } from '../runtime/variables.ts';

/** scrypt's cost: N = 2^logN, block size r, parallelism p (RFC 7914). Memory per hash: 128 · N · r bytes. */
export interface ScryptCost {
  readonly logN: number;
  readonly r: number;
  readonly p: number;
}

/** 32 MiB: the least memory that both the OWASP password storage cheat sheet and ASVS 5.0, appendix C, list. */
export const DEFAULT_COST: ScryptCost = { logN: 15, r: 8, p: 3 };

/**
 * What a stored hash may ask of us. Rows come from the database: one that asks for gigabytes must not stop the process.
 * Raise it when the default comes near (today an eighth of it).
 */
const MAX_BYTES = 256 * 1024 * 1024;
const MAX_WORK = 2 ** 20 * 8;

const SALT_BYTES = 16;
const HASH_BYTES = 32;
const STRETCHING = String.raw`\$scrypt\$ln=([1-9][0-9]?),r=([1-9][0-9]?),p=([1-9][0-9]?)\$([A-Za-z0-9+/]{22})`;
const PHC = { stretching: new RegExp(`^${STRETCHING}$`), hash: new RegExp(String.raw`^${STRETCHING}\$([A-Za-z0-9+/]{43})$`) };

/** Whether this cost is one we would compute: used for the setting and for stored hashes alike. */
export function isAffordable({ logN, r, p }: ScryptCost): boolean {
  // RFC 7914, section 2: N < 2^(128 · r / 8).
  return logN >= 1 && r >= 1 && p >= 1 && logN < 16 * r && 128 * 2 ** logN * r <= MAX_BYTES && 2 ** logN * r * p <= MAX_WORK;
}

function scryptCost(): Variable<ScryptCost> {
  const parse = (text: string) => {
    const found = /^ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})$/.exec(text);
    const cost = { logN: Number(found?.[1]), r: Number(found?.[2]), p: Number(found?.[3]) };
    return isAffordable(cost) ? cost : new Expected('a cost such as ln=15,r=8,p=3 that needs at most 256 MiB');
  };
  return { fallback: 'ln=15,r=8,p=3', unset: DEFAULT_COST, parse };
}

/** Of every service that hashes passwords or passphrases. */
export const HASHING_VARIABLES = { PASSWORD_HASHES: number(2, 1, 64), PASSWORD_SCRYPT: scryptCost() } as const;

/** @returns what `stretch` needs to do the same work again: cost and a fresh salt, as a PHC string without a hash */
export const createKdfParams = (cost: ScryptCost): string =>
  `$scrypt$ln=${cost.logN},r=${cost.r},p=${cost.p}$${unpadded(randomBytes(SALT_BYTES))}`;

/**
 * @param password as typed; it is brought to NFKC first, so that the same password typed on two keyboards is the same
 * @param stretching made by `createStretching`; throws on one that we would not compute
 * @returns 32 bytes that can only be found by doing the work
 */
export function stretch(password: string, stretching: string): Promise<Buffer> {
  const { cost, salt } = parse(stretching, PHC.stretching);
  return derive(password, salt, cost);
}

/** @returns a PHC string: `$scrypt$ln=15,r=8,p=3$salt$hash`, Base64 without padding */
export async function hashPassword(password: string, cost: ScryptCost): Promise<string> {
  const stretching = createKdfParams(cost);
  return `${stretching}$${unpadded(await stretch(password, stretching))}`;
}

/**
 * HMAC, and so scrypt, pads a short key with zeros: a password and the same with U+0000 behind it have one hash. So that
 * character is in no password.
 * @returns whether the password is the hashed one; throws on a stored text that is not a hash we would compute
 */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const { cost, salt, hash } = parse(stored, PHC.hash);
  return timingSafeEqual(await derive(password, salt, cost), hash) && !password.includes('\0');
}

/** Whether the hash was made at another cost and should be replaced at the next successful login. */
export function needsRehash(stored: string, cost: ScryptCost): boolean {
  const used = parse(stored, PHC.hash).cost;
  return used.logN !== cost.logN || used.r !== cost.r || used.p !== cost.p;
}

/**
 * A hash that no password has, made without computing one. Verifying against it costs what a real one costs: the work
 * for a name that nobody has.
 */
export function decoyHash(cost: ScryptCost): string {
  return `$scrypt$ln=${cost.logN},r=${cost.r},p=${cost.p}$${'A'.repeat(22)}$${'A'.repeat(43)}`;
}

function parse(stored: string, form: RegExp): { cost: ScryptCost; salt: Buffer; hash: Buffer } {
  const [, logN, r, p, salt = '', hash = ''] = form.exec(stored) ?? [];
  const parsed = { cost: { logN: Number(logN), r: Number(r), p: Number(p) }, salt: Buffer.from(salt, 'base64'), hash: Buffer.from(hash, 'base64') };
  const isCanonical = unpadded(parsed.salt) === salt && unpadded(parsed.hash) === hash;
  if (!isAffordable(parsed.cost) || !isCanonical) throw new Error('a stored password hash is malformed or asks for too much work');
  return parsed;
}

const unpadded = (bytes: Buffer) => bytes.toString('base64').replace(/=+$/, '');

function derive(password: string, salt: Buffer, { logN, r, p }: ScryptCost): Promise<Buffer> {
  // Node refuses every cost on the ASVS list unless maxmem is raised (its default is 32 MiB in all).
  const options = { N: 2 ** logN, r, p, maxmem: 128 * 2 ** logN * r + 128 * r * p + 1024 * 1024 };
  return new Promise((resolve, reject) => {
    scrypt(password.normalize('NFKC'), salt, HASH_BYTES, options, (error, hash) => (error ? reject(error) : resolve(hash)));
  });
}
