import {
  type Command,
  flag,
  type Invocation,
  json,
  OperationFailed,
  option,
  UsageError,
} from './command.ts';
import { orThrow } from './database.ts';
import { type Columns, printMembers, printRows, readDuration, readInput } from './terminal.ts';
import { givenOptions, inIdentity } from './users.ts';
import type { Database } from '../platform/db/pool.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import {
  changedClient,
  clientSchema,
  createSecret,
  newClient,
  secretProblem,
} from '../identity/oidc/clients.ts';
import { createSealedKey } from '../identity/oidc/keys.ts';
import type { IdentitySettings } from '../identity/settings.ts';
import { COMMAND_LINE } from '../identity/store/audit.ts';
import {
  type Client,
  deleteClient,
  findClient,
  insertClient,
  listClients,
  replaceSecret,
  updateClient,
} from '../identity/store/oidc/clients.ts';
import { rotateKey } from '../identity/store/oidc/keys.ts';

/** Programs at which users sign in by OpenID Connect. */

const COLUMNS: Columns<Client> = {
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
      id: { ...option('ID', 'how the program names itself'), required: true },
      name: { ...NAME, required: true },
      redirect: { ...REDIRECT, required: true },
      ...OPTIONS,
      ...NEW,
      'secret-stdin': SECRET_STDIN,
    },
    async run(call) {
      const pkce = !call.flag('without-pkce');
      const consent = !call.flag('no-consent');
      const client = orThrow(newClient({ ...givenOptions(clientSchema, call), pkce, consent }));
      if (call.flag('public') && call.flag('secret-stdin'))
        throw new UsageError('a program with --public has no secret');
      const secret = call.flag('public') ? null : await readSecret(call);
      const settings = await inIdentity(call, async (database, settings) => {
        const isNew = await insertClient(database, COMMAND_LINE, client, secret);
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
    run: async (call) => printRows(call, await inIdentity(call, listClients), COLUMNS),
  },
  {
    name: 'client show',
    summary: 'Show a program of OpenID Connect',
    positionals: 'ID',
    options: { json },
    run: (call) => onClient(call, async (client) => printMembers(call, client)),
  },
  {
    name: 'client set',
    summary: 'Change what is registered of a program',
    positionals: 'ID',
    options: { name: NAME, redirect: REDIRECT, ...OPTIONS, ...CHANGES },
    run: (call) =>
      onClient(call, async (client, database) => {
        const changed = orThrow(changedClient(client, givenOptions(clientSchema, call)));
        await updateClient(database, COMMAND_LINE, changed);
        return `Changed program "${client.id}".`;
      }),
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
      await onClient(call, async ({ id }, database) => {
        if (await replaceSecret(database, COMMAND_LINE, id, secret, overlap)) return;
        throw new OperationFailed(`program "${id}" has no secret: it was created with --public`);
      });
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
    run: (call) =>
      onClient(call, async (client, database) => {
        const enabled = verb === 'enable';
        await updateClient(database, COMMAND_LINE, orThrow(changedClient(client, { enabled })));
        return `Program "${client.id}" is ${verb}d.`;
      }),
  })),
  {
    name: 'client delete',
    summary: 'Delete a program, with all that users have allowed it',
    positionals: 'ID',
    run: (call) =>
      onClient(call, async ({ id }, database) => {
        await deleteClient(database, COMMAND_LINE, id);
        return `Deleted program "${id}".`;
      }),
  },
  {
    name: 'oidc rotate',
    summary: 'Create another key for ID tokens, which signs after an hour',
    options: { now: flag('end the earlier keys at once: ID tokens that they signed fail') },
    run: (call) =>
      inIdentity(call, async (database, settings) => {
        const isNow = call.flag('now');
        const key = await createSealedKey(secretOf(settings));
        await rotateKey(database, COMMAND_LINE, key, isNow);
        return isNow
          ? 'Created a key, and removed the others. Every process signs with it within a minute.'
          : 'Created a key. It signs after an hour, when programs know it.';
      }),
  },
];

/** @throws OperationFailed if there is no such program */
const onClient = <T>(
  call: Invocation,
  work: (client: Client, database: Database) => Promise<T>,
): Promise<T> =>
  inIdentity(call, async (database) => {
    const client = await findClient(database, call.first);
    if (client) return work(client, database);
    throw new OperationFailed('there is no program with this id; see: gatehouse client list');
  });

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
