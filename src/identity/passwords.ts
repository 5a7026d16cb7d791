import { hashPassword } from '../crypto/password.ts';
import { Failure } from '../http/errors.ts';
import type { Limiter } from '../runtime/limiter.ts';
import { type Names, passwordError } from './rules.ts';
import type { IdentitySettings } from './settings.ts';

/** `hashing` limits the hashes at once. Generated passwords expire unless they are changed (ASVS 6.4.1). */
export type Hashing = Pick<IdentitySettings, 'passwords'> & Readonly<{ hashing?: Limiter; areGenerated?: boolean }>;

/** New passwords have priority over logins from unknown networks. */
export const hashOf = (password: string, { passwords: { cost }, hashing }: Hashing): Promise<string> =>
  hashing ? hashing.run(() => hashPassword(password, cost), true) : hashPassword(password, cost);

/** @returns the columns of a new password, or why it is rejected */
export async function hashNewPassword(password: string, hashing: Hashing, names: Names) {
  const message = passwordError(password, hashing.passwords, names);
  if (message !== null) return new Failure('invalid_body', { fields: [{ path: '/password', message }] });
  return { password_hash: await hashOf(password, hashing), password_generated: hashing.areGenerated ?? false };
}
