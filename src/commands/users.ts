import {
  type Arguments,
  type Command,
  flag,
  type Invocation,
  json,
  OperationFailed,
  option,
  requiredOption,
  UsageError,
} from './command.ts';
import { counted, databaseOf, orThrow } from './database.ts';
import { type Columns, printMembers, printRows, readInput } from './terminal.ts';
import { splitList } from '../platform/runtime/env.ts';
import { isUuid } from '../platform/runtime/text.ts';
import { randomToken } from '../platform/crypto/token.ts';
import type { Database } from '../platform/db/pool.ts';
import { networkOf } from '../platform/http/wire/address.ts';
import type { Failure } from '../platform/http/route/errors.ts';
import { object, type Schema, validate } from '../platform/http/route/schema.ts';
import { codeLimit } from '../identity/factors/codes.ts';
import { loginLimits } from '../identity/passwords.ts';
import { type User, viewUser } from '../identity/model.ts';
import { SCHEMA } from '../identity/migrations.ts';
import { accountKey } from '../identity/names.ts';
import * as settings from '../identity/settings.ts';
import { COMMAND_LINE } from '../identity/store/audit.ts';
import {
  clearLimits,
  failedLoginAddresses,
  readThrottleSecret,
} from '../identity/store/failures.ts';
import { removeFactors } from '../identity/store/signin/factors.ts';
import { stateOf, userFilter } from '../identity/lists.ts';
import { findUserByName, listGroups, type ListedUser, listUsers } from '../identity/store/lists.ts';
import {
  changeUser,
  createUser,
  newUserSchema,
  removeUser,
  revokedKeysText,
  setPassword,
  userChangeSchema,
} from '../identity/users.ts';

/** A page that holds every row. */
export const ALL = { page: 1, limit: 2 ** 31 };

const NAMES_AND_GROUPS = {
  'first-name': option('NAME', 'may be empty'),
  'last-name': option('NAME', 'may be empty'),
  groups: option('NAMES', 'all groups of the user, separated by commas'),
};
/** Options for a new user. */
export const NEW_USER = {
  username: requiredOption('NAME', 'letter case does not matter'),
  email: requiredOption('ADDRESS', 'one account per address'),
  ...NAMES_AND_GROUPS,
  'super-admin': flag('all rights'),
} as const;
const PASSWORD_STDIN = flag('read the password from standard input');
const COLUMNS: Columns<ListedUser> = {
  ID: 'id',
  USERNAME: 'username',
  EMAIL: 'email',
  CREATED: 'created_at',
  'LAST SIGN-IN': 'last_sign_in_at',
  STATE: stateOf,
  FLAGS: flagsOf,
  GROUPS: ({ groups }) => groups.join(','),
};

export const USER_COMMANDS: readonly Command[] = [
  {
    name: 'user create',
    summary: 'Create a user; without --password-stdin, print a password valid for 24 hours',
    options: {
      ...NEW_USER,
      verified: flag('the address is confirmed'),
      'password-stdin': PASSWORD_STDIN,
    },
    run: (call) =>
      withPassword(call, async (password, areGenerated) => {
        const newUser = { ...readOptions(newUserSchema, call), password };
        const user = await inIdentity(call, async (database, hashing) =>
          orThrow(await createUser(database, COMMAND_LINE, newUser, { ...hashing, areGenerated })),
        );
        return `Created user "${user.username}" with id ${user.id}.`;
      }),
  },
  {
    name: 'user list',
    summary: 'List the users, oldest first',
    options: {
      username: option('NAME', 'only the user of this name'),
      email: option('ADDRESS', 'only the user of this address'),
      search: option('WORDS', 'parts of the username, address or names, or a group'),
      state: option('STATE', 'only active, invited or disabled users'),
      role: option('ROLE', 'only user or super_admin'),
      'second-factor': option('on|off', 'only with or without a second factor'),
      group: option('NAME', 'only the members of this group'),
      json,
    },
    async run(call) {
      const filter = readOptions(object(userFilter), call);
      const { rows } = await inIdentity(call, (database) => listUsers(database, ALL, filter));
      printRows(call, rows, COLUMNS, viewUser);
    },
  },
  {
    name: 'group list',
    summary: 'List the groups that have a member, with the number of users',
    options: { json },
    run: async (call) =>
      printRows(call, await inIdentity(call, listGroups), { GROUP: 'name', USERS: 'users' }),
  },
  {
    name: 'user show',
    summary: 'Show a user, by id, username or e-mail address',
    positionals: 'USER',
    options: { json },
    run: (call) => onUser(call, async (user) => printMembers(call, viewUser(user))),
  },
  {
    name: 'user set',
    summary: 'Change a user; omitted options stay unchanged',
    positionals: 'USER',
    options: {
      username: option('NAME', 'a new username'),
      email: option('ADDRESS', 'a new address'),
      ...NAMES_AND_GROUPS,
      enabled: option('true|false', 'false ends the sessions and suspends the keys'),
      verified: option('true|false', 'whether the address is confirmed'),
      'super-admin': option('true|false', 'whether the user has all rights'),
    },
    async run(call) {
      const change = readChange(userChangeSchema, call);
      const user = await onUser(call, ({ id }, database) =>
        changeUser(database, COMMAND_LINE, id, change),
      );
      return `Changed user "${user.username}" with id ${user.id}.${revokedKeysText(user)}`;
    },
  },
  {
    name: 'user password',
    summary:
      "Set a user's password and end their sessions; without --password-stdin, print one valid for 24 hours",
    positionals: 'USER',
    options: { 'password-stdin': PASSWORD_STDIN },
    run: (call) =>
      withPassword(call, async (password, areGenerated) => {
        const user = await onUser(call, ({ id }, database, hashing) =>
          setPassword(database, COMMAND_LINE, id, password, { ...hashing, areGenerated }),
        );
        return `Set the password of user "${user.username}"; the user's sessions have ended.`;
      }),
  },
  {
    name: 'user delete',
    summary: 'Delete a user; sessions end, keys are revoked, the name is free again',
    positionals: 'USER',
    async run(call) {
      const user = await onUser(call, ({ id }, database) => removeUser(database, COMMAND_LINE, id));
      return `Deleted user "${user.username}" with id ${user.id}.${revokedKeysText(user)}`;
    },
  },
  {
    name: 'user factors remove',
    summary: "Remove a user's second factors and recovery codes, and end their sessions",
    positionals: 'USER',
    run: (call) =>
      onUser(call, async ({ id, username }, database) => {
        const removed = (await removeFactors(database, COMMAND_LINE, id, 'all')) ?? 0;
        return removed === 0
          ? `User "${username}" has no second factor.`
          : `Removed ${counted(removed, 'second factor')} of user "${username}"; the user's sessions have ended.`;
      }),
  },
  {
    name: 'user unlock',
    summary: "Forget a user's failed logins and codes, so that the user can sign in at once",
    positionals: 'USER',
    run: (call) =>
      onUser(call, async (user, database) => {
        const cleared = await unlock(database, user);
        return cleared
          ? `Unlocked user "${user.username}": ${counted(cleared, 'limit')} cleared.`
          : `User "${user.username}" has no failed login that counts.`;
      }),
  },
];

