import { connect, connectToSecrets, PassphraseNeeded, textsOf } from './client.ts';
import { type Command, flag, json, OperationFailed, option, type Terminal, UsageError } from './command.ts';
import { confirm, counted, ifConfirmed, requireUuid, withDatabase } from './database.ts';
import { type LineReader, openLines, parseDuration, printMembers, printRows, stripControlChars } from './terminal.ts';
import { createServerKey } from '../crypto/box.ts';
import { isUuid } from '../crypto/text.ts';
import { MIGRATIONS, SCHEMA } from '../secrets/migrations.ts';
import * as settings from '../secrets/settings.ts';
import { listKeys } from '../secrets/store.ts';
import { deleteRestored } from '../secrets/store/restored.ts';
import { readServiceSettings } from './settings.ts';

const NO_SECRET = 'no secret on standard input, or with --passphrase nothing after its first line';
const NO_PASSPHRASE = 'this secret requires a passphrase: send it as the second line. No read was used up';

/** All but `secret keys` and `restored secrets` use HTTP, and need neither the database nor the server secret. */
export const COMMANDS: readonly Command[] = [
  {
    name: 'secret put', summary: 'Store a secret from standard input; print its link, or its id and key',
    options: {
      'expires-in': option('TIME', 'when it expires: seconds, or such as 30s, 15m, 12h, 7d or 1w'),
      'max-reads': option('N', 'how often it can be read'),
      passphrase: flag('also require a passphrase: the first line of standard input'),
    },
    async run({ text, flag }, terminal) {
      const [expiresIn, maxReads] = [text('expires-in'), text('max-reads')];
      const expires_in = expiresIn === undefined ? undefined : parseDuration('--expires-in', expiresIn);
      if (!/^[0-9]{1,10}$/.test(maxReads ?? '0')) throw new UsageError('--max-reads must be a whole number');
      const max_reads = maxReads === undefined ? undefined : Number(maxReads);
      const service = connectToSecrets(terminal.note);
      const input = await withLines(async (lines) => {
        const passphrase = flag('passphrase') ? await lines.next('Passphrase: ') : undefined;
        const repeated = flag('passphrase') && lines.isTyped ? await lines.next('Repeat the passphrase: ') : passphrase;
        if (repeated !== passphrase) throw new UsageError('the passphrases do not match');
        return { passphrase, password: await lines.rest('Secret: ') };
      });
      if (input.password === '') throw new UsageError(NO_SECRET);
      // Asked first: once the secret is stored nothing may fail, because its key exists only in that reply.
      const { share_pages: hasPages } = await service.ask('GET', '/api/store/options');
      const reply = await service.ask('POST', '/api/store/encrypt', { ...input, expires_in, max_reads });
      const [id, secret] = textsOf(reply, 'id', 'secret');
      const until = reply.expires_at === null ? '' : ` until ${String(reply.expires_at)}`;
      terminal.note(`Stored${until}. ${hasPages === true ? 'Link' : 'Id and key'} (shown only once):`);
      terminal.print(hasPages === true ? `${service.url}/s/${id}#${secret}` : `${id}\n${secret}`);
    },
  },
  {
    name: 'secret get', summary: 'Open a secret and print it; reads the key from standard input',
    positionals: 'LINK|ID', options: {},
    async run({ positionals: [target = ''] }, terminal) {
      const open = openerOf(target, terminal);
      const reply = await withLines(async (lines) => {
        // The whole link is accepted too.
        const secret = (await lines.next('Key (the part of the link after #): ')).replace(/^.*#/, '').trim();
        if (secret === '') throw new UsageError('no key on standard input');
        return open({ secret }).catch(async (error) => {
          if (!(error instanceof PassphraseNeeded)) throw error;
          const passphrase = await lines.next('Passphrase: ');
          if (passphrase === '') throw new OperationFailed(NO_PASSPHRASE);
          return open({ secret, passphrase });
        });
      });
      const [password = ''] = textsOf(reply, 'password');
      const shown = terminal.isShown ? stripControlChars(password) : password;
      if (shown !== password) terminal.note('Control characters were removed. Redirect the output to keep them.');
      terminal.print(shown);
    },
  },
  {
    name: 'secret status', summary: 'Show whether, when and how often a secret was read',
    positionals: 'ID', options: { json },
    async run(given, terminal) {
      printMembers(given, terminal, await askAbout(given.positionals, 'GET', terminal.note));
    },
  },
  {
    name: 'secret delete', summary: 'Delete a secret; its receipt is kept',
    positionals: 'ID', options: {},
    async run({ positionals }, { note }) {
      await askAbout(positionals, 'DELETE', note);
      note(`Deleted secret ${positionals.join()}.`);
    },
  },
  {
    name: 'secret keys', summary: 'List the server secrets by key id, and how many secrets need each',
    options: { json },
    async run(given, terminal) {
      const { serverSecret, previousSecrets, database } = readServiceSettings('secrets', settings);
      const current = serverSecret === '' ? null : createServerKey(serverSecret);
      const previous = previousSecrets.map(createServerKey);
      if (!current) terminal.note('SERVER_SECRET is not set, so the state of each key is unknown.');
      const keys = await withDatabase('secrets', database, SCHEMA, MIGRATIONS, (db) => listKeys(db, current, previous));
      printRows(given, terminal, keys, ['KEY ID', 'STATE', 'SECRETS', 'FIRST USED'], (key) =>
        [key.key_id, key.state, key.secrets, key.first_used_at]);
    },
  },
  {
    name: 'restored secrets',
    summary: 'After a restore, delete the secrets with a limit of reads: some may have been read since the backup',
    options: { all: flag('delete all secrets: some may have been deleted since'), confirm },
    async run(given, { note }) {
      const { database: address } = readServiceSettings('secrets', settings);
      const done = await withDatabase('secrets', address, SCHEMA, MIGRATIONS, (database) =>
        ifConfirmed(given, database, async (sql) =>
          `${counted(await deleteRestored(sql, given.flag('all')), 'secret')} deleted`));
      note(`${done}.`);
    },
  },
];

/** A link is sent to its own host, without the token; an id to GATEHOUSE_URL. */
function openerOf(target: string, { note }: Terminal) {
  if (isUuid(target.toLowerCase())) {
    const { ask } = connectToSecrets(note);
    return (body: object) => ask('POST', `/api/store/decrypt?id=${target}`, body);
  }
  const link = URL.canParse(target) && !target.includes('#') ? new URL(target) : null;
  if (!link || !/^https?:$/.test(link.protocol) || !/\/s\/[0-9a-f-]{36}\/?$/i.test(link.pathname)) {
    throw new UsageError('give a UUID or a link, without # and the key: other users can see arguments');
  }
  const send = connect(link.href, null, note);
  return (body: object) => send('POST', '', body);
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
