import { hashPassword } from '../crypto/password.ts';
import { type Database, Duplicate } from '../db/pool.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import {
  boolean,
  type Infer,
  integer,
  object,
  oneOf,
  optional,
  text,
  withDefault,
} from '../http/shape.ts';
import type { Limiter } from '../runtime/limiter.ts';
import { actorOf } from './audit.ts';
import { type User, userMembers, viewUser } from './model.ts';
import { FIRST_PAGE, pageReply } from './paging.ts';
import { type Ask, forbidden, may } from './policy.ts';
import { type Names, nameShapes, passwordError } from './rules.ts';
import type { IdentityService } from './service.ts';
import type { IdentitySettings } from './settings.ts';
import type { Actor } from './store/audit.ts';
import {
  type ChangedUser,
  eachUser,
  findUser,
  insertUser,
  listUsers,
  type Obstacle,
  updateUser,
} from './store/users.ts';

const { username, email, first_name, last_name } = nameShapes;

/** Names and addresses are stored as given and compared by `accountKey`. */
export const newUserShape = object(
  {
    username,
    email,
    first_name: withDefault(first_name, ''),
    last_name: withDefault(last_name, ''),
    password: optional(
      text({ description: 'If omitted, the user cannot log in until a password is set' }),
    ),
    verified: withDefault(boolean(), false),
    super_admin: withDefault(boolean(), false),
    enabled: withDefault(boolean(), true),
  },
  'rejected',
);

export const userChangeShape = object(
  {
    username: optional(username),
    email: optional(email),
    first_name: optional(first_name),
    last_name: optional(last_name),
    verified: optional(boolean()),
    super_admin: optional(boolean()),
    enabled: optional(boolean()),
  },
  'rejected',
);

const revokedKeys = integer({
  min: 0,
  max: 2 ** 31 - 1,
  description: 'After the end of administrator rights',
});
export const changedUserShape = object({ ...userMembers, revoked_keys: optional(revokedKeys) });
export const deletionShape = object({ message: text(), status: oneOf('DELETED') });
export const changeShape = object({ message: text(), status: oneOf('CHANGED') });

type NewUser = Infer<typeof newUserShape>;
type UserChange = Infer<typeof userChangeShape>;
type OfUser = { user_id: string };
type ListQuery = Record<'page' | 'limit', number | undefined>;

/** Users change only these members themselves (ASVS 8.2.3). */
const OWN_MEMBERS = ['first_name', 'last_name'];

/** `hashing` limits the hashes at once. Generated passwords expire unless they are changed (ASVS 6.4.1). */
export type Hashing = Pick<IdentitySettings, 'passwords'> &
  Readonly<{ hashing?: Limiter; areGenerated?: boolean }>;

/** New passwords have priority over logins from unknown networks. */
export const hashOf = (
  password: string,
  { passwords: { cost }, hashing }: Hashing,
): Promise<string> =>
  hashing ? hashing.run(() => hashPassword(password, cost), true) : hashPassword(password, cost);

/** @returns the columns of a new password, or why it is rejected */
async function hashNewPassword(password: string, hashing: Hashing, names: Names) {
  const message = passwordError(password, hashing.passwords, names);
  if (message !== null)
    return new Failure('invalid_body', { fields: [{ path: '/password', message }] });
  return {
    password_hash: await hashOf(password, hashing),
    password_generated: hashing.areGenerated ?? false,
  };
}

export async function createUser(
  database: Database,
  actor: Actor,
  given: NewUser,
  hashing: Hashing,
) {
  const { password, ...user } = given;
  const none = { password_hash: null, password_generated: false };
  const columns = password === undefined ? none : await hashNewPassword(password, hashing, user);
  if (columns instanceof Failure) return columns;
  return unlessTaken(() =>
    database.transaction((sql) => insertUser(sql, actor, { ...user, ...columns })),
  );
}

/** @param change omitted members stay as they are; an empty change does nothing */
export async function changeUser(
  database: Database,
  actor: Actor,
  id: string,
  change: Partial<UserChange>,
) {
  const given = Object.entries(change).filter(([, value]) => value !== undefined);
  if (given.length === 0) return outcomeOf((await findUser(database, id)) ?? 'unknown');
  // Member names and flags only: never a caller's text.
  const detail = given
    .map(([name, value]) => (typeof value === 'boolean' ? `${name}=${value}` : name))
    .join(' ');
  const entry = { event: 'user.changed', actor, detail } as const;
  return unlessTaken(async () =>
    outcomeOf(await updateUser(database, entry, id, Object.fromEntries(given))),
  );
}

/** Sets a user's password and ends that user's sessions. @param before the hash of the password to replace */
export async function setPassword(
  db: Database,
  actor: Actor,
  id: string,
  password: string,
  hashing: Hashing,
  before?: string | null,
) {
  const user = await findUser(db, id);
  if (!user) return unknownUser();
  const columns = await hashNewPassword(password, hashing, user);
  if (columns instanceof Failure) return columns;
  return outcomeOf(await updateUser(db, { event: 'password.set', actor }, id, columns, before));
}

