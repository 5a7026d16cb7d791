import {
  type Arguments,
  type Command,
  flag,
  json,
  OperationFailed,
  option,
  type Terminal,
  UsageError,
} from './command.ts';
import { COMMANDS as LIMIT_COMMANDS, find, inIdentity } from './accounts.ts';
import { confirm, counted, ifConfirmed, orThrow, requireUuid } from './database.ts';
import { printMembers, printRows, readInput } from './terminal.ts';
import { isUuid } from '../crypto/text.ts';
import { randomToken } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import { Failure } from '../http/errors.ts';
import {
  decimal,
  object,
  oneOf,
  optional,
  type Shape,
  validate,
  withDefault,
} from '../http/shape.ts';
import { removeFactors } from '../identity/factors/store.ts';
import { createKey, newKeyShape } from '../identity/keys.ts';
import {
  type ApiKey,
  type AuditRecord,
  type User,
  viewAudit,
  viewKey,
  viewUser,
} from '../identity/model.ts';
import { COMMAND_LINE, EVENTS, listAudit } from '../identity/store/audit.ts';
import { findKeyById, listKeys, revokeKey } from '../identity/store/keys.ts';
import { endRestored } from '../identity/store/restored.ts';
import { type ChangedUser, listUsers } from '../identity/store/users.ts';
import {
  changeUser,
  createUser,
  type Hashing,
  newUserShape,
  removeUser,
  revokedKeysText,
  setPassword,
  userChangeShape,
} from '../identity/users.ts';
import { endedText } from '../identity/sessions.ts';

const all = { page: 1, limit: 2 ** 31 };
const auditLimit = withDefault(decimal({ min: 1, max: 10_000 }), 50);
const auditFilter = object({ event: optional(oneOf(...EVENTS)), limit: auditLimit });
const names = {
  'first-name': option('NAME', 'may be empty'),
  'last-name': option('NAME', 'may be empty'),
};
const passwordStdin = flag('read the password from standard input');

