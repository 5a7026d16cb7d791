import { json, orThrow, printTable, withDatabase } from './administration.ts';
import { type Arguments, type Command, OperationFailed, type Option, type Terminal, UsageError } from './command.ts';
import { hashPassword } from '../crypto/password.ts';
import { isUuid } from '../crypto/text.ts';
import { randomToken } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import { Failure } from '../http/errors.ts';
import { type Shape, validate } from '../http/shape.ts';
import { createKey, newKeyShape } from '../identity/keys.ts';
import { MIGRATIONS, SCHEMA } from '../identity/migrations.ts';
import type { Page, Part } from '../identity/paging.ts';
import { accountKey, isUsable, type User } from '../identity/rules.ts';
import * as settings from '../identity/settings.ts';
import { viewAudit, viewKey, viewUser } from '../identity/shapes.ts';
import { COMMAND_LINE, EVENTS, listAudit } from '../identity/store/audit.ts';
import { findKeyById, listKeys, revokeKey } from '../identity/store/keys.ts';
import { eachUser, findAccount, findUser } from '../identity/store/users.ts';
import { readServiceSettings } from '../settings.ts';
import { changeUser, createUser, newUserShape, type Passwords, removeUser, setPassword, userChangeShape } from '../identity/users.ts';

const ofUser = { shown: 'USER', least: 1, most: 1 } as const;
const passwordStdin: Option = { type: 'boolean', help: 'read the password from standard input' };
const trueOrFalse = (help: string): Option => ({ type: 'string', value: 'true|false', help });

