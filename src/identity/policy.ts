import type { Call } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { ApiKey, Session, User } from './model.ts';

/** The session or key of a request, and its user. A key may have none. */
export type Caller = Readonly<{ session: Session | null; key: ApiKey | null; user: User | null }>;

/** What a handler gets. What it may return is declared by its row in `routes.ts`. */
export type Ask<Path = unknown, Query = unknown, Body = null> = Call<Caller, Path, Query, Body>;

/** "In person" is with a session, not with a key. */
type Right = 'super administrator' | 'owner';
type Role = Right | `${Right} in person` | 'key without a user' | 'anybody';

/** Who may do what; everything else is forbidden. */
const POLICY = {
  'pass a forward authentication': ['anybody'],
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
  // The holder of another session's token may read and revoke that session.
  'read a session by its token': ['anybody'],
  'revoke a session by its token': ['anybody'],
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

/** @param ownerId of the user, session or key; omitted or null if it is everyone's or nobody's */
export function may({ session, user }: Caller, action: Action, ownerId?: string | null): boolean {
  const allowed: readonly Role[] = POLICY[action];
  if (allowed.includes('anybody')) return true;
  if (!user) return allowed.includes('key without a user');
  const rights: Right[] = user.super_admin ? ['super administrator'] : [];
  if (user.id === ownerId) rights.push('owner');
  for (const right of rights) {
    if (allowed.includes(right) || (session && allowed.includes(`${right} in person`))) return true;
  }
  return false;
}

export const forbidden = ({ key }: Caller): Failure<'forbidden'> =>
  new Failure('forbidden', key ? { message: 'This API key may not do this. Log in with a user who may.' } : {});
