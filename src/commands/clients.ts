import {
  type Command,
  flag,
  type Invocation,
  json,
  OperationFailed,
  option,
  requiredOption,
  UsageError,
} from './command.ts';
import { type Columns, printMembers, printRows, readDuration, readInput } from './terminal.ts';
import { inIdentity, readChange, readOptions } from './users.ts';
import type { Database } from '../platform/db/pool.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import {
  clientChangeSchema,
  createSecret,
  newClientSchema,
  secretProblem,
} from '../identity/oidc/clients.ts';
import { createSealedKey } from '../identity/oidc/keys.ts';
import type { IdentitySettings } from '../identity/settings.ts';
import { COMMAND_LINE } from '../identity/store/audit.ts';
import * as clients from '../identity/store/oidc/clients.ts';
import { rotateKey } from '../identity/store/oidc/keys.ts';

/** Programs at which users sign in by OpenID Connect. */

const COLUMNS: Columns<clients.Client> = {
  ID: 'id',
  NAME: 'name',
  GROUPS: ({ groups }) => groups.join(',') || 'all users',
  REDIRECT: ({ redirect }) => redirect.join(' '),
  CREATED: 'created_at',
  STATE: ({ enabled }) => (enabled ? 'enabled' : 'disabled'),
};

const OPTIONS = {
  'logout-uri': option('ADDRESSES', 'where the program may send browsers after a sign-out'),
  'backchannel-uri': option('ADDRESS', 'of the program, told when a session ends; may be empty'),
  groups: option('NAMES', 'only for members of one of these groups, separated by commas'),
  'id-token-seconds': option('SECONDS', 'how long an ID token is valid, 60 to 86400; default 600'),
};
const NEW = {
  'without-pkce': flag('for a program that cannot use PKCE'),
  'no-consent': flag('do not ask the person at the first sign-in'),
  refresh: flag('the program may get refresh tokens'),
  'second-factor': flag('only with a second factor'),
  public: flag('a program that cannot keep a secret, such as one on a telephone'),
  'if-missing': flag('change nothing if the program exists'),
};
const CHANGES = {
  pkce: option('BOOLEAN', 'false for a program that cannot use PKCE'),
  consent: option('BOOLEAN', 'false to not ask the person at the first sign-in'),
  refresh: option('BOOLEAN', 'true for a program that may get refresh tokens'),
  'second-factor': option('BOOLEAN', 'true to require a second factor'),
};
const NAME = option('NAME', 'as shown to the person who signs in');
const REDIRECT = option('ADDRESSES', 'to which sign-ins return, exactly, separated by commas');
const SECRET_STDIN = flag('read the secret from standard input');