export const COMMANDS: readonly Command[] = [
  {
    name: 'user create',
    summary: 'Create a user; without --password-stdin a password is made and printed once',
    options: {
      username: { type: 'string', value: 'NAME', required: true, help: 'letter case does not matter' },
      email: { type: 'string', value: 'ADDRESS', required: true, help: 'one account per address' },
      'first-name': { type: 'string', value: 'NAME', help: 'empty if left out' },
      'last-name': { type: 'string', value: 'NAME', help: 'empty if left out' },
      'super-admin': { type: 'boolean', help: 'may do everything' },
      verified: { type: 'boolean', help: 'mark the user as verified' },
      'password-stdin': passwordStdin,
    },
    async run(given, terminal) {
      const { password, show } = await passwordFrom(given, terminal);
      const input = { ...membersOf(given), verified: given.flag('verified'), super_admin: given.flag('super-admin'), password };
      const user = await inIdentity(async (database, passwords) => orThrow('user create', await createUser(database, COMMAND_LINE, read('user create', newUserShape, input), passwords)));
      terminal.note(`Created user "${user.username}" with id ${user.id}.`);
      show();
    },
  },
  {
    name: 'user list',
    summary: 'List the users, oldest first',
    options: { json },
    async run({ flag }, { print }) {
      const users: User[] = [];
      await inIdentity(async (database) => {
        for await (const batch of eachUser(database)) users.push(...batch);
      });
      if (flag('json')) return print(JSON.stringify(users.map(viewUser)));
      printTable(print, ['ID', 'USERNAME', 'EMAIL', 'CREATED', 'FLAGS'], users.map((user) => [user.id, user.username, user.email, user.created_at.toISOString(), flagsOf(user)]));
    },
  },
  {
    name: 'user show',
    summary: 'Show a user, by id or username',
    positionals: ofUser,
    options: { json },
    async run({ flag, positionals: [name = ''] }, { print }) {
      const user = viewUser(await inIdentity((database) => find(database, name)));
      if (flag('json')) return print(JSON.stringify(user));
      for (const [member, value] of Object.entries(user)) print(`${member.padEnd(12)} ${value ?? '–'}`);
    },
  },
  {
    name: 'user set',
    summary: 'Change a user; what is not named stays as it is',
    positionals: ofUser,
    options: {
      username: { type: 'string', value: 'NAME', help: 'a new username' },
      email: { type: 'string', value: 'ADDRESS', help: 'a new address' },
      'first-name': { type: 'string', value: 'NAME', help: 'may be empty' },
      'last-name': { type: 'string', value: 'NAME', help: 'may be empty' },
      enabled: trueOrFalse('false ends the sessions and lets nobody in'),
      verified: trueOrFalse('whether the address is known to be theirs'),
      'super-admin': trueOrFalse('whether the user may do everything'),
    },
    async run(given, { note }) {
      const flags = ['enabled', 'verified', 'super-admin'].map((name) => [name.replace('-', '_'), booleanOf(name, given.text(name))]);
      const input = { ...membersOf(given), ...Object.fromEntries(flags) };
      if (Object.values(input).every((value) => value === undefined)) throw new UsageError('user set: name at least one option to change');
      const change = read('user set', userChangeShape, input);
      const user = await inIdentity(async (database) => orThrow('user set', await changeUser(database, COMMAND_LINE, (await find(database, given.positionals[0] ?? '')).id, change)));
      note(`Changed user "${user.username}" with id ${user.id}.`);
    },
  },
  {
    name: 'user password',
    summary: "Set a user's password and end the user's sessions; without --password-stdin one is made and printed once",
    positionals: ofUser,
    options: { 'password-stdin': passwordStdin },
    async run(given, terminal) {
      const { password, show } = await passwordFrom(given, terminal);
      const user = await inIdentity(async (database, passwords) => {
        const { id } = await find(database, given.positionals[0] ?? '');
        return orThrow('user password', await setPassword(database, COMMAND_LINE, id, password, passwords));
      });
      terminal.note(`Set the password of user "${user.username}"; the user's sessions have ended.`);
      show();
    },
  },
  {
    name: 'user delete',
    summary: 'Delete a user; the sessions end, the keys are revoked, the name is free again',
    positionals: ofUser,
    options: {},
    async run({ positionals: [name = ''] }, { note }) {
      const user = await inIdentity(async (database) => orThrow('user delete', await removeUser(database, COMMAND_LINE, (await find(database, name)).id)));
      note(`Deleted user "${user.username}" with id ${user.id}.`);
    },
  },
  {
    name: 'key create',
    summary: 'Create an API key and print it once',
    options: {
      user: { type: 'string', value: 'USER', help: 'whose rights it has, by id or username' },
      'without-user': { type: 'boolean', help: 'for a program: reads users and sessions, revokes sessions, passes forward authentication' },
      name: { type: 'string', value: 'NAME', help: 'what it is for; empty if left out' },
      'expires-at': { type: 'string', value: 'TIME', help: 'such as 2030-01-31T12:00:00Z; never if left out' },
    },
    async run({ text, flag }, { print, note }) {
      const name = text('user');
      if ((name === undefined) !== flag('without-user')) throw new UsageError('key create: give either --user or --without-user');
      const wish = read('key create', newKeyShape, { name: text('name'), expires_at: text('expires-at') });
      const key = await inIdentity(async (database) => {
        const userId = name === undefined ? null : (await find(database, name)).id;
        return orThrow('key create', await createKey(database, COMMAND_LINE, { userId, expiresAt: wish.expires_at ?? null, name: wish.name }));
      });
      note(`Created key "${key.name}" with id ${key.id}.`);
      note('The key on standard output is shown this one time:');
      print(key.key);
    },
  },
  {
    name: 'key list',
    summary: 'List the API keys, newest first; never the whole keys',
    options: { user: { type: 'string', value: 'USER', help: 'only the keys of this user, by id or username' }, json },
    async run({ text, flag }, { print }) {
      const name = text('user');
      const rows = await inIdentity(async (database) => {
        const userId = name === undefined ? null : await idOf(database, name);
        return everything((page) => listKeys(database, page, userId));
      });
      if (flag('json')) return print(JSON.stringify(rows.map(viewKey)));
      const state = (key: (typeof rows)[number]) => (key.revoked ? 'revoked' : key.expired ? 'expired' : isUsable(key) ? 'live' : 'user disabled');
      printTable(
        print,
        ['ID', 'KEY', 'NAME', 'USER', 'CREATED', 'LAST USED', 'EXPIRES', 'STATE'],
        rows.map((key) => [
          key.id, `${key.key_prefix}…`, key.name, key.user?.username ?? '–',
          key.created_at.toISOString(), key.last_used_at?.toISOString() ?? '–', key.expires_at?.toISOString() ?? '–', state(key),
        ]),
      );
    },
  },
  {
    name: 'key revoke',
    summary: 'Revoke an API key at once, on every replica',
    positionals: { shown: 'ID', least: 1, most: 1 },
    options: {},
    async run({ positionals: [given = ''] }, { note }) {
      const id = given.toLowerCase();
      if (!isUuid(id)) throw new UsageError('key revoke: ID must be a UUID, as gatehouse key list shows it');
      const count = await inIdentity(async (database) => {
        if (!(await findKeyById(database, id))) throw new OperationFailed('there is no key with this id; see: gatehouse key list');
        return revokeKey(database, { event: 'key.revoked', actor: COMMAND_LINE }, id);
      });
      note(count === 1 ? `Revoked key ${id}.` : `Key ${id} was revoked before.`);
    },
  },
  {
    name: 'audit list',
    summary: 'List what happened, newest first',
    options: {
      user: { type: 'string', value: 'USER', help: 'only what this user did, or what was done to them; by id or username' },
      event: { type: 'string', value: 'EVENT', help: `only this kind: ${EVENTS.join(', ')}` },
      limit: { type: 'string', value: 'NUMBER', help: 'at most so many lines (1 to 10000); 50 if left out' },
      json,
    },
    async run({ text, flag }, { print }) {
      const [name, kind, most = '50'] = [text('user'), text('event'), text('limit')];
      const event = EVENTS.find((one) => one === kind) ?? null;
      if (kind !== undefined && event === null) throw new UsageError(`audit list: event must be one of ${EVENTS.join(', ')}`);
      const limit = /^[0-9]{1,5}$/.test(most) ? Number(most) : 0;
      if (limit < 1 || limit > 10_000) throw new UsageError('audit list: limit must be a whole number from 1 to 10000');
      const { rows } = await inIdentity(async (database) => {
        const userId = name === undefined ? null : await idOf(database, name);
        return listAudit(database, { page: 1, limit }, { userId, event });
      });
      if (flag('json')) return print(JSON.stringify(rows.map(viewAudit)));
      printTable(
        print,
        ['TIME', 'EVENT', 'ABOUT USER', 'BY', 'IP', 'COUNT', 'DETAIL'],
        rows.map((row) => [row.created_at.toISOString(), row.event, row.user_id ?? '–', row.actor_id ?? row.key_id ?? row.via, row.ip ?? '–', String(row.count), row.detail]),
      );
    },
  },
];

