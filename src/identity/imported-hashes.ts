import { pbkdf2 } from 'node:crypto';
import { promisify } from 'node:util';
import { costOf, isAffordable, MALFORMED, scryptOf } from '../platform/crypto/scrypt.ts';
import { unpadded } from '../platform/crypto/text.ts';
import { equalDigests } from '../platform/crypto/token.ts';

/**
 * Password hashes of other programs, as PHC strings or as Django writes them. They are stored as
 * PHC strings behind a prefix, and replaced by ours when their users log in.
 */

const PREFIX = 'imported';
export const isImported = (stored: string) => stored.startsWith(`${PREFIX}$`);

/** A login must not take much longer: Django 6.0 has half of this. */
const MAX_ITERATIONS = 2_400_000;

/** `isKnown`: it is a hash, of an algorithm that Node does not have. */
type Rejected = Readonly<{ problem: string; isKnown: boolean }>;
const reject = (problem: string): Rejected => ({
  problem: `${problem}; correct it, or leave it out and use --invite`,
  isKnown: false,
});
const UNSUPPORTED: Rejected = {
  problem:
    'is of bcrypt or Argon2, which Gatehouse cannot check; use --invite, which prints a link for the user',
  isKnown: true,
};

/** @returns what is stored, or why the hash is rejected */
export function readForeignHash(text: string): string | Rejected {
  if (/^(\$2[abxy]?\$|bcrypt|\$?argon2)/.test(text)) return UNSUPPORTED;
  const phc = phcOf(text);
  const hash = parse(phc);
  return 'problem' in hash ? hash : PREFIX + phc;
}

const base64 = (salt: string) => unpadded(Buffer.from(salt));

/** Of a hash of Django, whose salts are texts, or of passlib, which writes dots for plus signs. */
const phcOf = (text: string) =>
  text
    .replace(
      /^pbkdf2_(sha1|sha256)\$(\d+)\$([^$]+)\$([^$.=]+)=*$/,
      (_all, algorithm, count, salt, hash) =>
        `$pbkdf2-${algorithm}$i=${count}$${base64(salt)}$${hash}`,
    )
    .replace(
      /^scrypt\$(\d+)\$([^$]+)\$(\d+)\$(\d+)\$([^$.=]+)=*$/,
      (_all, n, salt, r, p, hash) =>
        `$scrypt$ln=${Math.log2(Number(n))},r=${r},p=${p}$${base64(salt)}$${hash}`,
    )
    .replace(/^\$pbkdf2(?=\$)/, '$pbkdf2-sha1')
    .replace(/^(\$pbkdf2-\w+)\$(?:i=)?(\d+)(?:,l=\d+)?\$/, '$1$i=$2$')
    .replaceAll('.', '+');

const PHC =
  /^\$(?:pbkdf2-(sha1|sha256|sha512)|scrypt)\$([^$]+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

function parse(phc: string) {
  const [, algorithm, params = '', salt = '', hash] = PHC.exec(phc) ?? [];
  if (hash === undefined)
    return reject('is not a hash of PBKDF2 or scrypt in the format of PHC or Django');
  const parts = { salt: Buffer.from(salt, 'base64'), digest: Buffer.from(hash, 'base64') };
  if (parts.salt.length > 64) return reject('has a salt of more than 64 bytes');
  if (parts.digest.length < 16 || parts.digest.length > 64)
    return reject(
      `is malformed: its last part must be 16 to 64 bytes in Base64, but has ${parts.digest.length}`,
    );
  if (algorithm === undefined) {
    const cost = costOf(params);
    return isAffordable(cost)
      ? { ...parts, cost }
      : reject('has parameters of scrypt that are invalid, or need more than 256 MiB');
  }
  const iterations = Number(/^i=([1-9]\d{0,8})$/.exec(params)?.[1] ?? Infinity);
  return iterations <= MAX_ITERATIONS
    ? { ...parts, algorithm, iterations }
    : reject(`must have 1 to ${MAX_ITERATIONS} iterations of PBKDF2`);
}

const derive = promisify(pbkdf2);

/** Other programs do not normalize passwords. @throws if the stored hash is malformed or costly */
export async function verifyImported(password: string, stored: string) {
  const hash = parse(stored.slice(PREFIX.length));
  if ('problem' in hash) throw new Error(MALFORMED);
  const { salt, digest } = hash;
  const found =
    'cost' in hash
      ? await scryptOf(password, salt, digest.length, hash.cost)
      : await derive(password, salt, hash.iterations, digest.length, hash.algorithm);
  return equalDigests(found, digest) && !password.includes('\0');
}
