import { hashPassword } from './passwords.ts';
import { Duplicate } from '../platform/db/errors.ts';
import type { Database, Sql } from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import {
  boolean,
  type Infer,
  integer,
  object,
  optional,
  partial,
  text,
  withDefault,
  withoutNul,
} from '../platform/http/route/schema.ts';
import { userMembers, viewUser } from './model.ts';
import { forbidden, type IdentityCall, invalid, may, refusalOf, unknown } from './policy.ts';
import { groups, type Names, nameSchemas, newNameSchemas, passwordError } from './rules.ts';
import type { IdentityService } from './service.ts';
import { type Actor, actorOf } from './store/audit.ts';
import { PromotionRefused } from './store/rights.ts';
import { findUserByName } from './store/lists.ts';
import * as store from './store/users.ts';

/** Names and addresses are stored as given and compared by `accountKey`. */
export const newUserMembers = {
  ...newNameSchemas,
  verified: withDefault(boolean(), false),
  enabled: withDefault(boolean(), true),
  groups: withDefault(groups, []),
};

export const newUserSchema = object(
  {
    ...newUserMembers,
    password: optional(
      text({ description: 'If omitted, the user cannot sign in until a password is set' }),
    ),
    super_admin: withDefault(boolean(), false),
  },
  'rejected',
);

export const userChangeSchema = object(
  partial({
    ...nameSchemas,
    verified: boolean(),
    super_admin: boolean(),
    enabled: boolean(),
    groups,
  }),
  'rejected',
);

export const changedUserSchema = object({
  ...userMembers,
  revoked_keys: optional(
    integer({ min: 0, max: 2 ** 31 - 1, description: 'When administrator rights begin or end' }),
  ),
});

/** A link with which a user sets a password, and what inserts it and tells when it ends. */
export type Invitation = Readonly<{
  link: string;
  insert(sql: Sql, actor: Actor, userId: string): Promise<Date | 'disabled'>;
}>;
export type AlsoWrite = Invitation['insert'];
type NewUser = Infer<typeof newUserSchema>;
type UserChange = Infer<typeof userChangeSchema>;
type OfUser = { user_id: string };

/** Users change only these members themselves (ASVS 8.2.3). */
const OWN_MEMBERS = ['first_name', 'last_name'];

/**
 * `hashing` limits how many hashes run at once. With `areGenerated`, the passwords expire unless
 * they are changed (ASVS 6.4.1).
 */
export type PasswordOptions = Pick<IdentityService, 'passwords'> &
  Readonly<{ hashing?: IdentityService['hashing']; areGenerated?: boolean }>;

/** New hashes wait in the priority queue, with logins from known networks. */
export const hashOf = (password: string, { passwords: { cost }, hashing }: PasswordOptions) =>
  hashing ? hashing.run(() => hashPassword(password, cost), true) : hashPassword(password, cost);

/** @returns the columns of a new password, or why it is rejected */
export async function hashNewPassword(password: string, options: PasswordOptions, names: Names) {
  const message = passwordError(password, options.passwords, names);
  if (message !== null) return invalid('/password', message);
  return {
    password_hash: await hashOf(password, options),
    password_generated: options.areGenerated ?? false,
  };
}

/** @param alsoWrite is committed together with the user */
export async function createUser(
  database: Database,
  actor: Actor,
  { password, ...user }: NewUser,
  options: PasswordOptions,
  alsoWrite?: AlsoWrite,
) {
  const columns =
    password === undefined
      ? { password_hash: null, password_generated: false }
      : await hashNewPassword(password, options, user);
  if (columns instanceof Failure) return columns;
  return database
    .transaction(async (sql) => {
      const created = await store.insertUser(sql, actor, { ...user, ...columns });
      await alsoWrite?.(sql, actor, created.id);
      return created;
    })
    .catch(conflictOf);
}

/**
 * @param change omitted members stay as they are; an empty change does nothing
 * @param promotion why the actor may not make an administrator, which enabling one does, too
 */
export async function changeUser(
  database: Database,
  actor: Actor,
  id: string,
  change: Partial<UserChange>,
  promotion: ReturnType<typeof refusalOf> = null,
) {
  const members = Object.entries(change).filter(([, value]) => value !== undefined);
  // Member names and flags only: never a caller's text. The store adds the groups.
  const detail = members
    .filter(([name]) => name !== 'groups')
    .map(([name, value]) => (typeof value === 'boolean' ? `${name}=${value}` : name))
    .join(' ');
  const changed: Promise<store.ChangedUser | null> =
    members.length === 0
      ? store.findUser(database, id)
      : store.changeUser(database, actor, id, Object.fromEntries(members), detail, !promotion);
  const outcome = await changed.catch((error: unknown) =>
    error instanceof PromotionRefused ? promotion : conflictOf(error),
  );
  return outcome ?? unknown('user');
}

/** Sets a user's password and ends that user's sessions. */
export async function setPassword(
  database: Database,
  actor: Actor,
  id: string,
  password: string,
  options: PasswordOptions,
) {
  const user = await store.findUser(database, id);
  if (!user) return unknown('user');
  const columns = await hashNewPassword(password, options, user);
  if (columns instanceof Failure) return columns;
  return (await store.setPasswordHash(database, actor, id, columns)) ?? unknown('user');
}