export const CLIENT_COMMANDS: readonly Command[] = [
  {
    name: 'client create',
    summary: 'Register a program for OpenID Connect, and print its secret once',
    options: {
      id: requiredOption('ID', 'how the program names itself'),
      name: { ...NAME, required: true },
      redirect: { ...REDIRECT, required: true },
      ...OPTIONS,
      ...NEW,
      'secret-stdin': SECRET_STDIN,
    },
    async run(call) {
      const client = readOptions(newClientSchema, call, {
        pkce: !call.flag('without-pkce'),
        consent: !call.flag('no-consent'),
        refresh: call.flag('refresh'),
        second_factor: call.flag('second-factor'),
      });
      if (call.flag('public') && call.flag('secret-stdin'))
        throw new UsageError('a program with --public has no secret');
      const secret = call.flag('public') ? null : await readSecret(call);
      const settings = await inIdentity(call, async (database, settings) => {
        const isNew = await clients.insertClient(database, COMMAND_LINE, client, secret);
        if (isNew || call.flag('if-missing')) return isNew ? settings : null;
        throw new OperationFailed(`there is a program "${client.id}"; see: gatehouse client list`);
      });
      if (!settings) return `Program "${client.id}" exists. Nothing was changed.`;
      call.note(`Registered program "${client.id}".`);
      if (settings.portal) call.note(`Issuer: ${settings.portal.origin}`);
      if (secret !== null) printSecret(call, secret);
      return undefined;
    },
  },
  {
    name: 'client list',
    summary: 'List the programs of OpenID Connect',
    options: { json },
    run: async (call) => printRows(call, await inIdentity(call, clients.listClients), COLUMNS),
  },
  {
    name: 'client show',
    summary: 'Show a program of OpenID Connect',
    positionals: 'ID',
    options: { json },
    run: async (call) => printMembers(call, await onClient(call, clients.findClient)),
  },
  {
    name: 'client set',
    summary: 'Change what is registered of a program',
    positionals: 'ID',
    options: {
      name: NAME,
      redirect: REDIRECT,
      ...OPTIONS,
      ...CHANGES,
    },
    async run(call) {
      const change = readChange(clientChangeSchema, call);
      await onClient(call, (database, id) =>
        clients.updateClient(database, COMMAND_LINE, id, change),
      );
      return `Changed program "${call.first}".`;
    },
  },
  {
    name: 'client secret',
    summary: 'Give a program another secret; the old one stays valid for a while',
    positionals: 'ID',
    options: {
      'secret-stdin': SECRET_STDIN,
      overlap: option('TIME', 'how long the old one stays valid; default 24h'),
    },
    async run(call) {
      const overlap = readDuration(call, 'overlap') ?? DAY_SECONDS;
      const secret = await readSecret(call);
      await onClient(
        call,
        (database, id) => clients.replaceSecret(database, COMMAND_LINE, id, secret, overlap),
        'there is no program with this id that has a secret',
      );
      call.note(`Replaced the secret. The old one stays valid for ${overlap} seconds.`);
      printSecret(call, secret);
    },
  },
  ...(['enable', 'disable'] as const).map((verb): Command => ({
    name: `client ${verb}`,
    summary:
      verb === 'enable'
        ? 'Let users sign in at a program again'
        : 'Let nobody sign in at a program; its tokens end with the next request',
    positionals: 'ID',
    async run(call) {
      const change = { enabled: verb === 'enable' };
      await onClient(call, (database, id) =>
        clients.updateClient(database, COMMAND_LINE, id, change),
      );
      return `Program "${call.first}" is ${verb}d.`;
    },
  })),
  {
    name: 'client delete',
    summary: 'Delete a program, with all that users have allowed it',
    positionals: 'ID',
    async run(call) {
      await onClient(call, (database, id) => clients.deleteClient(database, COMMAND_LINE, id));
      return `Deleted program "${call.first}".`;
    },
  },
  {
    name: 'oidc rotate',
    summary: 'Create another key for ID tokens, which signs after an hour',
    options: { now: flag('end the earlier keys at once: ID tokens that they signed fail') },
    run: (call) =>
      inIdentity(call, async (database, settings) => {
        const isNow = call.flag('now');
        const key = await createSealedKey(secretOf(settings));
        await rotateKey(database, key, isNow);
        return isNow
          ? 'Created a key, and removed the others. Every process signs with it within a minute.'
          : 'Created a key. It signs after an hour, when programs know it.';
      }),
  },
];

/**
 * @param work finds or changes the program that the command names
 * @throws OperationFailed if there is none
 */
async function onClient<T>(
  call: Invocation,
  work: (database: Database, id: string) => Promise<T | null>,
  problem = 'there is no program with this id',
): Promise<T> {
  const done = await inIdentity(call, (database) => work(database, call.first));
  if (done) return done;
  throw new OperationFailed(`${problem}; see: gatehouse client list`);
}

/** @throws UsageError for a secret that could be guessed or misread */
async function readSecret(call: Invocation) {
  if (!call.flag('secret-stdin')) return createSecret();
  const secret = (await readInput(call)).replace(/\r?\n$/, '');
  const problem = secretProblem(secret);
  if (problem !== null) throw new UsageError(problem);
  return secret;
}

function printSecret(call: Invocation, secret: string) {
  if (call.flag('secret-stdin')) return;
  call.note('Secret (shown only once):');
  call.print(secret);
}

function secretOf({ factorSecrets }: IdentitySettings) {
  const [secret] = factorSecrets;
  if (secret !== undefined) return secret;
  throw new OperationFailed('the key is sealed under IDENTITY_SECRET; set it as for the service');
}