export const inIdentity = databaseOf(settings, SCHEMA);

/** By id, username or e-mail address. @throws OperationFailed if there is no such user */
export async function findByName(database: Database, name: string): Promise<User> {
  const user = await findUserByName(database, name);
  if (user) return user;
  throw new OperationFailed('there is no user with this id or name; see: gatehouse user list');
}

/** The id that `--user` names, or null without it. A deleted user has an id but no name. */
export async function idOf(database: Database, { text }: Arguments) {
  const name = text('user');
  if (name === undefined) return null;
  const id = name.trim().toLowerCase();
  return isUuid(id) ? id : (await findByName(database, name)).id;
}

/**
 * The options that were given, by the members of a schema, whose names have `_` in place of `-`.
 */
function givenOptions<T>({ jsonSchema }: Schema<T>, { text, flag }: Arguments) {
  const members = Object.entries(jsonSchema.properties ?? {}).map(([member, { type }]) => {
    const name = member.replaceAll('_', '-');
    const given = text(name);
    if (type === 'boolean') return [member, flag(name) || booleanOf(given)];
    if (type === 'array' && given !== undefined) return [member, splitList(given)];
    return [member, given];
  });
  return Object.fromEntries(members.filter(([, given]) => given !== undefined));
}

/**
 * Reads the options that are named like the members of a schema, and checks them as the API checks
 * a body. Commas separate the items of a list: an empty text holds none.
 * @param more that stands for other options
 * @throws UsageError with every problem
 */
export const readOptions = <T>(schema: Schema<T>, call: Arguments, more: object = {}) =>
  orThrow(validate(schema, { ...givenOptions(schema, call), ...more }, 'invalid_body'));

/** As `readOptions`. @throws UsageError without an option, too */
export function readChange<T extends object>(schema: Schema<T>, call: Arguments) {
  const change = readOptions(schema, call);
  const isEmpty = Object.values(change).every((value) => value === undefined);
  if (isEmpty) throw new UsageError('name at least one option to change');
  return change;
}

/** Any other text stays as it is, and fails the check of the schema. */
function booleanOf(text: string | undefined) {
  if (text === 'true') return true;
  if (text === 'false') return false;
  return text;
}

/** Works on the user that the command names. */
export const onUser = <T>(
  call: Invocation,
  work: (
    user: User,
    database: Database,
    settings: settings.IdentitySettings,
  ) => Promise<T | Failure>,
): Promise<T> =>
  inIdentity(call, async (database, settings) => {
    const user = await findByName(database, call.first);
    return orThrow(await work(user, database, settings));
  });

/**
 * Clears the limits on the logins and codes of a user. The limit of a network is for all of its
 * users.
 * @returns how many limits had counted anything
 */
async function unlock(database: Database, { id, username }: User) {
  const secret = await readThrottleSecret(database);
  const name = accountKey(username);
  // The table stores only digests, so that the networks come from the audit trail.
  const addresses = await failedLoginAddresses(database, id);
  const keys = addresses.flatMap((address) => {
    const { pair, account } = loginLimits(secret, name, networkOf(address));
    return [pair.key, account.key, codeLimit(secret, id).key];
  });
  return clearLimits(database, id, keys);
}

/**
 * Works with the password from standard input, or a generated one, which it prints.
 * @param work returns what it did
 */
async function withPassword(
  call: Invocation,
  work: (password: string, areGenerated: boolean) => Promise<string>,
) {
  const isGiven = call.flag('password-stdin');
  const password = isGiven ? (await readInput(call)).replace(/\r?\n$/, '') : randomToken();
  call.note(await work(password, !isGiven));
  if (isGiven) return;
  call.note('Password (shown only once, expires in 24 hours unless the user changes it):');
  call.print(password);
}

function flagsOf({ super_admin: isAdmin, verified, second_factor }: ListedUser) {
  const flags = [isAdmin && 'super-admin', verified && 'verified', second_factor && '2fa'];
  return flags.filter(Boolean).join(',');
}