export const COMMANDS: readonly Command[] = [
  {
    name: 'user create',
    summary: 'Create a user; without --password-stdin, print a password valid for 24 hours',
    options: {
      username: { ...option('NAME', 'letter case does not matter'), required: true },
      email: { ...option('ADDRESS', 'one account per address'), required: true },
      ...names,
      'super-admin': flag('all rights'),
      verified: flag('mark the user as verified'),
      'password-stdin': passwordStdin,
    },
    run: (given, terminal) =>
      withPassword(given, terminal, async (password, areGenerated) => {
        const flags = { verified: given.flag('verified'), super_admin: given.flag('super-admin') };
        const newUser = read(newUserShape, { ...membersOf(given), ...flags, password });
        const user = await inIdentity(async (database, hashing) =>
          orThrow(await createUser(database, COMMAND_LINE, newUser, { ...hashing, areGenerated })),
        );
        return `Created user "${user.username}" with id ${user.id}.`;
      }),
  },
  {
    name: 'user list',
    summary: 'List the users, oldest first',
    options: { json },
    async run(given, terminal) {
      const { rows } = await inIdentity((database) => listUsers(database, all));
      const columns = ['ID', 'USERNAME', 'EMAIL', 'CREATED', 'FLAGS'];
      const cells = (user: User) => [
        user.id,
        user.username,
        user.email,
        user.created_at,
        flagsOf(user),
      ];
      printRows(given, terminal, rows, columns, cells, viewUser);
    },
  },
  {
    name: 'user show',
    summary: 'Show a user, by id or username',
    positionals: 'USER',
    options: { json },
    async run(given, terminal) {
      printMembers(
        given,
        terminal,
        viewUser(await inIdentity((database) => find(database, given.positionals[0]))),
      );
    },
  },
  {
    name: 'user set',
    summary: 'Change a user; options that are not given change nothing',
    positionals: 'USER',
    options: {
      username: option('NAME', 'a new username'),
      email: option('ADDRESS', 'a new address'),
      ...names,
      enabled: option('true|false', 'false ends the sessions and suspends the keys'),
      verified: option('true|false', 'whether the address was verified'),
      'super-admin': option('true|false', 'whether the user has all rights'),
    },
    async run(given, { note }) {
      // Neither "true" nor "false" fails the check of the shape.
      const flag = (name: string) =>
        ({ true: true, false: false })[given.text(name) ?? ''] ?? given.text(name);
      const flags = {
        enabled: flag('enabled'),
        verified: flag('verified'),
        super_admin: flag('super-admin'),
      };
      const change = read(userChangeShape, { ...membersOf(given), ...flags });
      const isEmpty = Object.values(change).every((value) => value === undefined);
      if (isEmpty) throw new UsageError('name at least one option to change');
      const user = await onUser(given, (id, database) =>
        changeUser(database, COMMAND_LINE, id, change),
      );
      note(`Changed user "${user.username}" with id ${user.id}.${revokedKeysText(user)}`);
    },
  },
  {
    name: 'user password',
    summary:
      "Set a user's password and end their sessions; without --password-stdin, print one valid for 24 hours",
    positionals: 'USER',
    options: { 'password-stdin': passwordStdin },
    run: (given, terminal) =>
      withPassword(given, terminal, async (password, areGenerated) => {
        const user = await onUser(given, (id, database, hashing) =>
          setPassword(database, COMMAND_LINE, id, password, { ...hashing, areGenerated }),
        );
        return `Set the password of user "${user.username}"; the user's sessions have ended.`;
      }),
  },
  {
    name: 'user delete',
    summary: 'Delete a user; sessions end, keys are revoked, the name is free again',
    positionals: 'USER',
    options: {},
    async run(given, { note }) {
      const user = await onUser(given, (id, database) => removeUser(database, COMMAND_LINE, id));
      note(`Deleted user "${user.username}" with id ${user.id}.${revokedKeysText(user)}`);
    },
  },
  {
    name: 'user factors remove',
    summary: "Remove a user's second factors and recovery codes, and end their sessions",
    positionals: 'USER',
    options: {},
    async run({ positionals: [name = ''] }, { note }) {
      const [user, removed] = await inIdentity(async (database) => {
        const found = await find(database, name);
        return [found, await removeFactors(database, COMMAND_LINE, found.id, 'all')] as const;
      });
      note(
        removed === 0
          ? `User "${user.username}" has no second factor.`
          : `Removed ${counted(removed, 'second factor')} of user "${user.username}"; the user's sessions have ended.`,
      );
    },
  },
  ...LIMIT_COMMANDS,
  {
    name: 'key create',
    summary: 'Create an API key and print it once',
    options: {
      user: option('USER', 'the user whose rights it has, by id or username'),
      'without-user': flag('may read users, read and revoke sessions, forward authentication'),
      name: option('NAME', 'what it is for; default empty'),
      'expires-at': option('TIME', 'such as 2030-01-31T12:00:00Z; default never'),
    },
    async run({ text, flag }, { print, note }) {
      const user = text('user');
      if ((user === undefined) !== flag('without-user'))
        throw new UsageError('give either --user or --without-user');
      const input = { name: text('name'), expires_at: text('expires-at') };
      const { name, expires_at: expiresAt = null } = read(newKeyShape, input);
      const key = await inIdentity(async (database) => {
        const userId = user === undefined ? null : (await find(database, user)).id;
        return orThrow(await createKey(database, COMMAND_LINE, { userId, expiresAt, name }));
      });
      note(`Created key "${key.name}" with id ${key.id}.\nKey (shown only once):`);
      print(key.key);
    },
  },
  {
    name: 'key list',
    summary: 'List the API keys, newest first, without the secret part',
    options: { user: option('USER', 'only the keys of this user, by id or username'), json },
    async run(given, terminal) {
      const { rows } = await inIdentity(async (database) =>
        listKeys(database, all, await idOf(database, given)),
      );
      const columns = [
        'ID',
        'KEY',
        'NAME',
        'USER',
        'CREATED BY',
        'CREATED',
        'LAST USED',
        'EXPIRES',
        'STATE',
      ];
      const cells = (key: ApiKey) => [
        key.id,
        `${key.key_prefix}…`,
        key.name,
        ownerOf(key),
        creatorOf(key),
        key.created_at,
        key.last_used_at,
        key.expires_at,
        stateOf(key),
      ];
      printRows(given, terminal, rows, columns, cells, viewKey);
    },
  },
  {
    name: 'key revoke',
    summary: 'Revoke an API key at once, on every replica',
    positionals: 'ID',
    options: {},
    async run({ positionals: [given = ''] }, { note }) {
      const id = requireUuid(given.toLowerCase(), ' from gatehouse key list');
      const count = await inIdentity(async (database) => {
        const key = await findKeyById(database, id);
        if (key) return revokeKey(database, COMMAND_LINE, key);
        throw new OperationFailed('there is no key with this id; see: gatehouse key list');
      });
      note(count === 1 ? `Revoked key ${id}.` : `Key ${id} was revoked before.`);
    },
  },
  {
    name: 'audit list',
    summary: 'List the audit trail, newest first',
    options: {
      user: option('USER', 'only what this user did or what was done to them; id or username'),
      event: option('EVENT', `only this kind: ${EVENTS.join(', ')}`),
      limit: option('NUMBER', 'number of entries, 1 to 10000; default 50'),
      json,
    },
    async run(given, terminal) {
      const { event = null, limit } = read(auditFilter, {
        event: given.text('event'),
        limit: given.text('limit'),
      });
      const { rows } = await inIdentity(async (database) =>
        listAudit(database, { page: 1, limit }, { userId: await idOf(database, given), event }),
      );
      const columns = ['TIME', 'EVENT', 'ABOUT USER', 'BY', 'IP', 'COUNT', 'DETAIL'];
      const cells = ({
        created_at: time,
        event,
        user_id: about,
        ip,
        count,
        detail,
        ...by
      }: AuditRecord) => [
        time,
        event,
        about,
        by.actor_id ?? by.key_id ?? by.via,
        ip,
        count,
        detail,
      ];
      printRows(given, terminal, rows, columns, cells, viewAudit);
    },
  },
  {
    name: 'restored identity',
    summary:
      'After a restore, end all sessions and API keys: some may have been revoked since the backup',
    options: { 'keep-keys': flag('keep the API keys'), confirm },
    async run(given, { note }) {
      const done = await inIdentity((database) =>
        ifConfirmed(given, database, async (sql) => {
          const { sessions, keys, codes } = await endRestored(sql, !given.flag('keep-keys'));
          const ended = `${endedText(sessions)} ended, ${counted(keys, 'API key')} revoked`;
          return codes === 0 ? ended : `${ended}, ${counted(codes, 'recovery code')} removed`;
        }),
      );
      const asBefore = 'Passwords, rights, second factors, and disabled and deleted users';
      note(`${done}.\n${asBefore} are as in the backup. Check them.`);
    },
  },
];

