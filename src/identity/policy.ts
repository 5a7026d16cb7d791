import { Failure } from '../http/errors.ts';
import type { ApiKey, CallerSession, User } from './rules.ts';

/** Who stands behind a request: the session or the key that was presented, with its user. A key may have none. */
export interface Caller {
  readonly session: CallerSession | null;
  readonly key: ApiKey | null;
  readonly user: User | null;
}

/** How a caller stands to what is asked for. In person is with a session: a key cannot. */
type Standing = 'super administrator' | 'super administrator in person' | 'owner' | 'owner in person' | 'key without a user' | 'anybody';

/** Who may do what. Everything else is refused; whoever holds another session's token may also read and revoke that one. */
const POLICY = {
  'pass a forward authentication': ['anybody'],
  'read oneself': ['owner'],
  'list every user': ['super administrator', 'key without a user'],
  'read a user': ['super administrator', 'owner', 'key without a user'],
  'create a user': ['super administrator'],
  'change a user': ['super administrator'],
  'change the names of a user': ['super administrator', 'owner'],
  // A key that made one, with a password, could do through it what keys may not.
  'make a super administrator': ['super administrator in person'],
  'delete a user': ['super administrator'],
  'set the password of a user': ['super administrator in person'],
  'change own password': ['owner in person'],
  'list sessions of every user': ['super administrator', 'key without a user'],
  'list sessions of a user': ['super administrator', 'owner', 'key without a user'],
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
} as const satisfies Record<string, readonly Standing[]>;

export type Action = keyof typeof POLICY;

/** @param ownerId whose user, session or key is meant; left out (or null) where it is everybody's (or nobody's) */
export function may(caller: Caller, action: Action, ownerId?: string | null): boolean {
  const allowed: readonly Standing[] = POLICY[action];
  return standingsOf(caller, ownerId).some((standing) => allowed.includes(standing));
}

/** What somebody is told who may not. */
export const forbidden = ({ key }: Caller): Failure<'forbidden'> =>
  new Failure('forbidden', key ? { message: 'This API key may not do this. Log in as somebody who may.' } : {});

function standingsOf({ session, user }: Caller, ownerId: string | null | undefined): Standing[] {
  if (!user) return ['anybody', 'key without a user'];
  const standings: Standing[] = ['anybody'];
  if (user.super_admin) standings.push('super administrator', ...(session ? (['super administrator in person'] as const) : []));
  if (user.id === ownerId) standings.push('owner', ...(session ? (['owner in person'] as const) : []));
  return standings;
}
