import {
  type Command,
  flag,
  type Invocation,
  json,
  OperationFailed,
  option,
  type Terminal,
  UsageError,
} from './command.ts';
import { counted, databaseOf, requireUuid, restoredCommand } from './database.ts';
import {
  type LineReader,
  membersOf,
  readDuration,
  printMembers,
  printRows,
  withLines,
} from './terminal.ts';
import { tokenCommands } from './tokens.ts';
import { createServerKey } from '../secrets/envelope.ts';
import { insertToken } from '../platform/db/tokens.ts';
import { SCHEMA } from '../secrets/migrations.ts';
import * as settings from '../secrets/settings.ts';
import { listKeys } from '../secrets/store/server-keys.ts';
import { PREFIX } from '../secrets/store/tokens.ts';
import {
  deleteRestored,
  listTokens,
  revokeRestored,
  type Token,
  withdrawRestored,
} from './store/secrets.ts';
import { connectToSecrets, getSecret, nextLink, readAnswer, showContent } from './secret-links.ts';
import {
  checkSize,
  contentOf,
  contentOfFile,
  sendAnswer,
  textOf,
  UNEXPECTED,
} from './secrets-client.ts';
import { fitLink, joinKeys, seal } from '../secrets/pages/envelope.js';
import { createRequest, linksOf } from '../secrets/pages/request-keys.js';

const inSecrets = databaseOf(settings, SCHEMA);

/**
 * The commands for tokens and keys, and `restored secrets`, use the database: creating a token must
 * not require a token. The others use HTTP, and need neither a database nor a server secret.
 */
export const COMMANDS: readonly Command[] = [
  {
    name: 'secret put',
    summary:
      'Encrypt and store a text from standard input, or a file; print its link, or its id and key',
    options: {
      'expires-in': option('TIME', 'when it expires: seconds, or such as 30s, 15m, 12h, 7d or 1w'),
      'max-reads': option('N', 'how often it can be read'),
      passphrase: flag('also require a passphrase: the first line of standard input'),
      file: option('PATH', 'store this file, with its name, in place of a text'),
      'no-end-to-end': flag('let the service see the secret, so that programs can read it'),
    },
    async run(call) {
      const limits = readLimits(call);
      const service = connectToSecrets(call);
      const { passphrase, content } = await readSecret(call);
      // Asked first: once the secret is stored nothing may fail, because its key exists only in
      // that reply.
      const options = await service.ask('GET', '/api/store/options');
      checkPassphrase(passphrase, options.passphrase);
      // The service must not choose whether it sees the secret: only the sender does.
      const isEndToEnd = !call.flag('no-end-to-end');
      if (isEndToEnd) checkSize(content, membersOf(options.password).max_bytes);
      const sealed = isEndToEnd ? await seal(content, passphrase ?? '') : null;
      const request = sealed
        ? { password: sealed.envelope, passphrase: sealed.proof }
        : { password: Buffer.from(content.bytes).toString(), passphrase };
      const reply = await service.ask('POST', '/api/store/encrypt', { ...request, ...limits });
      const id = textOf(reply, 'id');
      const secret = textOf(reply, 'secret');
      const { receipt = secret } = reply;
      if (!fitLink(id, secret, String(receipt))) throw new OperationFailed(UNEXPECTED);
      const key = sealed ? joinKeys(secret, sealed.key) : secret;
      const hasPage = options.share_pages === true;
      const until = reply.expires_at === null ? '' : ` until ${reply.expires_at}`;
      call.note(`Stored${until}. ${hasPage ? 'Link' : 'Id and key'} (shown only once):`);
      for (const line of hasPage ? [`${service.url}/s/${id}#${key}`] : [id, key]) call.print(line);
      if (reply.receipt !== undefined)
        call.note(`Receipt, for you alone: ${service.url}/r/${id}#${receipt}`);
    },
  },
  {
    name: 'secret get',
    summary: 'Open a secret and print it; reads its link or its key from standard input',
    positionals: '[LINK|ID]',
    async run(call) {
      const content = await withLines(call, (lines) => getSecret(call, lines));
      await showContent(content, call);
    },
  },
  {
    name: 'secret request',
    summary: 'Ask someone for a secret; print the link to send, and the link that opens the answer',
    positionals: 'TITLE',
    options: {
      'expires-in': option('TIME', 'time limit for the answer, and again for reading it'),
      file: flag('ask for a file'),
      wait: flag('wait for the answer and print it; the links go to standard error'),
    },
    async run(call) {
      const { ask, url } = connectToSecrets(call);
      const kind = call.flag('file') ? 'file' : 'text';
      const { key, request } = await createRequest(kind, call.first);
      const limits = readLimits(call);
      const reply = await ask('POST', '/api/store/request', { ...request, ...limits });
      const until = textOf(reply, 'expires_at');
      const made = { id: textOf(reply, 'id'), receipt: textOf(reply, 'receipt') };
      const links = linksOf(url, made, request.digest, key);
      if (!links) throw new OperationFailed(UNEXPECTED);
      const { send, keep } = links;
      const waits = call.flag('wait');
      const show = waits ? call.note : call.print;
      call.note(`Open until ${until}. Send the first link. Only the second opens the answer:`);
      show(send);
      show(keep);
      if (waits) await showContent(await readAnswer(keep, call), call);
    },
  },
  {
    name: 'secret answer',
    summary: 'Answer a request; reads its link, and then the text, from standard input',
    options: { file: option('PATH', 'the file, if one is asked for') },
    run: (call) =>
      withLines(call, async (lines) =>
        sendAnswer(call, (await nextLink(lines, ['answer'])).link, () => readText(lines)),
      ),
  },
  {
    name: 'secret status',
    summary: 'Show whether, when and how often a secret was read',
    positionals: 'ID',
    options: { json },
    run: async (call) => printMembers(call, await askAbout(call, 'GET')),
  },
  {
    name: 'secret delete',
    summary: 'Delete a secret; its receipt is kept',
    positionals: 'ID',
    async run(call) {
      await askAbout(call, 'DELETE');
      return `Deleted secret ${call.first}.`;
    },
  },
  {
    name: 'secret keys',
    summary: 'List the server secrets by key id, and how many secrets and requests need each',
    options: { json },
    async run(call) {
      const keys = await inSecrets(call, (database, { serverSecret, previousSecrets }) => {
        const current = serverSecret === '' ? null : createServerKey(serverSecret);
        if (!current) call.note('SERVER_SECRET is not set, so the state of each key is unknown.');
        return listKeys(
          database,
          current,
          current ? previousSecrets.map(createServerKey) : [],
          null,
        );
      });
      printRows(call, keys, {
        'KEY ID': 'key_id',
        STATE: 'state',
        SECRETS: 'secrets',
        'FIRST USED': 'first_used_at',
      });
    },
  },
  ...tokenCommands({
    name: 'secret token',
    noun: 'token for secrets',
    schema: SCHEMA.name,
    prefix: PREFIX,
    roles: 'sender: store secrets, see and delete its own; operator: everything. Default sender',
    inService: inSecrets,
    list: async (call) =>
      printRows(call, await inSecrets(call, listTokens), {
        ID: 'id',
        NAME: 'name',
        ROLE: 'role',
        CREATED: 'created_at',
        STATE: stateOf,
      }),
    create: (call, token) =>
      inSecrets(call, async (database) => {
        await database.write((sql) => insertToken(sql, SCHEMA.name, token));
      }),
  }),
  restoredCommand(
    inSecrets,
    {
      name: 'restored secrets',
      summary:
        'After a restore, delete secrets that may have been read, withdraw requests, and revoke tokens',
      options: { all: flag('delete all secrets: some may have been deleted since') },
    },
    async (sql, call) => {
      const secrets = await deleteRestored(sql, call.flag('all'));
      const requests = await withdrawRestored(sql);
      const tokens = await revokeRestored(sql);
      const deleted = counted(secrets.count, 'secret');
      const withdrawn = counted(requests.count, 'request');
      return `${deleted} deleted, ${withdrawn} withdrawn, ${counted(tokens.count, 'token')} revoked`;
    },
  ),
];

