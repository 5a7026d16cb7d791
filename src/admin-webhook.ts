import { json, printTable, withDatabase } from './admin.ts';
import { type Command, OperationFailed, UsageError } from './command.ts';
import { readConfig } from './config.ts';
import { isUuid } from './crypto/text.ts';
import type { Database } from './db/pool.ts';
import { MIGRATIONS, SCHEMA } from './webhook/migrations.ts';
import { listTokens, revokeToken } from './webhook/store.ts';
import { createToken } from './webhook/tokens.ts';

export const WEBHOOK_COMMANDS: readonly Command[] = [
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

async function inWebhook<T>(work: (database: Database) => Promise<T>): Promise<T> {
  const config = readConfig(['webhook'], 'administer').webhook;
  if (!config?.database) throw new Error('internal error: the database of webhook was asked for');
  return withDatabase('webhook', config.database, SCHEMA, MIGRATIONS, work);
}
