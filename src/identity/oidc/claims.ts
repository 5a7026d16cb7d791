import type { Grant } from '../store/oidc/grants.ts';

/** How a user proved to be one, by the names of RFC 8176. */
const METHODS: Readonly<Record<string, readonly string[]>> = {
  password: ['pwd'],
  'password, totp': ['pwd', 'otp', 'mfa'],
  'password, recovery': ['pwd', 'otp', 'mfa'],
  'password, passkey': ['pwd', 'pop', 'mfa'],
  passkey: ['pop', 'user', 'mfa'],
};

/** In log lines. */
export const idsOf = ({ id, client_id, user }: Pick<Grant, 'id' | 'client_id' | 'user'>) => ({
  ids: { grant_id: id, client_id, user_id: user.id },
});

/** When and how the user signed in. */
export const proofOf = ({ at, methods }: Grant) => ({
  auth_time: Math.floor(at.getTime() / 1000),
  amr: METHODS[methods] ?? ['pwd'],
});

/**
 * What a program learns of the user, by the scopes (OpenID Connect Core, 5.4). Groups are always an
 * array: some programs fail without one.
 */
export function claimsOf({ scopes, user }: Pick<Grant, 'scopes' | 'user'>) {
  const { id, first_name, last_name, username, email, verified, groups, updated_at } = user;
  const name = [first_name, last_name].filter(Boolean).join(' ') || username;
  const profile = {
    name,
    given_name: first_name || undefined,
    family_name: last_name || undefined,
    preferred_username: username,
    updated_at: Math.floor(updated_at.getTime() / 1000),
  };
  return {
    sub: id,
    ...(scopes.includes('profile') && profile),
    ...(scopes.includes('email') && { email, email_verified: verified }),
    ...(scopes.includes('groups') && { groups: [...groups].sort() }),
  };
}
