import { readFile } from 'node:fs/promises';
import { openSecret, sealSecret } from '../crypto/sealed.ts';
import { ConfigurationError } from '../settings.ts';
import type { Database } from '../db/pool.ts';
import { codeOf } from '../runtime/errors.ts';
import { SCHEMA } from '../webhook/schema.ts';
import { createSigningKey, type SigningKeys } from '../webhook/service.ts';
import * as settings from '../webhook/settings.ts';
import { SCHEMES } from '../webhook/signatures.ts';
import { SOURCE_NAMES, type SourceName, SOURCES } from '../webhook/sources.ts';
import {
  acceptPending,
  createToken,
  fingerprint,
  listTokens,
  resealSecrets,
  revokeRestored,
  revokeToken,
  rotateToken,
  showPending,
} from '../webhook/store/admin.ts';
import { countByKey, type Token } from '../webhook/store/tokens.ts';
import {
  choice,
  type Command,
  flag,
  json,
  OperationFailed,
  option,
  type Terminal,
  UsageError,
} from './command.ts';
import { confirm, counted, ifConfirmed, requireUuid, withDatabase } from './database.ts';
import { parseDuration, printRows, readInput } from './terminal.ts';

const secretFile = option('FILE', "the sender's signing secret; '-' for standard input");
const FROM_LIST = ' from gatehouse token list';
const ONCE = 'Token (shown only once):';
const NOT_PENDING =
  'no signing secret is pending; have the sender send it again, and see: gatehouse token list';
const OTHER_KEY =
  'the pending secret is sealed under another WEBHOOK_SECRET; set the one that the service has';
const UNOPENED =
  'add the WEBHOOK_SECRET that they are sealed under to WEBHOOK_SECRET_PREVIOUS, or rotate them';
const OTHER_KEYS =
  'Warning: signing secrets exist that are sealed under another WEBHOOK_SECRET than the one set here.';

export const COMMANDS: readonly Command[] = [
  {
    name: 'token create',
    summary: 'Create a webhook token and print it once',
    options: {
      name: option('NAME', 'a description; default empty'),
      source: option('SOURCE', `${SOURCE_NAMES.join(', ')}; default generic`),
      'signing-secret-file': secretFile,
      role: option('ROLE', 'sender, or operator to read and redeliver events; default sender'),
    },
    async run(given, terminal) {
      const { text } = given;
      const name = text('name') ?? '';
      const isNamed = name.length <= 255 && !/\p{Cc}/u.test(name);
      if (!isNamed) throw new UsageError('--name takes at most 255 printable characters');
      const source = choice(given, 'source', SOURCE_NAMES) ?? 'generic';
      const role = choice(given, 'role', ['sender', 'operator']) ?? 'sender';
      if (role === 'operator' && source !== 'generic')
        throw new UsageError('an operator has no source');
      const secret = await readSecret(text('signing-secret-file'), source);
      // Notion sends its secret later. Until then its events are rejected.
      const isOptional = SOURCES[source].scheme === null || source === 'notion';
      if (secret === null && !isOptional)
        throw new UsageError(`source ${source} needs --signing-secret-file`);
      const { id, token } = await withWebhook(async (database, keys) =>
        createToken(
          database,
          { name, role, source },
          await sealed(secret, keys, database, terminal.note),
        ),
      );
      terminal.note(`Created token "${name}" with id ${id}.\n${ONCE}`);
      terminal.print(token);
    },
  },
  {
    name: 'token list',
    options: { json },
    summary: 'List webhook tokens, oldest first, without the tokens themselves',
    async run(given, terminal) {
      const columns = ['ID', 'NAME', 'ROLE', 'SOURCE', 'CREATED', 'LAST USED', 'STATE'];
      printRows(given, terminal, await withWebhook(listTokens), columns, cells);
    },
  },
  {
    name: 'token rotate',
    positionals: 'ID',
    summary: 'Replace a webhook token or its signing secret; the old one stays valid for a while',
    options: {
      overlap: option(
        'TIME',
        'how long the old one stays valid: seconds, or such as 30m, 24h, 7d or 1w; default 24h',
      ),
      'signing-secret-file': secretFile,
    },
    async run({ positionals: [id = ''], text }, terminal) {
      requireUuid(id, FROM_LIST);
      const overlap = parseDuration('--overlap', text('overlap') ?? '24h');
      const token = await withWebhook(async (database, keys) => {
        const known = (await listTokens(database)).find(
          (one) => one.id === id && one.revoked_at === null,
        );
        if (!known) return false;
        const secret = await readSecret(text('signing-secret-file'), known.source);
        return rotateToken(
          database,
          id,
          overlap,
          await sealed(secret, keys, database, terminal.note),
        );
      });
      if (token === false)
        throw new OperationFailed('no active token has this id; see: gatehouse token list');
      const [what, once] =
        token === null ? ['the signing secret of token', ''] : ['token', `\n${ONCE}`];
      terminal.note(
        `Replaced ${what} ${id}. The old one stays valid for ${overlap} seconds.${once}`,
      );
      if (token !== null) terminal.print(token);
    },
  },
  {
    name: 'token confirm',
    positionals: 'ID',
    summary: 'Show the pending signing secret that a sender sent, or activate it',
    options: {
      accept: option('FINGERPRINT', 'activate this secret; the old one stays valid for 24 hours'),
    },
    async run({ positionals: [id = ''], text }, { note, print }) {
      requireUuid(id, FROM_LIST);
      const accepted = text('accept');
      await withWebhook(async (database, signingKeys) => {
        const keys = requireKeys(signingKeys);
        if (accepted !== undefined) {
          const isActive = await acceptPending(database, id, keys, accepted, 86_400);
          if (isActive) return note(`The signing secret of token ${id} is active.`);
          throw new OperationFailed(
            `no pending secret has this fingerprint; see: gatehouse token confirm ${id}`,
          );
        }
        const secret = await showPending(database, id, keys);
        if (secret === null) throw new OperationFailed(OTHER_KEY);
        if (secret === false) throw new OperationFailed(NOT_PENDING);
        note(
          'Anyone with the token can send a secret. Activate this one only if it is the one that the sender shows.',
        );
        note(`To activate it, run: gatehouse token confirm ${id} --accept ${fingerprint(secret)}`);
        print(secret);
      });
    },
  },
  {
    name: 'token reseal',
    options: {},
    summary: 'Encrypt all signing secrets under WEBHOOK_SECRET, to replace WEBHOOK_SECRET_PREVIOUS',
    async run(_given, { note }) {
      const { replaced, kept } = await withWebhook((database, signingKeys) => {
        const keys = requireKeys(signingKeys);
        return resealSecrets(database, keys[0].id, (sealed) => {
          const secret = openSecret(keys, sealed);
          return secret === null ? null : sealSecret(keys[0], secret);
        });
      });
      note(`${counted(replaced, 'signing secret')} encrypted under WEBHOOK_SECRET.`);
      if (kept > 0) throw new OperationFailed(`${kept} could not be decrypted: ${UNOPENED}`);
    },
  },
  {
    name: 'token revoke',
    positionals: 'ID',
    options: {},
    summary: 'Revoke a webhook token at once, on every replica',
    async run({ positionals: [id = ''] }, { note }) {
      requireUuid(id, FROM_LIST);
      if (await withWebhook((database) => revokeToken(database, id)))
        return note(`Revoked token ${id}.`);
      throw new OperationFailed('no token has this id; see: gatehouse token list');
    },
  },
  {
    name: 'restored webhook',
    summary:
      'After a restore, revoke all webhook tokens: some may have been revoked or replaced since the backup',
    options: { 'keep-senders': flag('revoke the tokens of operators only'), confirm },
    async run(given, { note }) {
      const done = await withWebhook((database) =>
        ifConfirmed(given, database, async (sql) => {
          const roles = await revokeRestored(sql, !given.flag('keep-senders'));
          const tokens = roles.map(({ role, revoked }) => counted(revoked, `${role} token`));
          return `${tokens.join(', ') || 'no token'} revoked`;
        }),
      );
      note(`${done}.\nCreate new tokens with: gatehouse token create`);
    },
  },
];

