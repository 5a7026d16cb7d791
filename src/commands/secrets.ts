import { connectToSecrets, textsOf } from './client.ts';
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
import { type LineReader, openLines, parseDuration, printMembers, printRows } from './terminal.ts';
import { createServerKey } from '../crypto/box.ts';
import type { Database } from '../db/pool.ts';
import { SCHEMA } from '../secrets/schema.ts';
import * as settings from '../secrets/settings.ts';
import { listKeys } from '../secrets/store.ts';
import { deleteRestored, revokeRestored } from '../secrets/store/restored.ts';
import {
  createToken,
  listTokens,
  revokeToken,
  rotateToken,
  type Token,
} from '../secrets/store/tokens.ts';
import { readSecret, sealText, showContent } from './secret-links.ts';

const NO_SECRET = 'no secret on standard input, or with --passphrase nothing after its first line';
const FROM_LIST = ' from gatehouse secret token list';
const ONCE = 'Token (shown only once):';
const UNKNOWN = 'no active token has this id; see: gatehouse secret token list';

const inSecrets = <T>(
  work: (database: Database, read: settings.SecretsSettings) => Promise<T>,
): Promise<T> => withDatabase(settings, SCHEMA, work);

/**
 * The commands for tokens and keys, and `restored secrets`, use the database: creating a token must not require a
 * token. The others use HTTP, and need neither a database nor a server secret.
 */