async function inIdentity<T>(work: (database: Database, passwords: Passwords) => Promise<T>): Promise<T> {
  const config = readServiceSettings('identity', settings);
  const { minLength, cost } = config.passwords;
  return withDatabase('identity', config.database, SCHEMA, MIGRATIONS, (database) => work(database, { minLength, hash: (password) => hashPassword(password, cost) }));
}

/** By id or username. */
async function find(database: Database, name: string): Promise<User> {
  const id = name.toLowerCase();
  const user = isUuid(id) ? await findUser(database, id) : await findAccount(database, accountKey(name));
  if (!user) throw new OperationFailed('there is no user with this id or name; see: gatehouse user list');
  return user;
}

/** The same where deleted users count, too: they have no name any more, but an id. */
const idOf = async (database: Database, name: string): Promise<string> => (isUuid(name.toLowerCase()) ? name.toLowerCase() : (await find(database, name)).id);

const membersOf = ({ text }: Arguments) => ({ username: text('username'), email: text('email'), first_name: text('first-name'), last_name: text('last-name') });

function read<T>(command: string, shape: Shape<T>, input: Readonly<Record<string, unknown>>): T {
  const given = Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined));
  const taken = validate(shape, given, '');
  return orThrow(command, taken.ok ? taken.value : new Failure('invalid_body', { fields: taken.errors }));
}

function booleanOf(name: string, text: string | undefined): boolean | undefined {
  if (text === undefined) return undefined;
  if (text !== 'true' && text !== 'false') throw new UsageError(`user set: ${name} must be true or false`);
  return text === 'true';
}

/** The password of standard input, or a new one, which `show` prints. */
async function passwordFrom({ flag }: Arguments, { readInput, note, print }: Terminal): Promise<{ password: string; show: () => void }> {
  if (flag('password-stdin')) return { password: (await readInput()).replace(/\r?\n$/, ''), show: () => {} };
  const password = randomToken();
  const show = () => {
    note('The password on standard output is shown this one time:');
    print(password);
  };
  return { password, show };
}

const flagsOf = (user: User): string =>
  [user.super_admin ? 'super-admin' : '', user.verified ? 'verified' : '', user.enabled ? '' : 'disabled'].filter(Boolean).join(',');

async function everything<Row>(list: (page: Page) => Promise<Part<Row>>): Promise<Row[]> {
  const all: Row[] = [];
  for (let page = 1; ; page += 1) {
    const { rows } = await list({ page, limit: 100 });
    all.push(...rows);
    if (rows.length < 100) return all;
  }
}
