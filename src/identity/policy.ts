import type { Call } from '../http/route.ts';
import { Failure } from '../http/errors.ts';
import type { ApiKey, CallerSession, User } from './model.ts';

/** The session or key of a request, and its user. A key may have none. */
export type Caller = Readonly<{
  session: CallerSession | null;
  key: ApiKey | null;
  user: User | null;
}>;

/** What a handler gets. What it may return is declared by its row in `routes.ts`. */
export type IdentityCall<Path = unknown, Query = unknown, Body = unknown> = Call<
  Caller,
  Path,
  Query,
  Body
>;

/** "In person" is with a session, not with a key. */
type Right = 'super administrator' | 'owner' | 'key without a user';
type Role = Right | `${Right} in person`;

/**
 * Who may do what; everything else is forbidden. The holder of a session's token may read and
 * revoke that session.
 */
const POLICY = {
  'read oneself': ['owner'],
  'list every user': ['super administrator', 'key without a user'],
  'read a user': ['super administrator', 'owner', 'key without a user'],
  'create a user': ['super administrator'],
  'change a user': ['super administrator'],
  'change the names of a user': ['super administrator', 'owner'],
  // With the password of an administrator it made, a key could do what keys may not.
  'make a super administrator': ['super administrator in person'],
  'delete a user': ['super administrator'],
  'set the password of a user': ['super administrator in person'],
  'change own password': ['owner in person'],
  'remove factors of a user': ['super administrator in person'],
  'list sessions of every user': ['super administrator', 'key without a user'],
  'list sessions of a user': ['super administrator', 'owner', 'key without a user'],
  'revoke a session by its id': ['super administrator', 'owner', 'key without a user'],
  'revoke sessions of a user': ['super administrator', 'owner', 'key without a user'],
  'revoke sessions of every user': ['super administrator', 'key without a user'],
  'list keys of every user': ['super administrator'],
  'list keys of a user': ['super administrator', 'owner'],
  'create a key': ['super administrator in person', 'owner in person'],
  'revoke a key': ['super administrator', 'owner'],
  'read the audit trail': ['super administrator'],
} as const satisfies Record<string, readonly Role[]>;

export type Action = keyof typeof POLICY;

/**
 * @param ownerId of the user, session or key; omitted or null if it has no owner or belongs to all
 * users
 */
export function may({ session, user }: Caller, action: Action, ownerId?: string | null) {
  const allowed: readonly Role[] = POLICY[action];
  const has = (right: Right) =>
    allowed.includes(right) || (session !== null && allowed.includes(`${right} in person`));
  if (!user) return has('key without a user');
  return (user.super_admin && has('super administrator')) || (user.id === ownerId && has('owner'));
}

export const forbidden = ({ key }: Caller) =>
  new Failure(
    'forbidden',
    key ? { message: 'This API key cannot do this. Log in as a user who can.' } : {},
  );

/** Whoever set or generated the password may know it, too (ASVS 6.4.1). */
export const TEMPORARY_PASSWORD = new Failure('forbidden', {
  message:
    'The password is temporary. Change it first, on the sign-in page or with POST /api/auth/password.',
});

export const unknown = (what: 'user' | 'key' | 'session') =>
  new Failure('not_found', { message: `There is no ${what} with this id.` });

/** One member of a body is rejected. @param path as `/password` */
export const invalid = (path: string, message: string) =>
  new Failure('invalid_body', { fields: [{ path, message }] });
