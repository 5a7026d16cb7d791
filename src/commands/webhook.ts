import { readFile } from 'node:fs/promises';
import { type SealedSecret, sealSecret, unsealServiceSecret } from '../crypto/service-secret.ts';
import { ConfigurationError } from '../settings.ts';
import type { Database } from '../db/pool.ts';
import { codeOf } from '../runtime/errors.ts';
import { SCHEMA } from '../webhook/migrations.ts';
import { createSigningKey, type SigningKeys } from '../webhook/service.ts';
import * as settings from '../webhook/settings.ts';
import { SCHEMES } from '../webhook/signatures.ts';
import { SOURCE_NAMES, type SourceName, SOURCES } from '../webhook/sources.ts';
import {
  acceptPending,
  createToken,
  findPending,
  fingerprint,
  listTokens,
  resealSecrets,
  revokeRestored,
  rotateSecret,
  rotateToken,
} from '../webhook/store/admin.ts';
import { countByKey, type Token } from '../webhook/store/tokens.ts';
import {
  type Arguments,
  choice,
  type Command,
  flag,
  OperationFailed,
  option,
  type Terminal,
  UsageError,
} from './command.ts';
import { confirm, counted, ifConfirmed, requireUuid, withDatabase } from './database.ts';
import { DAY } from '../runtime/duration.ts';
import { readInput } from './terminal.ts';
import { type Rotated, tokenCommands } from './tokens.ts';

const NOT_PENDING =
  'no signing secret is pending; have the sender send it again, and see: gatehouse token list';
const OTHER_KEY =
  'the pending secret is sealed under another WEBHOOK_SECRET; set the one that the service has';
const UNOPENED =
  'add the WEBHOOK_SECRET that they are sealed under to WEBHOOK_SECRET_PREVIOUS, or rotate them';
const OTHER_KEYS =
  'Warning: signing secrets exist that are sealed under another WEBHOOK_SECRET than the one set here.';

export const COMMANDS: readonly Command[] = [
  ...tokenCommands<Token>({
    name: 'token',
    noun: 'webhook token',
    schema: SCHEMA.name,
    roles: 'sender, or operator to read and redeliver events; default sender',
    createOptions: {
      source: option('SOURCE', `${SOURCE_NAMES.join(', ')}; default generic`),
      'signing-secret-file': option('FILE', "the sender's signing secret; '-' for standard input"),
    },
    rotateOptions: {
      'signing-secret-file': option(
        'FILE',
        "replace the signing secret instead of the token; '-' for standard input",
      ),
    },
    columns: {
      ID: 'id',
      NAME: 'name',
      ROLE: 'role',
      SOURCE: 'source',
      CREATED: 'created_at',
      'LAST USED': 'last_used_at',
      'REFUSED IN 24 H': 'refused',
      'LAST REFUSAL': 'last_refusal',
      STATE: stateOf,
    },
    withDatabase: withWebhook,
    list: listTokens,
    create,
    rotate,
  }),
  {
    name: 'token confirm',
    positionals: 'ID',
    summary: 'Show the pending signing secret that a sender sent, or activate it',
    options: {
      accept: option('FINGERPRINT', 'activate this secret; the old one stays valid for 24 hours'),
    },
    async run({ positionals: [id = ''], text }, terminal) {
      requireUuid(id, ' from gatehouse token list');
      const accepted = text('accept');
      await withWebhook(terminal, async (database, signingKeys) => {
        const keys = requireKeys(signingKeys);
        if (accepted !== undefined) {
          const isActive = await acceptPending(database, id, keys, accepted, DAY);
          if (isActive) return terminal.note(`The signing secret of token ${id} is active.`);
          throw new OperationFailed(
            `no pending secret has this fingerprint; see: gatehouse token confirm ${id}`,
          );
        }
        const pending = await database.read((sql) => findPending(sql, id));
        if (!pending) throw new OperationFailed(NOT_PENDING);
        const secret = unsealServiceSecret(keys, pending);
        if (secret === null) throw new OperationFailed(OTHER_KEY);
        terminal.note(
          'Anyone with the token can send a secret. Activate this one only if it is the one that the sender shows.',
        );
        terminal.note(
          `To activate it, run: gatehouse token confirm ${id} --accept ${fingerprint(secret)}`,
        );
        terminal.print(secret);
      });
    },
  },
  {
    name: 'token reseal',
    options: {},
    summary: 'Encrypt all signing secrets under WEBHOOK_SECRET, to replace WEBHOOK_SECRET_PREVIOUS',
    async run(_given, terminal) {
      const { replaced, kept } = await withWebhook(terminal, (database, signingKeys) => {
        const keys = requireKeys(signingKeys);
        return resealSecrets(database, keys[0].id, (sealed) => {
          const secret = unsealServiceSecret(keys, sealed);
          return secret === null ? null : sealSecret(keys[0], secret);
        });
      });
      terminal.note(`${counted(replaced, 'signing secret')} encrypted under WEBHOOK_SECRET.`);
      if (kept > 0) throw new OperationFailed(`${kept} could not be decrypted: ${UNOPENED}`);
    },
  },
  {
    name: 'restored webhook',
    summary:
      'After a restore, revoke all webhook tokens: some may have been revoked or replaced since the backup',
    options: { 'keep-senders': flag('revoke the tokens of operators only'), confirm },
    async run(given, terminal) {
      const done = await withWebhook(terminal, (database) =>
        ifConfirmed(given, database, async (sql) => {
          const roles = await revokeRestored(sql, !given.flag('keep-senders'));
          const tokens = roles.map(({ role, revoked }) => counted(revoked, `${role} token`));
          return `${tokens.join(', ') || 'no token'} revoked`;
        }),
      );
      terminal.note(`${done}.\nCreate new tokens with: gatehouse token create`);
    },
  },
];