type UserWork = (
  id: string,
  database: Database,
  hashing: Hashing,
) => Promise<ChangedUser | Failure>;
const onUser = ({ positionals: [name] }: Arguments, work: UserWork): Promise<ChangedUser> =>
  inIdentity(async (database, hashing) =>
    orThrow(await work((await find(database, name)).id, database, hashing)),
  );

/** The id that `--user` names. A deleted user has an id but no name. @returns null without the option */
async function idOf(database: Database, { text }: Arguments): Promise<string | null> {
  const name = text('user');
  if (name === undefined) return null;
  return isUuid(name.toLowerCase()) ? name.toLowerCase() : (await find(database, name)).id;
}

const membersOf = ({ text }: Arguments) => ({
  username: text('username'),
  email: text('email'),
  first_name: text('first-name'),
  last_name: text('last-name'),
});

function read<T>(shape: Shape<T>, input: Readonly<Record<string, unknown>>): T {
  const given = Object.fromEntries(
    Object.entries(input).filter(([, value]) => value !== undefined),
  );
  const checked = validate(shape, given, '');
  return orThrow(
    checked.ok ? checked.value : new Failure('invalid_body', { fields: checked.errors }),
  );
}

/** Works with the password from standard input, or a generated one, which it prints. @param work returns what it did */
async function withPassword(
  { flag }: Arguments,
  { note, print }: Terminal,
  work: (password: string, areGenerated: boolean) => Promise<string>,
): Promise<void> {
  const isGiven = flag('password-stdin');
  const password = isGiven ? (await readInput()).replace(/\r?\n$/, '') : randomToken();
  note(await work(password, !isGiven));
  if (isGiven) return;
  note('Password (shown only once, expires in 24 hours unless the user changes it):');
  print(password);
}

const flagsOf = ({ super_admin: isAdmin, verified, enabled }: User): string =>
  [isAdmin ? 'super-admin' : '', verified ? 'verified' : '', enabled ? '' : 'disabled']
    .filter(Boolean)
    .join(',');
const stateOf = ({ revoked, expired, suspended, user }: ApiKey): string =>
  revoked
    ? 'revoked'
    : expired
      ? 'expired'
      : suspended
        ? `${user ? 'user' : 'creator'} disabled`
        : 'live';
/** A deleted user's name is erased after some time. */
const ownerOf = (key: ApiKey): string => key.user?.username || key.user_id || '–';
const creatorOf = (key: ApiKey): string => key.created_by_username || key.created_by || 'command';
