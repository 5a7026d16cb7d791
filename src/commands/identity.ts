import {
  type Command,
  flag,
  json,
  OperationFailed,
  option,
  type Terminal,
  UsageError,
} from './command.ts';
import { CLIENT_COMMANDS } from './clients.ts';
import { counted, orThrow, requireUuid, restoredCommand } from './database.ts';
import { SESSION_COMMANDS } from './sessions.ts';
import { IMPORT_COMMANDS } from './user-import.ts';
import { type Columns, printMembers, printRows } from './terminal.ts';
import {
  ALL,
  findByName,
  idOf,
  inIdentity,
  NEW_USER,
  onUser,
  readOptions,
  USER_COMMANDS,
} from './users.ts';
import { decimal, object, oneOf, optional, withDefault } from '../platform/http/route/schema.ts';
import { createKey, madeText, newKeySchema, rightsText } from '../identity/keys.ts';
import { type ApiKey, KEY_RIGHTS, viewAudit, viewKey } from '../identity/model.ts';
import { endedText } from '../identity/sessions.ts';
import type * as settings from '../identity/settings.ts';
import { createLink, hoursOf, makeLink } from '../identity/signin/links.ts';
import { COMMAND_LINE, EVENTS } from '../identity/store/audit.ts';
import { type ListedAudit, listAudit } from '../identity/store/lists.ts';
import { findKeyById, listKeys, revokeKey } from '../identity/store/keys.ts';
import { endRestored } from '../identity/store/session-ends.ts';
import { revokeLink } from '../identity/store/signin/links.ts';
import { secureAccount } from '../identity/secure.ts';
import { createUser, newUserSchema } from '../identity/users.ts';

const auditFilter = object({
  event: optional(oneOf(...EVENTS)),
  limit: withDefault(decimal({ min: 1, max: 10_000 }), 50),
});

const KEY_COLUMNS: Columns<ApiKey> = {
  ID: 'id',
  KEY: (key) => `${key.key_prefix}…`,
  NAME: 'name',
  // A deleted user's name is erased after some time.
  USER: (key) => key.user?.username || key.user_id,
  'CREATED BY': (key) => key.created_by_username || key.created_by || 'command',
  MAY: rightsText,
  CREATED: 'created_at',
  'LAST USED': 'last_used_at',
  EXPIRES: 'expires_at',
  STATE: stateOf,
};
/** A deleted user's name is erased after some time. */
const AUDIT_COLUMNS: Columns<ListedAudit> = {
  TIME: 'created_at',
  EVENT: 'event',
  'ABOUT USER': (entry) => entry.subject || entry.user_id,
  BY: (entry) => entry.actor || (entry.actor_id ?? entry.via),
  // Who made a key may be another than the user whose rights it has.
  KEY: (entry) => entry.key_name || entry.key_id,
  'KEY BY': (entry) => entry.key_id && (entry.key_creator || (entry.key_created_by ?? 'command')),
  IP: 'ip',
  COUNT: 'count',
  DETAIL: 'detail',
};