export const COMMANDS: readonly Command[] = [
  {
    name: 'secret put',
    summary: 'Store a secret from standard input; print its link, or its id and key',
    options: {
      'expires-in': option('TIME', 'when it expires: seconds, or such as 30s, 15m, 12h, 7d or 1w'),
      'max-reads': option('N', 'how often it can be read'),
      passphrase: flag('also require a passphrase: the first line of standard input'),
    },
    async run({ text, flag }, terminal) {
      const [expiresIn, maxReads] = [text('expires-in'), text('max-reads')];
      const expires_in =
        expiresIn === undefined ? undefined : parseDuration('--expires-in', expiresIn);
      if (!/^[0-9]{1,10}$/.test(maxReads ?? '0'))
        throw new UsageError('--max-reads must be a whole number');
      const max_reads = maxReads === undefined ? undefined : Number(maxReads);
      const service = connectToSecrets(terminal.note);
      const input = await withLines(async (lines) => {
        const passphrase = flag('passphrase') ? await lines.next('Passphrase: ') : undefined;
        const repeated =
          flag('passphrase') && lines.isTyped
            ? await lines.next('Repeat the passphrase: ')
            : passphrase;
        if (repeated !== passphrase) throw new UsageError('the passphrases do not match');
        return { passphrase, password: await lines.rest('Secret: ') };
      });
      if (input.password === '') throw new UsageError(NO_SECRET);
      // Asked first: once the secret is stored nothing may fail, because its key exists only in that reply.
      const { share_pages: hasPages, passphrase } = await service.ask('GET', '/api/store/options');
      checkPassphrase(input.passphrase, passphrase);
      // A link is read with the pages or with `secret get`, which both decrypt.
      const { key, request } =
        hasPages === true
          ? await sealText(input.password, input.passphrase)
          : { key: null, request: input };
      const reply = await service.ask('POST', '/api/store/encrypt', {
        ...request,
        expires_in,
        max_reads,
      });
      const [id, secret] = textsOf(reply, 'id', 'secret');
      const until = reply.expires_at === null ? '' : ` until ${String(reply.expires_at)}`;
      terminal.note(`Stored${until}. ${key === null ? 'Id and key' : 'Link'} (shown only once):`);
      terminal.print(key === null ? `${id}\n${secret}` : `${service.url}/s/${id}#${secret}.${key}`);
      const { receipt } = reply;
      if (typeof receipt === 'string')
        terminal.note(`Receipt, for you alone: ${service.url}/r/${id}#${receipt}`);
    },
  },
  {
    name: 'secret get',
    summary: 'Open a secret and print it; reads its link or its key from standard input',
    positionals: '[LINK|ID]',
    options: {},
    async run({ positionals: [target] }, terminal) {
      await showContent(await withLines((lines) => readSecret(target, lines, terminal)), terminal);
    },
  },
  {
    name: 'secret status',
    summary: 'Show whether, when and how often a secret was read',
    positionals: 'ID',
    options: { json },
    async run(given, terminal) {
      printMembers(given, terminal, await askAbout(given.positionals, 'GET', terminal.note));
    },
  },
  {
    name: 'secret delete',
    summary: 'Delete a secret; its receipt is kept',
    positionals: 'ID',
    options: {},
    async run({ positionals }, { note }) {
      await askAbout(positionals, 'DELETE', note);
      note(`Deleted secret ${positionals.join()}.`);
    },
  },
  {
    name: 'secret keys',
    summary: 'List the server secrets by key id, and how many secrets need each',
    options: { json },
    async run(given, terminal) {
      const keys = await inSecrets((database, { serverSecret, previousSecrets }) => {
        const current = serverSecret === '' ? null : createServerKey(serverSecret);
        if (!current)
          terminal.note('SERVER_SECRET is not set, so the state of each key is unknown.');
        return listKeys(database, current, previousSecrets.map(createServerKey), null);
      });
      printRows(given, terminal, keys, ['KEY ID', 'STATE', 'SECRETS', 'FIRST USED'], (key) => [
        key.key_id,
        key.state,
        key.secrets,
        key.first_used_at,
      ]);
    },
  },
  {
    name: 'secret token create',
    summary: 'Create a token for secrets and print it once',
    options: {
      name: option('NAME', 'whose token it is'),
      role: option(
        'ROLE',
        'sender: store secrets, see and delete own ones; operator: everything. Default sender',
      ),
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
    name: 'secret token list',
    summary: 'List the tokens for secrets, oldest first, without the tokens themselves',
    options: { json },
    async run(given, terminal) {
      printRows(
        given,
        terminal,
        await inSecrets(listTokens),
        ['ID', 'NAME', 'ROLE', 'CREATED', 'STATE'],
        cells,
      );
    },
  },
  {
    name: 'secret token rotate',
    positionals: 'ID',
    summary: 'Replace a token for secrets; the old one stays valid for a while',
    options: {
      overlap: option('TIME', 'how long: seconds, or such as 30s, 15m, 12h, 7d or 1w; default 24h'),
    },
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
    name: 'secret token revoke',
    positionals: 'ID',
    options: {},
    summary: 'Revoke a token for secrets at once, on every replica',
    async run({ positionals: [id = ''] }, { note }) {
      requireUuid(id, FROM_LIST);
      if (!(await inSecrets((database) => revokeToken(database, id))))
        throw new OperationFailed(UNKNOWN);
      note(`Revoked token ${id}. The secrets that it has stored stay.`);
    },
  },
  {
    name: 'restored secrets',
    summary:
      'After a restore, delete secrets with a limit of reads, which may have been read, and revoke tokens',
    options: { all: flag('delete all secrets: some may have been deleted since'), confirm },
    async run(given, { note }) {
      const done = await inSecrets((database) =>
        ifConfirmed(given, database, async (sql) => {
          const secrets = counted(await deleteRestored(sql, given.flag('all')), 'secret');
          return `${secrets} deleted, ${counted(await revokeRestored(sql), 'token')} revoked`;
        }),
      );
      note(`${done}.`);
    },
  },
];

/** The service cannot check it in a link: it gets a value that is derived from it. */
function checkPassphrase(passphrase: string | undefined, limits: unknown): void {
  const min =
    typeof limits === 'object' && limits && 'min_length' in limits ? Number(limits.min_length) : 1;
  if ((passphrase?.length ?? min) < min)
    throw new UsageError(`passphrase must have at least ${min} characters`);
}

async function withLines<T>(work: (lines: LineReader) => Promise<T>): Promise<T> {
  const lines = await openLines();
  return work(lines).finally(() => lines.close());
}

async function askAbout([id = '']: readonly string[], method: string, note: Terminal['note']) {
  requireUuid(id.toLowerCase(), ': secret put prints it, and a link has it after /s/');
  const receipt = await connectToSecrets(note).ask(method, `/api/store/${id}`);
  textsOf(receipt, 'id', 'status');
  return receipt;
}

function cells({ id, name, role, created_at, revoked_at, previous_until }: Token) {
  const overlap = previous_until
    ? `, replaced; the old one until ${previous_until.toISOString()}`
    : '';
  return [
    id,
    name,
    role,
    created_at,
    revoked_at ? `revoked ${revoked_at.toISOString()}` : `active${overlap}`,
  ];
}
