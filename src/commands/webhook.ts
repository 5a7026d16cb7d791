import { readFileSync } from 'node:fs';
import { json, printTable, parseDuration, withDatabase } from './administration.ts';
import { type Command, OperationFailed, type Terminal, UsageError } from './command.ts';
import { ConfigurationError, readServiceSettings } from '../settings.ts';
import type { ServerKey } from '../crypto/box.ts';
import { isUuid } from '../crypto/text.ts';
import type { Database } from '../db/pool.ts';
import { MIGRATIONS, SCHEMA } from '../webhook/migrations.ts';
import * as settings from '../webhook/settings.ts';
import { SCHEMES } from '../webhook/signatures.ts';
import { createSigningKey } from '../webhook/signing.ts';
import { isSource, SOURCE_NAMES, type SourceName, SOURCES } from '../webhook/sources.ts';
import { countByKey, listTokens, revokeToken } from '../webhook/store/tokens.ts';
import { acceptPending, createToken, fingerprint, rotateToken, showPending, type Signing } from '../webhook/tokens.ts';

const oneId = { shown: 'ID', least: 1, most: 1 };
const secretFile = { type: 'string', value: 'FILE', help: "what the sender signs with; '-' for standard input" } as const;
const NO_TOKEN = 'there is no live token with this id; see: gatehouse token list';

export const COMMANDS: readonly Command[] = [
  {
    name: 'token create',
    summary: 'Create a webhook token and print it once',
    options: {
      name: { type: 'string', value: 'NAME', help: 'who will send with it; empty if left out' },
      source: { type: 'string', value: 'SOURCE', help: `${SOURCE_NAMES.join(', ')}; generic if left out` },
      'signing-secret-file': secretFile,
      role: { type: 'string', value: 'ROLE', help: 'sender, or operator: may read and redeliver events; sender if left out' },
    },
    async run({ text }, terminal) {
      const name = text('name') ?? '';
      if (name.length > 255 || /\p{Cc}/u.test(name)) throw new UsageError('token create: name must have at most 255 characters and no control characters');
      const source = text('source') ?? 'generic';
      if (!isSource(source)) throw new UsageError(`token create: source must be one of ${SOURCE_NAMES.join(', ')}`);
      const role = text('role') ?? 'sender';
      if (role !== 'sender' && role !== 'operator') throw new UsageError('token create: role must be sender or operator');
      if (role === 'operator' && source !== 'generic') throw new UsageError('token create: an operator has no source');
      const secret = await signingSecret('token create', text('signing-secret-file'), source, terminal);
      // Notion alone hands its secret over later. Until then its events are refused.
      if (secret === null && SOURCES[source].scheme !== null && source !== 'notion') throw new UsageError(`token create: source ${source} needs --signing-secret-file`);
      const { record, token } = await inWebhook(async (database, key) => {
        if (secret !== null) await warnOfOtherKeys(database, needed(key), terminal);
        return createToken(database, { name, role, source }, signing(secret, key));
      });
      terminal.note(`Created token "${record.name}" with id ${record.id}.`);
      terminal.note('The token on standard output is shown this one time:');
      terminal.print(token);
    },
  },
  {
    name: 'token list',
    summary: 'List the webhook tokens, oldest first; never the tokens themselves',
    options: { json },
    async run({ flag }, { print }) {
      const tokens = await inWebhook(listTokens);
      if (flag('json')) return print(JSON.stringify(tokens));
      const state = ({ revoked_at: revokedAt, pending }: (typeof tokens)[number]) => (revokedAt ? `revoked ${revokedAt.toISOString()}` : pending ? 'live, to be confirmed' : 'live');
      const cells = tokens.map((token) => [token.id, token.name, token.role, token.source, token.created_at.toISOString(), token.last_used_at?.toISOString() ?? '–', state(token)]);
      printTable(print, ['ID', 'NAME', 'ROLE', 'SOURCE', 'CREATED', 'LAST USED', 'STATE'], cells);
    },
  },
  {
    name: 'token rotate',
    summary: 'Replace a webhook token, or its signing secret; the old one holds for a while',
    positionals: oneId,
    options: {
      overlap: { type: 'string', value: 'TIME', help: 'how long the old one still holds: seconds, or as 30m, 24h or 7d; 24h if left out' },
      'signing-secret-file': secretFile,
    },
    async run({ positionals: [id = ''], text }, terminal) {
      checked(id, 'token rotate');
      const overlap = parseDuration('token rotate: --overlap', text('overlap') ?? '24h');
      const token = await inWebhook(async (database, key) => {
        const known = (await listTokens(database)).find((one) => one.id === id && one.revoked_at === null);
        if (!known) throw new OperationFailed(NO_TOKEN);
        const secret = await signingSecret('token rotate', text('signing-secret-file'), known.source, terminal);
        if (secret !== null) await warnOfOtherKeys(database, needed(key), terminal);
        return rotateToken(database, id, overlap, signing(secret, key));
      });
      if (token === false) throw new OperationFailed(NO_TOKEN);
      terminal.note(`Replaced ${token === null ? 'the signing secret of token' : 'token'} ${id}. The old one holds for ${overlap} seconds more.`);
      if (token === null) return;
      terminal.note('The token on standard output is shown this one time:');
      terminal.print(token);
    },
  },
  {
    name: 'token confirm',
    summary: 'Show the signing secret that a sender has handed over, or put it in force',
    positionals: oneId,
    options: { accept: { type: 'string', value: 'FINGERPRINT', help: 'puts the secret with this fingerprint in force; the one of before holds for 24 hours more' } },
    async run({ positionals: [id = ''], text }, { note, print }) {
      checked(id, 'token confirm');
      const accepted = text('accept');
      if (accepted !== undefined) {
        if (!(await inWebhook((database, key) => acceptPending(database, id, needed(key), accepted, 86_400)))) throw new OperationFailed(`no secret with this fingerprint waits for this token; see: gatehouse token confirm ${id}`);
        return note(`Now in force for token ${id}.`);
      }
      const secret = await inWebhook((database, key) => showPending(database, id, needed(key)));
      if (secret === null) throw new OperationFailed('one waits, but it is sealed under another WEBHOOK_SECRET; set the one that the service has');
      if (secret === false) throw new OperationFailed('no signing secret waits for this token; have the sender send it (again), and see: gatehouse token list');
      note(`This has been handed over by whoever has the token. If it is what the sender shows, run: gatehouse token confirm ${id} --accept ${fingerprint(secret)}`);
      print(secret);
    },
  },
  {
    name: 'token revoke',
    summary: 'Revoke a webhook token at once, on every replica',
    positionals: oneId,
    options: {},
    async run({ positionals: [id = ''] }, { note }) {
      checked(id, 'token revoke');
      if (!(await inWebhook((database) => revokeToken(database, id)))) throw new OperationFailed('there is no token with this id; see: gatehouse token list');
      note(`Revoked token ${id}.`);
    },
  },
];

