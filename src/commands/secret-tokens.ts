import { choice, type Command, json, OperationFailed, option, UsageError } from './command.ts';
import { requireUuid, withDatabase } from './database.ts';
import { parseDuration, printRows } from './terminal.ts';
import type { Database } from '../db/pool.ts';
import * as schema from '../secrets/migrations.ts';
import * as settings from '../secrets/settings.ts';
import { createToken, listTokens, revokeToken, rotateToken, type Token } from '../secrets/store/tokens.ts';

const FROM_LIST = ', as in: gatehouse secret token list';
const ONCE = 'Token (shown only once):';
const UNKNOWN = 'no active token has this id; see: gatehouse secret token list';

export const inSecrets = <T>(work: (database: Database, read: settings.SecretsSettings) => Promise<T>): Promise<T> =>
  withDatabase(settings, schema, work);

/** They connect to the database: who may create tokens must not depend on a token. */
export const COMMANDS: readonly Command[] = [
  {
    name: 'secret token create', summary: 'Create a token for secrets and print it once',
    options: {
      name: option('NAME', 'whose token it is'),
      role: option('ROLE', 'sender: store secrets, see and delete own ones; operator: everything. Default sender'),
    },
    async run(given, { note, print }) {
      const name = given.text('name') ?? '';
      const isName = name.length <= 255 && !/\p{C}/u.test(name);
      if (!isName) throw new UsageError('--name takes at most 255 printable characters');
      const role = choice(given, 'role', ['sender', 'operator']) ?? 'sender';
      const { id, token } = await inSecrets((database) => createToken(database, { name, role }));
      note(`Created token "${name}" with the role ${role} and id ${id}.\n${ONCE}`);
      print(token);
    },
  },
  {
    name: 'secret token list', summary: 'List the tokens for secrets, oldest first, without the tokens themselves',
    options: { json },
    async run(given, terminal) {
      printRows(given, terminal, await inSecrets(listTokens), ['ID', 'NAME', 'ROLE', 'CREATED', 'STATE'], cells);
    },
  },
  {
    name: 'secret token rotate', positionals: 'ID',
    summary: 'Replace a token for secrets; the old one stays valid for a while',
    options: { overlap: option('TIME', 'how long: seconds, or such as 30s, 15m, 12h, 7d or 1w; default 24h') },
    async run({ positionals: [id = ''], text }, { note, print }) {
      requireUuid(id, FROM_LIST);
      const overlap = parseDuration('--overlap', text('overlap') ?? '24h');
      const token = await inSecrets((database) => rotateToken(database, id, overlap));
      if (token === null) throw new OperationFailed(UNKNOWN);
      note(`Replaced token ${id}. The old one stays valid for ${overlap} seconds.\n${ONCE}`);
      print(token);
    },
  },
  {
    name: 'secret token revoke', positionals: 'ID', options: {},
    summary: 'Revoke a token for secrets at once, on every replica',
    async run({ positionals: [id = ''] }, { note }) {
      requireUuid(id, FROM_LIST);
      if (!(await inSecrets((database) => revokeToken(database, id)))) throw new OperationFailed(UNKNOWN);
      note(`Revoked token ${id}. The secrets that it has stored stay.`);
    },
  },
];

function cells({ id, name, role, created_at, revoked_at, previous_until }: Token) {
  const overlap = previous_until ? `, replaced; the old one until ${previous_until.toISOString()}` : '';
  return [id, name, role, created_at, revoked_at ? `revoked ${revoked_at.toISOString()}` : `active${overlap}`];
}
