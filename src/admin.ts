import { type Command, type Option, OperationFailed, UsageError } from './command.ts';
import { type Config, readConfig, type ServiceName } from './config.ts';
import { requireCurrent } from './db/migrate.ts';
import { isUuid } from './crypto/text.ts';
import { createDatabase, type Database } from './db/pool.ts';
import { SCHEMA as IDENTITY, MIGRATIONS as IDENTITY_MIGRATIONS } from './identity/migrations.ts';
import { viewUser } from './identity/shapes.ts';
import { listUsers } from './identity/store.ts';
import { createUser } from './identity/users.ts';
import { createLog } from './runtime/log.ts';
import { createMetrics } from './runtime/metrics.ts';
import { MIGRATIONS as WEBHOOK_MIGRATIONS, SCHEMA as WEBHOOK } from './webhook/migrations.ts';
import { listTokens, revokeToken } from './webhook/store.ts';
import { createToken } from './webhook/tokens.ts';

const json: Option = { type: 'boolean', help: 'print JSON' };

/** Administration: the same functions as the routes call, without HTTP. */
export const ADMIN_COMMANDS: readonly Command[] = [
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
      'password-stdin': { type: 'boolean', help: 'read the password from standard input' },
    },
    async run({ text, flag }, { print, note, readInput }) {
      const password = flag('password-stdin') ? (await readInput()).replace(/\r?\n$/, '') : undefined;
      const input = {
        username: text('username'),
        email: text('email'),
        first_name: text('first-name'),
        last_name: text('last-name'),
        password,
        verified: flag('verified'),
        super_admin: flag('super-admin'),
      };
      const creation = await inIdentity((database, config) => createUser(database, input, config.passwords));
      if (creation.outcome !== 'created') {
        const faults = creation.faults.map(({ path, message }) => `${path.slice(1).replace('_', '-')} ${message}`).join('; ');
        throw creation.outcome === 'taken' ? new OperationFailed(faults) : new UsageError(`user create: ${faults}`);
      }
      note(`Created user "${creation.user.username}" with id ${creation.user.id}.`);
      if (creation.generatedPassword !== null) {
        note('The password on standard output is shown this one time:');
        print(creation.generatedPassword);
      }
    },
  },
  {
    name: 'user list',
    summary: 'List the users, oldest first',
    options: { json },
    async run({ flag }, { print }) {
      const users = (await inIdentity((database) => listUsers(database))).map(viewUser);
      if (flag('json')) return print(JSON.stringify(users));
      const flags = (user: (typeof users)[number]) =>
        [user.super_admin ? 'super-admin' : '', user.verified ? 'verified' : '', user.enabled ? '' : 'disabled'].filter(Boolean).join(',');
      printTable(print, ['ID', 'USERNAME', 'EMAIL', 'CREATED', 'FLAGS'], users.map((user) => [user.id, user.username, user.email, user.created_at, flags(user)]));
    },
  },
  {
    name: 'token create',
    summary: 'Create a webhook token and print it once',
    options: { name: { type: 'string', value: 'NAME', help: 'who will send with it; empty if left out' } },
    async run({ text }, { print, note }) {
      const name = text('name') ?? '';
      if (name.length > 255 || /\p{Cc}/u.test(name)) throw new UsageError('token create: name must have at most 255 characters and no control characters');
      const { record, token } = await inWebhook((database) => createToken(database, name));
      note(`Created token "${record.name}" with id ${record.id}.`);
      note('The token on standard output is shown this one time:');
      print(token);
    },
  },
  {
    name: 'token list',
    summary: 'List the webhook tokens, oldest first; never the tokens themselves',
    options: { json },
    async run({ flag }, { print }) {
      const tokens = await inWebhook(listTokens);
      if (flag('json')) return print(JSON.stringify(tokens));
      const state = (revokedAt: Date | null) => (revokedAt ? `revoked ${revokedAt.toISOString()}` : 'live');
      printTable(print, ['ID', 'NAME', 'CREATED', 'STATE'], tokens.map((token) => [token.id, token.name, token.created_at.toISOString(), state(token.revoked_at)]));
    },
  },
  {
    name: 'token revoke',
    summary: 'Revoke a webhook token at once, on every replica',
    positionals: { shown: 'ID', least: 1, most: 1 },
    options: {},
    async run({ positionals: [id = ''] }, { note }) {
      if (!isUuid(id)) throw new UsageError('token revoke: ID must be a UUID, as gatehouse token list shows it');
      if (!(await inWebhook((database) => revokeToken(database, id)))) throw new OperationFailed('there is no token with this id; see: gatehouse token list');
      note(`Revoked token ${id}.`);
    },
  },
];

async function inIdentity<T>(work: (database: Database, config: NonNullable<Config['identity']>) => Promise<T>): Promise<T> {
  const config = readConfig(['identity'], 'administer').identity;
  if (!config) throw new Error('internal error: identity was asked for');
  return withDatabase('identity', config.database, IDENTITY, IDENTITY_MIGRATIONS, (database) => work(database, config));
}

async function inWebhook<T>(work: (database: Database) => Promise<T>): Promise<T> {
  const config = readConfig(['webhook'], 'administer').webhook;
  if (!config?.database) throw new Error('internal error: the database of webhook was asked for');
  return withDatabase('webhook', config.database, WEBHOOK, WEBHOOK_MIGRATIONS, work);
}

async function withDatabase<T>(
  name: ServiceName,
  address: Parameters<typeof createDatabase>[0],
  schema: string,
  migrations: Parameters<typeof requireCurrent>[2],
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const database = createDatabase(address, `${name}-admin`, createLog('silent', () => {}), createMetrics());
  try {
    await requireCurrent(database, schema, migrations);
    return await work(database);
  } finally {
    await database.close();
  }
}

/** Columns as wide as their widest cell. */
function printTable(print: (line: string) => void, head: readonly string[], rows: ReadonlyArray<readonly string[]>): void {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  for (const row of all) print(row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ').trimEnd());
}
