import type { Session, User } from './rules.ts';

/** Who stands behind a request: the session that was presented, with its user. */
export interface Caller {
  readonly session: Session;
  readonly user: User;
}

/** How a caller stands to what is asked for. */
type Standing = 'super administrator' | 'owner' | 'anybody';

/** Who may do what. Everything else is refused; whoever holds another session's token may also read and revoke that one. */
const POLICY = {
  'list every user': ['super administrator'],
  'list sessions of every user': ['super administrator'],
  'list sessions of a user': ['super administrator', 'owner'],
  'read a session by its token': ['anybody'],
  'revoke a session by its token': ['anybody'],
  'revoke a session by its id': ['super administrator', 'owner'],
  'revoke sessions of a user': ['super administrator', 'owner'],
  'revoke sessions of every user': ['super administrator'],
} as const satisfies Record<string, readonly Standing[]>;

export type Action = keyof typeof POLICY;

/** @param ownerId whose user, session or sessions are meant; left out where it is everybody's */
export function may(caller: Caller, action: Action, ownerId?: string): boolean {
  const allowed: readonly Standing[] = POLICY[action];
  return (
    allowed.includes('anybody') ||
    (allowed.includes('super administrator') && caller.user.super_admin) ||
    (allowed.includes('owner') && ownerId === caller.user.id)
  );
}