/** What is to be stored, and its passphrase. Standard input is read only if something is on it. */
async function readSecret(call: Invocation) {
  const path = call.text('file');
  const wantsPassphrase = call.flag('passphrase');
  if (path !== undefined && call.flag('no-end-to-end'))
    throw new UsageError('--file needs end-to-end encryption: only that keeps a name');
  const file = path === undefined ? null : await contentOfFile(path);
  if (file && !wantsPassphrase) return { content: file, passphrase: undefined };
  return withLines(call, async (lines) => ({
    passphrase: wantsPassphrase ? await readPassphrase(call, lines) : undefined,
    content: file ?? contentOf(await readText(lines)),
  }));
}

function readLimits(call: Invocation) {
  const maxReads = call.text('max-reads');
  if (maxReads !== undefined && !/^[0-9]{1,10}$/.test(maxReads))
    throw new UsageError('--max-reads must be a whole number');
  return {
    expires_in: readDuration(call, 'expires-in'),
    max_reads: maxReads === undefined ? undefined : Number(maxReads),
  };
}

/** Whoever types it unseen may mistype, and so types it twice. */
async function readPassphrase({ stdin }: Terminal, lines: LineReader) {
  const passphrase = await lines.next('Passphrase: ');
  const repeated = stdin().isTTY ? await lines.next('Repeat the passphrase: ') : passphrase;
  if (repeated !== passphrase) throw new UsageError('the passphrases do not match');
  return passphrase;
}

async function readText(lines: LineReader) {
  const text = await lines.rest('Secret: ');
  if (text === '')
    throw new UsageError(
      'no secret on standard input, or nothing after a first line with the link or passphrase',
    );
  return text;
}

/** The service cannot check it in a link: it gets a value that is derived from it. */
function checkPassphrase(passphrase: string | undefined, limits: unknown) {
  if (passphrase === undefined) return;
  const min = Number(membersOf(limits).min_length ?? 1);
  if (passphrase.length < min)
    throw new UsageError(`passphrase must have at least ${min} characters`);
}

async function askAbout(call: Invocation, method: string) {
  requireUuid(call.first.toLowerCase(), ': secret put prints it, and a link has it after /s/');
  const receipt = await connectToSecrets(call).ask(method, `/api/store/${call.first}`);
  for (const name of ['id', 'status']) textOf(receipt, name);
  return receipt;
}

function stateOf({ revoked_at, previous_until }: Token) {
  if (revoked_at) return `revoked ${revoked_at.toISOString()}`;
  if (!previous_until) return 'active';
  return `active, replaced; the old one until ${previous_until.toISOString()}`;
}