async function signingSecret(command: string, file: string | undefined, source: SourceName, { readInput }: Terminal): Promise<string | null> {
  if (file === undefined) return null;
  const { scheme } = SOURCES[source];
  if (scheme === null) throw new UsageError(`${command}: source ${source} is not signed; leave out --signing-secret-file, or take another source`);
  const secret = (file === '-' ? await readInput() : read(command, file)).replace(/\r?\n$/, '');
  if (secret.length < 8 || /\p{Cc}/u.test(secret) || !SCHEMES[scheme].keyOf(secret)) throw new UsageError(`${command}: this is no signing secret of ${source}; give it as the sender shows it, in one line: ${scheme === 'standard' ? 'whsec_ and 24 to 64 bytes in Base64' : 'at least 8 characters'}`);
  return secret;
}

function read(command: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`${command}: --signing-secret-file cannot be read (${error instanceof Error && 'code' in error ? String(error.code) : 'unknown'})`);
  }
}

/** What this seals, a service with another WEBHOOK_SECRET cannot open. */
async function warnOfOtherKeys(database: Database, { id }: ServerKey, { note }: Terminal): Promise<void> {
  const others = (await countByKey(database)).filter(({ key_id }) => key_id !== id).reduce((sum, { secrets }) => sum + secrets, 0);
  if (others > 0) note(`Warning: ${others} live signing secret${others === 1 ? ' is' : 's are'} sealed under another WEBHOOK_SECRET. Make sure that the service has the one that is set here.`);
}

const signing = (secret: string | null, key: ServerKey | null): Signing | null => (secret === null ? null : { key: needed(key), secret });

function needed(key: ServerKey | null): ServerKey {
  if (!key) throw new ConfigurationError(['WEBHOOK_SECRET must be set, as for the service: signing secrets are sealed under it.']);
  return key;
}

export function checked(id: string, command: string, list = 'token list'): string {
  if (!isUuid(id)) throw new UsageError(`${command}: ID must be a UUID, as gatehouse ${list} shows it`);
  return id;
}

export async function inWebhook<T>(work: (database: Database, key: ServerKey | null) => Promise<T>): Promise<T> {
  const config = readServiceSettings('webhook', settings);
  if (!config.database) throw new Error('internal error: the database of webhook was asked for');
  const key = config.secret === null ? null : createSigningKey(config.secret);
  return withDatabase('webhook', config.database, SCHEMA, MIGRATIONS, (database) => work(database, key));
}
