import { type Call, Failure } from '../platform/http/route/route.ts';
import type { ApiKey, CallerSession, KeyRight, User } from './model.ts';

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

/** A "provisioning key" acts for ordinary users; `store/rights.ts` checks that they are. */
type Right = 'anyone' | 'super administrator' | 'owner' | 'key without a user' | 'provisioning key';

/**
 * What the credential must prove (ASVS 7.5), from least to most. "Proven" is a session with the
 * second factor, if its user has one by now. "Recent" is one whose user did that within ten minutes
 * and has a password of their own.
 */
type Proof = 'any credential' | 'key or proven session' | 'proven session' | 'recent sign-in';
/** What the list of a key must have. Some actions need a key without a list. */
type InKey = KeyRight | 'no list';
type Rule = readonly [Proof, InKey, ...Right[]];

/**
 * Who may do what; everything else is forbidden. What hands out rights or credentials needs a
 * recent sign-in, or, for ordinary users, a provisioning key. What ends sessions and keys does not:
 * it may be urgent. Nor do groups, which a program with a key may manage. The holder of a session's
 * token may read and revoke that session.
 */
const POLICY = {
  'pass forward authentication': ['any credential', 'verify', 'anyone'],
  'read oneself': ['any credential', 'read', 'owner'],
  'list every user': ['any credential', 'read', 'super administrator', 'key without a user'],
  'read a user': ['any credential', 'read', 'super administrator', 'owner', 'key without a user'],
  'create a user': ['key or proven session', 'no list', 'super administrator', 'provisioning key'],
  'change a user': ['key or proven session', 'no list', 'super administrator', 'provisioning key'],
  'change the names of a user': [
    'any credential',
    'no list',
    'super administrator',
    'owner',
    'provisioning key',
  ],
  // With the password of an administrator it made, a key could do what keys may not.
  'make a super administrator': ['recent sign-in', 'no list', 'super administrator'],
  'delete a user': ['key or proven session', 'no list', 'super administrator'],
  'set the password of a user': ['recent sign-in', 'no list', 'super administrator'],
  // With which a user sets a password.
  'make or end a link': ['recent sign-in', 'no list', 'super administrator', 'provisioning key'],
  // The current password is asked for, but not the second factor.
  'change own password': ['proven session', 'no list', 'owner'],
  'export own data': ['proven session', 'no list', 'owner'],
  'delete oneself': ['recent sign-in', 'no list', 'owner'],
  'remove factors of a user': ['recent sign-in', 'no list', 'super administrator'],
  'secure the account of a user': ['recent sign-in', 'no list', 'super administrator'],
  'list sessions of every user': [
    'any credential',
    'read',
    'super administrator',
    'key without a user',
  ],
  'list sessions of a user': [
    'any credential',
    'read',
    'super administrator',
    'owner',
    'key without a user',
  ],
  'revoke a session by its id': [
    'any credential',
    'revoke',
    'super administrator',
    'owner',
    'key without a user',
  ],
  'revoke sessions of a user': [
    'any credential',
    'revoke',
    'super administrator',
    'owner',
    'key without a user',
  ],
  'revoke sessions of every user': [
    'any credential',
    'revoke',
    'super administrator',
    'key without a user',
  ],
  'list keys of every user': ['any credential', 'read', 'super administrator'],
  'list keys of a user': [
    'any credential',
    'read',
    'super administrator',
    'owner',
    'provisioning key',
  ],
  'create a key': ['recent sign-in', 'no list', 'super administrator', 'owner', 'provisioning key'],
  'revoke a key': ['any credential', 'revoke', 'super administrator', 'owner', 'provisioning key'],
  'read the audit trail': ['any credential', 'read', 'super administrator'],
  // Programs at which users sign in by OpenID Connect.
  'list programs': ['any credential', 'read', 'super administrator'],
  'change programs': ['recent sign-in', 'no list', 'super administrator'],
} as const satisfies Record<string, Rule>;

export type Action = keyof typeof POLICY;

type OwnerId = string | null | undefined;

/**
 * Why the caller may not do this, or null.
 * @param ownerId of the user, session or key; omitted or null if it has no owner or belongs to all
 * users
 */
export function refusalOf(caller: Caller, action: Action, ownerId?: OwnerId) {
  const [proof, inKey, ...rights]: Rule = POLICY[action];
  const { user, session, key } = caller;
  // A key without a user belongs to none of the users for whom it acts.
  const isProvision = rights.includes('provisioning key') && ownerId !== null;
  if (isProvision && isProvisioning(caller)) return null;
  const has: Readonly<Record<Right, boolean>> = {
    anyone: true,
    'super administrator': user?.super_admin ?? false,
    owner: user !== null && user.id === ownerId,
    'key without a user': user === null,
    'provisioning key': false,
  };
  const isInKey = !key?.rights || key.rights.some((right) => right === inKey);
  if (!isInKey || !rights.some((right) => has[right])) return forbidden(caller);
  if (proof === 'any credential') return null;
  if (!session) return proof === 'key or proven session' ? null : forbidden(caller);
  if (proof !== 'recent sign-in') return session.isProven ? null : SIGNIN_TOO_OLD;
  if (session.hasTemporaryPassword) return TEMPORARY_PASSWORD;
  return isRecent(session) ? null : SIGNIN_TOO_OLD;
}

/** The caller's own user, or why the caller may not do this with it. */
export const ownUser = (caller: Caller, action: Action) =>
  refusalOf(caller, action, caller.user?.id) ?? caller.user ?? forbidden(caller);

export const isProvisioning = ({ user, key }: Caller) =>
  user === null && (key?.rights?.includes('provision') ?? false);

export const may = (caller: Caller, action: Action, ownerId?: OwnerId) =>
  refusalOf(caller, action, ownerId) === null;

/** How long after a sign-in sensitive pages open and changes are made, in seconds (ASVS 7.5). */
const RECENT_SECONDS = 600;

export const isRecent = ({ age, isProven }: CallerSession) => isProven && age <= RECENT_SECONDS;

const SIGNIN_TOO_OLD = new Failure('signin_too_old');

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