export const removeUser = async (database: Database, actor: Actor, id: string) =>
  outcomeOf(await updateUser(database, { event: 'user.deleted', actor }, id, 'delete'));

export const unknownUser = () =>
  new Failure('not_found', { message: 'There is no user with this id.' });

/** What a change of a user also did, as a sentence after a space; empty for nothing. */
export const revokedKeysText = ({ revoked_keys: count = 0 }: ChangedUser): string =>
  count === 0
    ? ''
    : ` Revoked ${count} key${count === 1 ? '' : 's'} without a user that they had created.`;

function outcomeOf(outcome: ChangedUser | Obstacle) {
  if (outcome === 'unknown') return unknownUser();
  if (outcome !== 'last administrator') return outcome;
  const what = 'the last enabled super administrator whose password does not expire';
  return new Failure('conflict', { message: `This is ${what}. Add another one first.` });
}

async function unlessTaken<T>(work: () => Promise<T>): Promise<T | Failure<'conflict'>> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Duplicate)) throw error;
    const path = error.constraint === 'users_email_key' ? '/email' : '/username';
    const fields = [{ path, message: 'is taken by another user' }];
    return new Failure('conflict', { message: 'Another user has this name or address.', fields });
  }
}

const reply = <Code extends ErrorCode>(outcome: User | Failure<Code>) =>
  outcome instanceof Failure ? outcome : { data: viewUser(outcome) };

/** All users for a super administrator, otherwise the caller alone. A page only if one is requested. */
export async function list(
  { caller, query, request }: Ask<unknown, ListQuery>,
  { database }: IdentityService,
) {
  const isPaged = query.page !== undefined || query.limit !== undefined;
  const page = { page: query.page ?? FIRST_PAGE.page, limit: query.limit ?? FIRST_PAGE.limit };
  const [mayListAll, self] = [may(caller, 'list every user'), caller.user ? [caller.user] : []];
  if (!isPaged)
    return mayListAll ? { items: viewEach(eachUser(database)) } : { data: self.map(viewUser) };
  const own = { rows: page.page === 1 ? self : [], total: self.length };
  return pageReply(
    request.path,
    page,
    mayListAll ? await listUsers(database, page) : own,
    viewUser,
  );
}

async function* viewEach(batches: AsyncIterable<readonly User[]>) {
  for await (const batch of batches) yield batch.map(viewUser);
}

export async function create(
  { caller, body, request }: Ask<unknown, unknown, NewUser>,
  service: IdentityService,
) {
  const isAllowed =
    may(caller, 'create a user') &&
    (!body.super_admin || may(caller, 'make a super administrator'));
  if (!isAllowed) return forbidden(caller);
  return reply(await createUser(service.database, actorOf(caller, request), body, service));
}

export async function show({ caller, path }: Ask<OfUser>, { database }: IdentityService) {
  if (!may(caller, 'read a user', path.user_id)) return forbidden(caller);
  return reply((await findUser(database, path.user_id)) ?? unknownUser());
}

/** If a single member is forbidden, nothing is changed. */
export async function change(
  { caller, path, body, request }: Ask<OfUser, unknown, Partial<UserChange>>,
  { database }: IdentityService,
) {
  const isOwn = Object.entries(body).every(
    ([name, value]) => value === undefined || OWN_MEMBERS.includes(name),
  );
  const usual = isOwn ? 'change the names of a user' : 'change a user';
  const action = body.super_admin ? 'make a super administrator' : usual;
  if (!may(caller, action, path.user_id)) return forbidden(caller);
  const outcome = await changeUser(database, actorOf(caller, request), path.user_id, body);
  if (outcome instanceof Failure) return outcome;
  return { data: { ...viewUser(outcome), revoked_keys: outcome.revoked_keys } };
}

export async function remove(
  { caller, path, request }: Ask<OfUser>,
  { database }: IdentityService,
) {
  if (!may(caller, 'delete a user')) return forbidden(caller);
  const outcome = await removeUser(database, actorOf(caller, request), path.user_id);
  if (outcome instanceof Failure) return outcome;
  const message = `User deleted. Sessions and keys have ended.${revokedKeysText(outcome)}`;
  return { data: { message, status: 'DELETED' as const } };
}

export async function setPasswordOf(
  { caller, path, body, request }: Ask<OfUser, unknown, { password: string }>,
  service: IdentityService,
) {
  if (!may(caller, 'set the password of a user')) return forbidden(caller);
  const actor = actorOf(caller, request);
  const outcome = await setPassword(service.database, actor, path.user_id, body.password, service);
  if (outcome instanceof Failure) return outcome;
  return {
    data: { message: "Password set. The user's sessions have ended.", status: 'CHANGED' as const },
  };
}

export async function test({ request, caller }: Ask) {
  const { user } = caller;
  if (user && may(caller, 'read oneself', user.id))
    return { data: { ip: request.address, user: viewUser(user) } };
  return new Failure('forbidden', { message: 'This key acts for no user.' });
}
