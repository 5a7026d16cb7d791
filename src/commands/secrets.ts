import { stripControlChars, json, printTable, parseDuration, withDatabase } from './administration.ts';
import { type Answer, ask, connectToSecrets, dataOf, warnIfOpen } from './client.ts';
import { type Command, type LineReader, OperationFailed, type Terminal, UsageError } from './command.ts';
import { createServerKey } from '../crypto/box.ts';
import { isUuid } from '../crypto/text.ts';
import { listKeys } from '../secrets/keys.ts';
import { MIGRATIONS, SCHEMA } from '../secrets/migrations.ts';
import * as settings from '../secrets/settings.ts';
import { readServiceSettings } from '../settings.ts';

const oneId = { shown: 'ID', least: 1, most: 1 };

/** All but `secret keys` ask the service over HTTP and need neither its database nor its server secret. */
export const COMMANDS: readonly Command[] = [
  {
    name: 'secret put',
    summary: 'Store the secret on standard input; print its link, or its id and its key',
    options: {
      'expires-in': { type: 'string', value: 'TIME', help: 'seconds, or as 30m, 12h or 7d' },
      'max-reads': { type: 'string', value: 'N', help: 'how often it may be read' },
      passphrase: { type: 'boolean', help: 'lock it with a passphrase too: asked for, or the first line of a pipe' },
    },
    async run({ text, flag }, terminal) {
      const expiresIn = text('expires-in');
      const maxReads = text('max-reads');
      const limits = {
        ...(expiresIn === undefined ? {} : { expires_in: parseDuration('secret put: --expires-in', expiresIn) }),
        ...(maxReads === undefined ? {} : { max_reads: whole(maxReads) }),
      };
      const service = connectToSecrets(terminal.note);
      const { password, ...lock } = await withLines(terminal, async (lines) => {
        if (!flag('passphrase')) return { password: await lines.rest('Secret: ') };
        const passphrase = await lines.next('Passphrase: ');
        if (lines.isTyped && (await lines.next('The same again: ')) !== passphrase) throw new UsageError('secret put: the two are not the same');
        return { passphrase, password: await lines.rest('Secret: ') };
      });
      if (password === '') throw new UsageError(`secret put: there is no secret on standard input${flag('passphrase') ? '; with --passphrase its first line is the passphrase' : ''}`);
      // First, because nothing may fail once the key has been made.
      const { share_pages: hasPages } = dataOf('secret put', await service.ask('GET', '/api/store/options'));
      const { id = '', secret, expires_at: end } = dataOf('secret put', await service.ask('POST', '/api/store/encrypt', { password, ...limits, ...lock }), 'id', 'secret');
      terminal.note(`Stored${end === null ? '' : ` until ${String(end)}`}. This is shown this one time${hasPages === true ? '' : ', the id on the first line, the key on the second'}:`);
      terminal.print(hasPages === true ? `${service.url}/s/${String(id)}#${String(secret)}` : `${String(id)}\n${String(secret)}`);
    },
  },
  {
    name: 'secret get',
    summary: 'Open a secret and print it; the key is asked for, or is the first line of a pipe',
    positionals: { shown: 'LINK|ID', least: 1, most: 1 },
    options: {},
    async run({ positionals: [place = ''] }, terminal) {
      const open = opener(place, terminal);
      const answer = await withLines(terminal, async (lines) => {
        // Whoever has a link may paste the whole of it here.
        const secret = (await lines.next('Key (the part of the link after #): ')).replace(/^.*#/, '').trim();
        if (secret === '') throw new UsageError('secret get: the key is missing on standard input');
        const first = await open({ secret });
        if (first.ok || first.code !== 'passphrase_needed') return first;
        const passphrase = await lines.next('Passphrase: ');
        if (passphrase === '') throw new OperationFailed('this secret is locked with a passphrase: give it as the second line. Nothing was used up');
        return open({ secret, passphrase });
      });
      const password = String(dataOf('secret get', answer, 'password').password);
      const shown = terminal.isShown ? stripControlChars(password) : password;
      if (shown !== password) terminal.note('Control characters, which a terminal would obey, are left out here. If it can be read again, have it written to a file.');
      terminal.print(shown);
    },
  },
  {
    name: 'secret status',
    summary: 'Tell whether, when and how often a secret was read',
    positionals: oneId,
    options: { json },
    async run({ positionals: [id = ''], flag }, { print, note }) {
      const receipt = dataOf('secret status', await connectToSecrets(note).ask('GET', `/api/store/${checked(id, 'secret status')}`), 'id', 'status');
      if (flag('json')) return print(JSON.stringify(receipt));
      const [first, ...rows] = Object.entries(receipt).map(([name, value]) => [name.replaceAll('_', ' '), String(value ?? '–')]);
      printTable(print, first ?? [], rows);
    },
  },
  {
    name: 'secret delete',
    summary: 'Delete a secret at once; its receipt stays',
    positionals: oneId,
    options: {},
    async run({ positionals: [id = ''] }, { note }) {
      dataOf('secret delete', await connectToSecrets(note).ask('DELETE', `/api/store/${checked(id, 'secret delete')}`), 'status');
      note(`Deleted secret ${id}.`);
    },
  },
  {
    name: 'secret keys',
    summary: 'List the server secrets by key id, and how many secrets each still holds',
    options: { json },
    async run({ flag }, { print, note }) {
      const config = readServiceSettings('secrets', settings);
      const current = config.serverSecret === '' ? null : createServerKey(config.serverSecret);
      const previous = config.previousSecrets.map(createServerKey);
      if (!current) note('Without SERVER_SECRET, as the service has it, it cannot be told which of these it has.');
      const keys = await withDatabase('secrets', config.database, SCHEMA, MIGRATIONS, (database) => listKeys(database, current, previous));
      if (flag('json')) return print(JSON.stringify(keys));
      printTable(print, ['KEY ID', 'STATE', 'SECRETS', 'FIRST USED'], keys.map((key) => [key.key_id, key.state, String(key.secrets), key.first_used_at?.toISOString() ?? '–']));
    },
  },
];

/** With a link, its own service is asked, and gets no token; with an id, the one of GATEHOUSE_URL. */
function opener(place: string, { note }: Terminal): (keys: object) => Promise<Answer> {
  if (isUuid(place.toLowerCase())) {
    const service = connectToSecrets(note);
    return (keys) => service.ask('POST', `/api/store/decrypt?id=${place}`, keys);
  }
  if (place.includes('#')) throw new UsageError('secret get: leave out the key (# and what follows), which others could see among the arguments; it is asked for');
  const link = URL.canParse(place) ? new URL(place) : null;
  if (!link || !/^https?:$/.test(link.protocol) || !/\/s\/[0-9a-f-]{36}\/?$/i.test(link.pathname)) {
    throw new UsageError('secret get: LINK must be such as https://host/s/ID, without the # and the key behind it, and ID a UUID');
  }
  warnIfOpen(link, note);
  return (keys) => ask('POST', link.href, {}, keys);
}

async function withLines<T>({ openLines }: Terminal, work: (lines: LineReader) => Promise<T>): Promise<T> {
  const lines = await openLines();
  try {
    return await work(lines);
  } finally {
    lines.close();
  }
}

function checked(id: string, command: string): string {
  if (!isUuid(id.toLowerCase())) throw new UsageError(`${command}: ID must be a UUID, as secret put prints it or a link has it behind /s/`);
  return id;
}

function whole(text: string): number {
  if (!/^[0-9]{1,10}$/.test(text)) throw new UsageError('secret put: --max-reads must be a whole number');
  return Number(text);
}
