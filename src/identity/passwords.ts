import { readFileSync } from 'node:fs';
import { hashPassword } from '../crypto/password.ts';
import { Failure } from '../http/errors.ts';
import type { Limiter } from '../runtime/limiter.ts';
import { accountKey } from './model.ts';
import type { IdentitySettings } from './settings.ts';

/** How new passwords are checked and hashed. */
export type Passwords = ReturnType<typeof createPasswords>;
type Hashing = Pick<IdentitySettings, 'passwords'> & { readonly hashing?: Limiter };

/** @param hashing limits the hashes at once. New passwords have priority over logins from unknown networks */
export const createPasswords = ({ passwords: { minLength, cost }, hashing }: Hashing) => ({
  minLength,
  hash: (password: string): Promise<string> =>
    hashing ? hashing.run(() => hashPassword(password, cost), true) : hashPassword(password, cost),
});

/** Lengths count code points (NIST SP 800-63B). There are no composition rules (ASVS 6.2.5). */
export const PASSWORD_MAX_LENGTH = 1_024;

/** @returns why a new password is rejected, or null */
export function passwordError(password: string, minLength: number, common = commonPasswords()): string | null {
  const length = [...password.normalize('NFKC')].length;
  if (length < minLength) return `must have at least ${minLength} characters`;
  if (length > PASSWORD_MAX_LENGTH) return `must have at most ${PASSWORD_MAX_LENGTH} characters`;
  if (password.includes('\0')) return 'must not contain the character U+0000';
  if (common.has(accountKey(password))) return 'is among the most common passwords; choose another';
  return null;
}

/** @returns the hash of a new password, or why it is rejected */
export async function hashNewPassword(password: string, passwords: Passwords) {
  const message = passwordError(password, passwords.minLength);
  if (message === null) return passwords.hash(password);
  return new Failure('invalid_body', { fields: [{ path: '/password', message }] });
}

let words: ReadonlySet<string> | null = null;

/**
 * The 3,000 most common passwords of at least eight characters, in lower case (ASVS 6.2.4). Source: the ten million
 * passwords that Mark Burnett published in 2015, as ranked in zxcvbn 4.4.2. Read at first use: few processes need it.
 */
export function commonPasswords(): ReadonlySet<string> {
  words ??= new Set(readFileSync(new URL('common-passwords.txt', import.meta.url), 'utf8').trimEnd().split('\n'));
  return words;
}
