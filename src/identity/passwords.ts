import { hashPassword } from '../crypto/password.ts';
import { Failure } from '../http/errors.ts';
import type { Limiter } from '../runtime/limiter.ts';
import { type Names, passwordError } from './rules.ts';
import type { IdentitySettings } from './settings.ts';

/** How new passwords are checked and hashed. Those that are generated expire unless they are changed (ASVS 6.4.1). */
export type Passwords = ReturnType<typeof createPasswords>;
type Hashing = Pick<IdentitySettings, 'passwords'> & { readonly hashing?: Limiter };

/** @param hashing limits the hashes at once. New passwords have priority over logins from unknown networks */
export const createPasswords = ({ passwords: { cost, ...rules }, hashing }: Hashing) => ({
  rules,
  areGenerated: false,
  hash: (password: string): Promise<string> =>
    hashing ? hashing.run(() => hashPassword(password, cost), true) : hashPassword(password, cost),
});

/** @returns the columns of a new password, or why it is rejected */
export async function hashNewPassword(password: string, { rules, hash, areGenerated }: Passwords, names: Names) {
  const message = passwordError(password, rules, names);
  if (message !== null) return new Failure('invalid_body', { fields: [{ path: '/password', message }] });
  return { password_hash: await hash(password), password_generated: areGenerated };
}
