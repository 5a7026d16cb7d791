import { readFileSync } from 'node:fs';
import { ConfigurationError, readServiceSettings } from '../settings.ts';
import type { ServerKey } from '../crypto/box.ts';
import { isUuid } from '../crypto/text.ts';
import type { Database } from '../db/pool.ts';
import { MIGRATIONS, SCHEMA } from '../webhook/migrations.ts';
import * as settings from '../webhook/settings.ts';
import { SCHEMES } from '../webhook/signatures.ts';
import { createSigningKey } from '../webhook/signing.ts';
import { isSource, SOURCE_NAMES, type SourceName, SOURCES } from '../webhook/sources.ts';
import { countByKey, listTokens, revokeToken, type Token } from '../webhook/store/tokens.ts';
import { acceptPending, createToken, fingerprint, rotateToken, showPending, type SigningSecret } from '../webhook/tokens.ts';
import { json, parseDuration, printTable, withDatabase } from './administration.ts';
import { type Command, OperationFailed, type Terminal, UsageError } from './command.ts';

const DAY = 86_400;
const oneId = { shown: 'ID', least: 1, most: 1 };
const secretFile = { type: 'string', value: 'FILE', help: "the sender's signing secret; '-' for standard input" } as const;
const NO_TOKEN = 'no active token has this id; see: gatehouse token list';
const SHOWN_ONCE = 'Token (shown only once):';

export const COMMANDS: readonly Command[] = [
  {
    name: 'token create',
    summary: 'Create a webhook token and print it once',
    options: {
      name: { type: 'string', value: 'NAME', help: 'a description; default empty' },
      source: { type: 'string', value: 'SOURCE', help: `${SOURCE_NAMES.join(', ')}; default generic` },
      'signing-secret-file': secretFile,
      role: { type: 'string', value: 'ROLE', help: 'sender, or operator to read and redeliver events; default sender' },
    },
    async run({ text }, { note, print, readInput }) {
      const wrong = (problem: string) => new UsageError(`token create: ${problem}`);
      const [name, source, role] = [text('name') ?? '', text('source') ?? 'generic', text('role') ?? 'sender'];
      if (name.length > 255 || /\p{Cc}/u.test(name)) throw wrong('--name takes at most 255 characters, no control characters');
      if (!isSource(source)) throw wrong(`--source must be one of ${SOURCE_NAMES.join(', ')}`);
      if (role !== 'sender' && role !== 'operator') throw wrong('--role must be sender or operator');
      if (role === 'operator' && source !== 'generic') throw wrong('an operator has no source');
      const secret = await readSecret('token create', text('signing-secret-file'), source, readInput);
      // Notion sends its secret later. Until then its events are rejected.
      if (secret === null && SOURCES[source].scheme !== null && source !== 'notion') {
        throw wrong(`source ${source} needs --signing-secret-file`);
      }
      const { id, token } = await withWebhook(async (database, key) =>
        createToken(database, { name, role, source }, await withKey(secret, key, database, note)));
      note(`Created token "${name}" with id ${id}.`);
      note(SHOWN_ONCE);
      print(token);
    },
  },
  {
    name: 'token list',
    summary: 'List webhook tokens, oldest first, without the tokens themselves',
    options: { json },
    async run({ flag }, { print }) {
      const tokens = await withWebhook(listTokens);
      if (flag('json')) return print(JSON.stringify(tokens));
      printTable(print, ['ID', 'NAME', 'ROLE', 'SOURCE', 'CREATED', 'LAST USED', 'STATE'], tokens.map(cells));
    },
  },
  {
    name: 'token rotate',
    summary: 'Replace a webhook token or its signing secret; the old one stays valid for a while',
    positionals: oneId,
    options: {
      overlap: { type: 'string', value: 'TIME', help: 'how long the old one stays valid: seconds, or as 30m, 24h or 7d; default 24h' },
      'signing-secret-file': secretFile,
    },
    async run({ positionals: [id = ''], text }, { note, print, readInput }) {
      requireUuid(id, 'token rotate');
      const overlap = parseDuration('token rotate: --overlap', text('overlap') ?? '24h');
      const token = await withWebhook(async (database, key) => {
        const known = (await listTokens(database)).find((one) => one.id === id && one.revoked_at === null);
        if (!known) return false;
        const secret = await readSecret('token rotate', text('signing-secret-file'), known.source, readInput);
        return rotateToken(database, id, overlap, await withKey(secret, key, database, note));
      });
      if (token === false) throw new OperationFailed(NO_TOKEN);
      const what = token === null ? 'the signing secret of token' : 'token';
      note(`Replaced ${what} ${id}. The old one stays valid for ${overlap} seconds.`);
      if (token === null) return;
      note(SHOWN_ONCE);
      print(token);
    },
  },
  {
    name: 'token confirm',
    summary: 'Show the pending signing secret that a sender sent, or activate it',
    positionals: oneId,
    options: {
      accept: { type: 'string', value: 'FINGERPRINT', help: 'activate this secret; the old one stays valid for 24 hours' },
    },
    async run({ positionals: [id = ''], text }, { note, print }) {
      requireUuid(id, 'token confirm');
      const accepted = text('accept');
      if (accepted !== undefined) {
        const accept = (database: Database, key: ServerKey | null) =>
          acceptPending(database, id, requireKey(key), accepted, DAY);
        if (await withWebhook(accept)) return note(`The signing secret of token ${id} is active.`);
        throw new OperationFailed(`no pending secret has this fingerprint; see: gatehouse token confirm ${id}`);
      }
      const secret = await withWebhook((database, key) => showPending(database, id, requireKey(key)));
      if (secret === null) throw new OperationFailed('the pending secret is sealed under another WEBHOOK_SECRET; set the one of the service');
      if (secret === false) throw new OperationFailed('no signing secret is pending; have the sender send it again, and see: gatehouse token list');
      note(`Anyone with the token can have sent this secret. Compare it with the one that the sender shows. If they are equal, run: gatehouse token confirm ${id} --accept ${fingerprint(secret)}`);
      print(secret);
    },
  },
  {
    name: 'token revoke',
    summary: 'Revoke a webhook token at once, on every replica',
    positionals: oneId,
    options: {},
    async run({ positionals: [id = ''] }, { note }) {
      requireUuid(id, 'token revoke');
      const isFound = await withWebhook((database) => revokeToken(database, id));
      if (!isFound) throw new OperationFailed('no token has this id; see: gatehouse token list');
      note(`Revoked token ${id}.`);
    },
  },
];