async function create(
  given: Arguments,
  terminal: Terminal,
  token: Pick<Token, 'name' | 'role'>,
): Promise<{ id: string; token: string }> {
  const source = choice(given, 'source', SOURCE_NAMES) ?? 'generic';
  if (token.role === 'operator' && source !== 'generic')
    throw new UsageError('an operator has no source');
  const secret = await readSigningSecret(given, terminal, source);
  // Notion sends its secret later. Until then its events are rejected.
  const isOptional = SOURCES[source].scheme === null || source === 'notion';
  if (secret === null && !isOptional)
    throw new UsageError(`source ${source} needs --signing-secret-file`);
  return withWebhook(terminal, async (database, keys) => {
    const sealed = secret === null ? null : await seal(secret, keys, database, terminal);
    return createToken(database, { ...token, source }, sealed);
  });
}

function rotate(
  given: Arguments,
  terminal: Terminal,
  id: string,
  overlap: number,
): Promise<Rotated> {
  return withWebhook(terminal, async (database, keys) => {
    const tokens = await listTokens(database);
    const known = tokens.find((one) => one.id === id && one.revoked_at === null);
    if (!known) return { kind: 'unknown' };
    const secret = await readSigningSecret(given, terminal, known.source);
    if (secret === null) {
      const token = await rotateToken(database, id, overlap);
      return token === null ? { kind: 'unknown' } : { kind: 'token', token };
    }
    const sealed = await seal(secret, keys, database, terminal);
    const isActive = await rotateSecret(database, id, overlap, sealed);
    return { kind: isActive ? 'signing secret' : 'unknown' };
  });
}

function stateOf({ revoked_at, pending }: Token): string {
  if (revoked_at) return `revoked ${revoked_at.toISOString()}`;
  return pending ? 'active, secret pending' : 'active';
}

/** @returns null without `--signing-secret-file` */
async function readSigningSecret(
  { text }: Arguments,
  { streams }: Terminal,
  source: SourceName,
): Promise<string | null> {
  const file = text('signing-secret-file');
  if (file === undefined) return null;
  const { scheme } = SOURCES[source];
  if (scheme === null)
    throw new UsageError(`source ${source} is not signed; leave out --signing-secret-file`);
  const content = file === '-' ? await readInput(streams) : await readTextFile(file);
  const secret = content.replace(/\r?\n$/, '');
  const isOneLine = secret.length >= 8 && !/\p{Cc}/u.test(secret);
  if (isOneLine && SCHEMES[scheme].keyOf(secret)) return secret;
  const form =
    scheme === 'standard' ? 'whsec_ and 24 to 64 bytes in Base64' : 'at least 8 characters';
  throw new UsageError(
    `not a signing secret of ${source}; it is one line of ${form}, as the sender shows it`,
  );
}

async function readTextFile(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    throw new UsageError(`--signing-secret-file cannot be read (${codeOf(error)})`);
  }
}

/** Seals a signing secret. The service can open it only if it has the same WEBHOOK_SECRET. */
async function seal(
  secret: string,
  given: SigningKeys | null,
  database: Database,
  { note }: Terminal,
): Promise<SealedSecret> {
  const keys = requireKeys(given);
  const used = await countByKey(database);
  if (used.some(({ key_id }) => !keys.some(({ id }) => id === key_id))) note(OTHER_KEYS);
  return sealSecret(keys[0], secret);
}

function requireKeys(keys: SigningKeys | null): SigningKeys {
  if (keys) return keys;
  throw new ConfigurationError(['WEBHOOK_SECRET must be set to the value that the service has.']);
}

/** Runs work on the webhook database. The keys are null without WEBHOOK_SECRET. */
export function withWebhook<T>(
  terminal: Terminal,
  work: (database: Database, keys: SigningKeys | null) => Promise<T>,
): Promise<T> {
  return withDatabase(terminal, settings, SCHEMA, (database, { secrets }) => {
    const [key, ...earlier] = secrets.map(createSigningKey);
    return work(database, key ? [key, ...earlier] : null);
  });
}
