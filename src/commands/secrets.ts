import { connect, connectToSecrets, PassphraseNeeded, textsOf } from './client.ts';
import { type Command, OperationFailed, type Terminal, UsageError } from './command.ts';
import { confirm, counted, ifConfirmed, withDatabase } from './database.ts';
import { json, type LineReader, openLines, parseDuration, printTable, stripControlChars } from './terminal.ts';
import { createServerKey } from '../crypto/box.ts';
import { isUuid } from '../crypto/text.ts';
import { MIGRATIONS, SCHEMA } from '../secrets/migrations.ts';
import * as settings from '../secrets/settings.ts';
import { listKeys } from '../secrets/store.ts';
import { deleteRestored } from '../secrets/store/restored.ts';
import { readServiceSettings } from '../settings.ts';

const oneId = { shown: 'ID', least: 1, most: 1 };
const NO_NUMBER = 'secret put: --max-reads must be a whole number';
const NO_SECRET = 'secret put: no secret on standard input, or with --passphrase nothing after its first line';
const NO_PASSPHRASE = 'this secret requires a passphrase: send it as the second line. No read was used up';

/** All but `secret keys` and `restored secrets` use HTTP, and need neither the database nor the server secret. */
export const COMMANDS: readonly Command[] = [
  {
    name: 'secret put', summary: 'Store a secret from standard input; print its link, or its id and key',
    options: {
      'expires-in': { type: 'string', value: 'TIME', help: 'when it expires: seconds, or such as 30m, 12h or 7d' },
      'max-reads': { type: 'string', value: 'N', help: 'how often it can be read' },
      passphrase: { type: 'boolean', help: 'also require a passphrase: the first line of standard input' },
    },
    async run({ text, flag }, terminal) {
      const [expiresIn, maxReads] = [text('expires-in'), text('max-reads')];
      const expires_in = expiresIn === undefined ? undefined : parseDuration('secret put: --expires-in', expiresIn);
      if (maxReads !== undefined && !/^[0-9]{1,10}$/.test(maxReads)) throw new UsageError(NO_NUMBER);
      const max_reads = maxReads === undefined ? undefined : Number(maxReads);
      const service = connectToSecrets('secret put', terminal.note);
      const input = await withLines(async (lines) => {
        const passphrase = flag('passphrase') ? await lines.next('Passphrase: ') : undefined;
        const repeated = flag('passphrase') && lines.isTyped ? await lines.next('Repeat the passphrase: ') : passphrase;
        if (repeated !== passphrase) throw new UsageError('secret put: the passphrases do not match');
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
    positionals: { shown: 'LINK|ID', least: 1, most: 1 }, options: {},
    async run({ positionals: [target = ''] }, terminal) {
      const open = openerOf(target, terminal);
      const reply = await withLines(async (lines) => {
        // The whole link is accepted too.
        const secret = (await lines.next('Key (the part of the link after #): ')).replace(/^.*#/, '').trim();
        if (secret === '') throw new UsageError('secret get: no key on standard input');
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
    positionals: oneId, options: { json },
    async run({ positionals: [id = ''], flag }, { print, note }) {
      const receipt = await askAbout(id, 'secret status', 'GET', note);
      if (flag('json')) return print(JSON.stringify(receipt));
      const rows = Object.entries(receipt).map(([name, value]) => [name.replaceAll('_', ' '), String(value ?? '–')]);
      printTable(print, rows[0] ?? [], rows.slice(1));
    },
  },
  {
    name: 'secret delete', summary: 'Delete a secret; its receipt is kept',
    positionals: oneId, options: {},
    async run({ positionals: [id = ''] }, { note }) {
      await askAbout(id, 'secret delete', 'DELETE', note);
      note(`Deleted secret ${id}.`);
    },
  },
  {
    name: 'secret keys', summary: 'List the server secrets by key id, and how many secrets need each',
    options: { json },
    async run({ flag }, { print, note }) {
      const { serverSecret, previousSecrets, database } = readServiceSettings('secrets', settings);
      const current = serverSecret === '' ? null : createServerKey(serverSecret);
      const previous = previousSecrets.map(createServerKey);
      if (!current) note('SERVER_SECRET is not set, so the state of each key is unknown.');
      const keys = await withDatabase('secrets', database, SCHEMA, MIGRATIONS, (db) => listKeys(db, current, previous));
      if (flag('json')) return print(JSON.stringify(keys));
      printTable(print, ['KEY ID', 'STATE', 'SECRETS', 'FIRST USED'], keys.map((key) => {
        return [key.key_id, key.state, String(key.secrets), key.first_used_at?.toISOString() ?? '–'];
      }));
    },
  },
  {
    name: 'restored secrets',
    summary: 'After a restore, delete the secrets with a limit of reads: some may have been read since the backup',
    options: { all: { type: 'boolean', help: 'delete all secrets: some may have been deleted since' }, confirm },
    async run(given, { note }) {
      const { database: address } = readServiceSettings('secrets', settings);
      const done = await withDatabase('secrets', address, SCHEMA, MIGRATIONS, (database) =>
        ifConfirmed('restored secrets', given, database, async (sql) =>
          `${counted(await deleteRestored(sql, given.flag('all')), 'secret')} deleted`));
      note(`${done}.`);
    },
  },
];

/** A link is sent to its own host, without the token; an id to GATEHOUSE_URL. */
function openerOf(target: string, { note }: Terminal) {
  if (isUuid(target.toLowerCase())) {
    const { ask } = connectToSecrets('secret get', note);
    return (body: object) => ask('POST', `/api/store/decrypt?id=${target}`, body);
  }
  const link = URL.canParse(target) && !target.includes('#') ? new URL(target) : null;
  if (!link || !/^https?:$/.test(link.protocol) || !/\/s\/[0-9a-f-]{36}\/?$/i.test(link.pathname)) {
    throw new UsageError('secret get: give a UUID or a link, without # and the key: other users can see arguments');
  }
  const send = connect('secret get', link.href, null, note);
  return (body: object) => send('POST', '', body);
}

async function withLines<T>(work: (lines: LineReader) => Promise<T>): Promise<T> {
  const lines = await openLines();
  return work(lines).finally(() => lines.close());
}

async function askAbout(id: string, command: string, method: string, note: Terminal['note']) {
  if (!isUuid(id.toLowerCase())) {
    throw new UsageError(`${command}: ID must be a UUID: secret put prints it, and a link has it after /s/`);
  }
  const receipt = await connectToSecrets(command, note).ask(method, `/api/store/${id}`);
  textsOf(receipt, 'id', 'status');
  return receipt;
}