export const removeUser = async (database: Database, actor: Actor, id: string) =>
  (await store.deleteUser(database, actor, id).catch(conflictOf)) ?? unknown('user');

/** @returns a sentence about the revoked keys, after a space; empty if there are none */
export function revokedKeysText({ revoked_keys: count = 0, ...user }: store.ChangedUser) {
  if (count === 0) return '';
  const isPromoted = user.super_admin && user.deleted_at === null;
  const which = isPromoted ? '' : ' without a user that they had created';
  return ` Revoked ${count} key${count === 1 ? '' : 's'}${which}.`;
}

const LAST_ADMINISTRATOR =
  'No other enabled super administrator has a password that does not expire. Add one first.';

export function conflictOf(error: unknown) {
  if (error instanceof store.LastAdministrator) {
    return new Failure('conflict', { message: LAST_ADMINISTRATOR });
  }
  if (!(error instanceof Duplicate)) throw error;
  const path = error.constraint === 'users_email_key' ? '/email' : '/username';
  return new Failure('conflict', {
    message: 'Another user has this name or address.',
    fields: [{ path, message: 'is taken by another user' }],
  });
}

export async function create(
  { caller, body, request }: IdentityCall<unknown, unknown, NewUser>,
  service: IdentityService,
  alsoWrite?: AlsoWrite,
) {
  const action = body.super_admin ? 'make a super administrator' : 'create a user';
  const refused = refusalOf(caller, action);
  if (refused) return refused;
  const actor = actorOf(caller, request);
  const created = await createUser(service.database, actor, body, service, alsoWrite);
  if (created instanceof Failure) return created;
  return { data: viewUser(created), headers: { Location: `/api/user/${created.id}` } };
}

export async function showUser(
  { caller, path }: IdentityCall<OfUser>,
  { database }: IdentityService,
) {
  if (!may(caller, 'read a user', path.user_id)) return forbidden(caller);
  const user = await store.findUser(database, path.user_id);
  return user ? { data: viewUser(user) } : unknown('user');
}

export const userNameQuery = {
  name: text({ min: 1, max: 1_024, pattern: withoutNul, description: 'Id, username or address' }),
};

/** Whoever may not read every user gets one answer for any other name, used or not. */
export async function showUserByName(
  { caller, query }: IdentityCall<unknown, { name: string }>,
  { database }: IdentityService,
) {
  const user = await findUserByName(database, query.name);
  if (!may(caller, 'read a user', user?.id)) return forbidden(caller);
  if (user) return { data: viewUser(user) };
  return new Failure('not_found', { message: 'There is no user with this id, name or address.' });
}

/** If a single member is forbidden, nothing is changed. */
export async function change(
  { caller, path, body, request }: IdentityCall<OfUser, unknown, Partial<UserChange>>,
  { database }: IdentityService,
) {
  const isOwn = Object.entries(body).every(
    ([name, value]) => value === undefined || OWN_MEMBERS.includes(name),
  );
  const usual = isOwn ? 'change the names of a user' : 'change a user';
  const id = path.user_id;
  const promotion = refusalOf(caller, 'make a super administrator', id);
  const refused = body.super_admin ? promotion : refusalOf(caller, usual, id);
  if (refused) return refused;
  const outcome = await changeUser(database, actorOf(caller, request), id, body, promotion);
  if (outcome instanceof Failure) return outcome;
  return { data: { ...viewUser(outcome), revoked_keys: outcome.revoked_keys } };
}

export async function remove(call: IdentityCall<OfUser>, service: IdentityService) {
  const refused = refusalOf(call.caller, 'delete a user');
  return refused ?? removeAs(call, service, call.path.user_id);
}

/** @param call of a caller who may delete this user */
export async function removeAs(
  { caller, request }: Pick<IdentityCall, 'caller' | 'request'>,
  { database }: IdentityService,
  id: string,
) {
  const outcome = await removeUser(database, actorOf(caller, request), id);
  if (outcome instanceof Failure) return outcome;
  const message = `User deleted. Sessions and keys have ended.${revokedKeysText(outcome)}`;
  return { data: { message, status: 'DELETED' as const } };
}

/** A session alone must not suffice to set one's own password (ASVS 6.2.3). */
export const OWN_PASSWORD = new Failure('forbidden', {
  message:
    'This is your own password. Change it on the account page or with POST /api/auth/password, which need the current one.',
});

export async function setPasswordOf(
  { caller, path, body, request }: IdentityCall<OfUser, unknown, { password: string }>,
  service: IdentityService,
) {
  const refused = refusalOf(caller, 'set the password of a user');
  if (refused) return refused;
  if (path.user_id === caller.user?.id) return OWN_PASSWORD;
  const actor = actorOf(caller, request);
  const outcome = await setPassword(service.database, actor, path.user_id, body.password, service);
  if (outcome instanceof Failure) return outcome;
  return {
    data: { message: "Password set. The user's sessions have ended.", status: 'CHANGED' as const },
  };
}

export async function showSelf({ request, caller }: IdentityCall) {
  const { user } = caller;
  if (user && may(caller, 'read oneself', user.id))
    return { data: { ip: request.address, user: viewUser(user) } };
  return new Failure('forbidden', { message: 'This key acts for no user.' });
}