export const COMMANDS: readonly Command[] = [
  ...USER_COMMANDS,
  ...IMPORT_COMMANDS,
  ...SESSION_COMMANDS,
  {
    name: 'user invite',
    summary: 'Create a user without a password, and print a link with which they choose one',
    options: { ...NEW_USER, unconfirmed: flag('the address is not confirmed') },
    async run(call) {
      const newUser = readOptions(newUserSchema, call, { verified: !call.flag('unconfirmed') });
      await inIdentity(call, async (database, settings) => {
        const portal = portalOf(settings);
        const { link, insert } = createLink(portal);
        const created = await createUser(database, COMMAND_LINE, newUser, settings, insert);
        const { username, id } = orThrow(created);
        call.note(`Created user "${username}" with id ${id}.`);
        printLink(call, link, portal);
      });
    },
  },
  {
    name: 'user link',
    summary: 'Print a link with which a user chooses a new password; it replaces the earlier one',
    positionals: 'USER',
    options: {
      'remove-factors': flag('also remove the second factors (the link then does not ask for one)'),
      revoke: flag('end the current link, without a new one'),
    },
    run: (call) =>
      onUser(call, async ({ id, username }, database, settings) => {
        if (call.flag('revoke')) {
          const count = await revokeLink(database, COMMAND_LINE, id);
          const state = count === 1 ? 'Ended the link of user' : 'There is no open link of user';
          return call.note(`${state} "${username}".`);
        }
        const portal = portalOf(settings);
        const removes = call.flag('remove-factors');
        const { link } = orThrow(await makeLink(database, portal, COMMAND_LINE, id, removes));
        const factors = removes ? ', and removes the second factors' : '';
        call.note(`With this link, user "${username}" chooses a new password${factors}.`);
        return printLink(call, link, portal);
      }),
  },
  {
    name: 'user secure',
    summary:
      'After a theft, end sessions, keys, factors and the password of a user, and print a link',
    positionals: 'USER',
    options: { json },
    run: (call) =>
      onUser(call, async ({ id, username }, database, { portal }) => {
        const invitation = portal && createLink(portal);
        const secured = await secureAccount(database, COMMAND_LINE, id, invitation);
        const { data } = orThrow(secured);
        if (call.flag('json')) return printMembers(call, data);
        call.note(`Secured the account of user "${username}". ${data.message}`);
        if (portal && data.link) return printLink(call, data.link, portal);
        return call.note(`To give the user a new one: gatehouse user password ${username}`);
      }),
  },
  {
    name: 'key create',
    summary: 'Create an API key and print it once',
    options: {
      user: option('USER', 'the user whose rights it has, by id, username or e-mail address'),
      'without-user': flag(
        'a key without a user; without --rights, it has verify, read and revoke',
      ),
      name: option('NAME', 'what it is for; default empty'),
      groups: option('NAMES', 'of a key without a user, separated by commas'),
      rights: option('NAMES', `only these: ${KEY_RIGHTS.join(', ')}`),
      scopes: option('NAMES', 'for programs, such as orders:read,orders:write'),
      'provision-groups': option('NAMES', 'which a key with provision may give and take'),
      'expires-at': option('TIME', 'such as 2030-01-31T12:00:00Z; default never'),
    },
    async run(call) {
      const user = call.text('user');
      if ((user === undefined) !== call.flag('without-user'))
        throw new UsageError('give either --user or --without-user');
      const input = readOptions(newKeySchema, call);
      const key = await inIdentity(call, async (database) => {
        const user_id = user === undefined ? null : (await findByName(database, user)).id;
        return orThrow(await createKey(database, COMMAND_LINE, { ...input, user_id }));
      });
      call.note(`Created key "${key.name}" with id ${key.id}.`);
      call.note('Key (shown only once):');
      call.print(key.key);
    },
  },
  {
    name: 'key list',
    summary: 'List the API keys, newest first, without the secret part',
    options: {
      user: option('USER', 'only the keys of this user, by id, username or e-mail address'),
      json,
    },
    async run(call) {
      const { rows } = await inIdentity(call, async (database) =>
        listKeys(database, ALL, await idOf(database, call)),
      );
      printRows(call, rows, KEY_COLUMNS, viewKey);
    },
  },
  {
    name: 'key revoke',
    summary: 'Revoke an API key at once, on every replica',
    positionals: 'ID',
    options: { 'with-made': flag('and the keys that it made') },
    async run(call) {
      const id = requireUuid(call.first.toLowerCase(), ' from gatehouse key list');
      const { own, made } = await inIdentity(call, async (database) => {
        const key = await findKeyById(database, id);
        if (key) return revokeKey(database, COMMAND_LINE, key, call.flag('with-made'));
        throw new OperationFailed('there is no key with this id; see: gatehouse key list');
      });
      const done = own === 1 ? `Revoked key ${id}.` : `Key ${id} was revoked before.`;
      return `${done}${madeText(made)}`;
    },
  },
  {
    name: 'audit list',
    summary: 'List the audit trail, newest first',
    options: {
      user: option(
        'USER',
        'only what this user did or what was done to them; id, username or e-mail address',
      ),
      event: option('EVENT', `only this kind: ${EVENTS.join(', ')}`),
      limit: option('NUMBER', 'number of entries, 1 to 10000; default 50'),
      json,
    },
    async run(call) {
      const { event, limit } = readOptions(auditFilter, call);
      const { rows } = await inIdentity(call, async (database) => {
        const listed = await listAudit(
          database,
          { page: 1, limit },
          { user: call.text('user'), event },
        );
        // A deleted user has entries, and a name that nobody has is an error.
        if (listed.total === 0) await idOf(database, call);
        return listed;
      });
      printRows(call, rows, AUDIT_COLUMNS, viewAudit);
    },
  },
  ...CLIENT_COMMANDS,
  restoredCommand(
    inIdentity,
    {
      name: 'restored identity',
      summary:
        'After a restore, end all sessions and API keys: some may have been revoked since the backup',
      options: { 'keep-keys': flag('keep the API keys') },
    },
    async (sql, call) => {
      const { sessions, keys, codes } = await endRestored(sql, !call.flag('keep-keys'));
      const ended = `${endedText(sessions)} ended, ${counted(keys, 'API key')} revoked`;
      return codes === 0 ? ended : `${ended}, ${counted(codes, 'recovery code')} removed`;
    },
    '\nPasswords, rights, second factors, and disabled and deleted users are as in the backup. Check them. With OIDC=on, run "gatehouse oidc rotate --now".',
  ),
];

function stateOf({ revoked, expired, suspended, user }: ApiKey) {
  if (revoked) return 'revoked';
  if (expired) return 'expired';
  if (!suspended) return 'live';
  return user ? 'user disabled' : 'creator disabled';
}

function portalOf({ portal }: settings.IdentitySettings) {
  if (portal) return portal;
  throw new OperationFailed(
    'the link opens a sign-in page; set SIGNIN_PAGES=on and SIGNIN_ORIGIN as for the service',
  );
}

function printLink({ note, print }: Terminal, link: string, portal: settings.Portal) {
  note(`Link (shown only once, works once, within ${hoursOf(portal)} hours):`);
  print(link);
}