function cells({ id, name, role, source, created_at, last_used_at, revoked_at, pending }: Token): string[] {
  const state = revoked_at ? `revoked ${revoked_at.toISOString()}` : pending ? 'active, secret pending' : 'active';
  return [id, name, role, source, created_at.toISOString(), last_used_at?.toISOString() ?? '–', state];
}

async function readSecret(
  command: string, file: string | undefined, source: SourceName, readInput: Terminal['readInput'],
): Promise<string | null> {
  if (file === undefined) return null;
  const { scheme } = SOURCES[source];
  if (scheme === null) throw new UsageError(`${command}: source ${source} is not signed; leave out --signing-secret-file`);
  const secret = (file === '-' ? await readInput() : readText(command, file)).replace(/\r?\n$/, '');
  if (secret.length >= 8 && !/\p{Cc}/u.test(secret) && SCHEMES[scheme].keyOf(secret)) return secret;
  const form = scheme === 'standard' ? 'whsec_ and 24 to 64 bytes in Base64' : 'at least 8 characters';
  throw new UsageError(`${command}: not a signing secret of ${source}; it is one line of ${form}, as the sender shows it`);
}

function readText(command: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    throw new UsageError(`${command}: --signing-secret-file cannot be read (${code})`);
  }
}

/** Warns if the service may have another WEBHOOK_SECRET: it could not open what is sealed here. */
async function withKey(
  secret: string | null, serverKey: ServerKey | null, database: Database, note: Terminal['note'],
): Promise<SigningSecret | null> {
  if (secret === null) return null;
  const key = requireKey(serverKey);
  const others = (await countByKey(database)).filter(({ key_id }) => key_id !== key.id);
  const count = others.reduce((sum, { secrets }) => sum + secrets, 0);
  if (count > 0) note(`Warning: signing secrets sealed under another WEBHOOK_SECRET: ${count}. Check that the service has the one that is set here.`);
  return { key, secret };
}

function requireKey(key: ServerKey | null): ServerKey {
  if (key) return key;
  throw new ConfigurationError(['WEBHOOK_SECRET must be set to the value that the service has: it seals signing secrets.']);
}

export function requireUuid(id: string, command: string, list = 'token list'): string {
  if (!isUuid(id)) throw new UsageError(`${command}: ID must be a UUID, as in: gatehouse ${list}`);
  return id;
}

/** Runs work on the webhook database. The key is null without WEBHOOK_SECRET. */
export async function withWebhook<T>(work: (database: Database, key: ServerKey | null) => Promise<T>): Promise<T> {
  const { database, secret } = readServiceSettings('webhook', settings);
  if (!database) throw new Error('internal error: administration needs a database');
  const key = secret === null ? null : createSigningKey(secret);
  return withDatabase('webhook', database, SCHEMA, MIGRATIONS, (open) => work(open, key));
}