function cells({ id, name, role, source, created_at, last_used_at, revoked_at, pending }: Token) {
  const state = revoked_at
    ? `revoked ${revoked_at.toISOString()}`
    : pending
      ? 'active, secret pending'
      : 'active';
  return [id, name, role, source, created_at, last_used_at, state];
}

/** @returns null if no file is given */
async function readSecret(file: string | undefined, source: SourceName) {
  if (file === undefined) return null;
  const { scheme } = SOURCES[source];
  if (scheme === null)
    throw new UsageError(`source ${source} is not signed; leave out --signing-secret-file`);
  const text =
    file === '-'
      ? await readInput()
      : await readFile(file, 'utf8').catch((error: unknown) => {
          throw new UsageError(`--signing-secret-file cannot be read (${codeOf(error)})`);
        });
  const secret = text.replace(/\r?\n$/, '');
  if (secret.length >= 8 && !/\p{Cc}/u.test(secret) && SCHEMES[scheme].keyOf(secret)) return secret;
  const form =
    scheme === 'standard' ? 'whsec_ and 24 to 64 bytes in Base64' : 'at least 8 characters';
  throw new UsageError(
    `not a signing secret of ${source}; it is one line of ${form}, as the sender shows it`,
  );
}

/** Seals a signing secret. The service can open it only if it has the same WEBHOOK_SECRET. */
async function sealed(
  secret: string | null,
  keys: SigningKeys | null,
  database: Database,
  note: Terminal['note'],
) {
  if (secret === null) return null;
  const [key, ...others] = requireKeys(keys);
  const known = [key, ...others].map(({ id }) => id);
  if ((await countByKey(database)).some(({ key_id }) => !known.includes(key_id))) note(OTHER_KEYS);
  return sealSecret(key, secret);
}

function requireKeys(keys: SigningKeys | null): SigningKeys {
  if (keys) return keys;
  throw new ConfigurationError(['WEBHOOK_SECRET must be set to the value that the service has.']);
}

/** Runs work on the webhook database. The keys are null without WEBHOOK_SECRET. */
export const withWebhook = <T>(
  work: (database: Database, keys: SigningKeys | null) => Promise<T>,
): Promise<T> =>
  withDatabase(settings, SCHEMA, (database, { secrets }) => {
    const [key, ...earlier] = secrets.map(createSigningKey);
    return work(database, key ? [key, ...earlier] : null);
  });
