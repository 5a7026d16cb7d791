import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { connect, connectToSecrets, PassphraseNeeded, textsOf } from './client.ts';
import { OperationFailed, type Terminal, UsageError } from './command.ts';
import { type LineReader, stripControlChars } from './terminal.ts';
import { isUuid } from '../crypto/text.ts';
import { codeOf } from '../runtime/errors.ts';
import { type Content, loadEnvelope } from '../secrets/envelope.ts';

const NO_PASSPHRASE =
  'this secret requires a passphrase: send it as the next line. No read was used up';
const MISTAKE = 'the key has a mistake: copy the whole link again. No read was used up';
const DAMAGED = 'the secret was read, but does not open with this key: ask the sender for another';

/** Encrypts a text so that the service cannot read it. @returns the rest of the request, and the key for the link */
export async function sealText(text: string, passphrase: string | undefined) {
  const bytes = new TextEncoder().encode(text);
  const sealed = await (
    await loadEnvelope()
  ).seal({ about: { kind: 'text' }, bytes }, passphrase ?? '');
  return { key: sealed.key, request: { password: sealed.envelope, passphrase: sealed.proof } };
}

/** Asks for a link, or for the key to one, and opens it. @param target an id or a link without its key */
export async function readSecret(
  target: string | undefined,
  lines: LineReader,
  terminal: Terminal,
): Promise<Content> {
  const known = target === undefined ? null : openerOf(target, terminal);
  const typed = (
    await lines.next(target === undefined ? 'Link: ' : 'Key (the part of the link after #): ')
  ).trim();
  const [, address = '', key = typed] = /^(.*?)#(.*)$/.exec(typed) ?? [];
  if (key === '') throw new UsageError('no key on standard input');
  if (target === undefined && address === '')
    throw new UsageError('no link with its key on standard input');
  const send = known ?? openerOf(address, terminal);
  const [secret = '', envelopeKey] = key.split('.');
  const envelope = envelopeKey === undefined ? null : await loadEnvelope();
  // Before a read is used up.
  const keysFor = async (passphrase: string) => {
    const keys = envelope && (await envelope.deriveKeys(envelopeKey ?? '', passphrase));
    if (envelope && !keys) throw new OperationFailed(MISTAKE);
    return keys;
  };
  let keys = await keysFor('');
  const reply = await send({ secret }).catch(async (error) => {
    if (!(error instanceof PassphraseNeeded)) throw error;
    const passphrase = await lines.next('Passphrase: ');
    if (passphrase === '') throw new OperationFailed(NO_PASSPHRASE);
    keys = await keysFor(passphrase);
    return send({ secret, passphrase: keys ? keys.proof : passphrase });
  });
  const [password = ''] = textsOf(reply, 'password');
  if (!envelope || !keys)
    return { about: { kind: 'text' }, bytes: new TextEncoder().encode(password) };
  const content = await envelope.open(password, keys.content);
  if (!content) throw new OperationFailed(DAMAGED);
  return content;
}

/** A link is sent to its own host, without the token; an id to GATEHOUSE_URL. */
function openerOf(target: string, { note }: Terminal) {
  if (isUuid(target.toLowerCase())) {
    const { ask } = connectToSecrets(note);
    return (body: object) => ask('POST', `/api/store/decrypt?id=${target}`, body);
  }
  const link = URL.canParse(target) && !target.includes('#') ? new URL(target) : null;
  if (!link || !/^https?:$/.test(link.protocol) || !/\/s\/[0-9a-f-]{36}\/?$/i.test(link.pathname)) {
    throw new UsageError(
      'give a UUID or a link, without # and the key: other users can see arguments',
    );
  }
  const send = connect(link.href, null, note);
  return (body: object) => send('POST', '', body);
}

/** A text is printed. A file is saved under its own name on a terminal, and is written as it is into a pipe. */
export async function showContent({ about, bytes }: Content, terminal: Terminal): Promise<void> {
  if (about.kind === 'file') {
    const from = `File "${stripControlChars(about.name)}", ${bytes.length} bytes`;
    if (!terminal.isShown) return void process.stdout.write(bytes, () => terminal.note(`${from}.`));
    return terminal.note(`${from}, saved as ${await save(about.name, bytes)}`);
  }
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  const shown = terminal.isShown ? stripControlChars(text) : text;
  if (shown !== text)
    terminal.note('Control characters were removed. Redirect the output to keep them.');
  terminal.print(shown);
}

/** Never overwrites a file. Otherwise saves to the temporary directory, because the secret may be deleted by now. */
async function save(name: string, bytes: Uint8Array): Promise<string> {
  const extension = extname(name);
  const stem = name.slice(0, name.length - extension.length);
  for (const directory of ['.', tmpdir()]) {
    for (let count = 0; count < 100; count += 1) {
      const path = join(directory, count === 0 ? name : `${stem} (${count})${extension}`);
      const code = await writeFile(path, bytes, { flag: 'wx', mode: 0o600 }).then(
        () => null,
        codeOf,
      );
      if (code === null) return path;
      if (code !== 'EEXIST') break;
    }
  }
  throw new OperationFailed(
    'the file was read and could not be saved here nor in the temporary directory',
  );
}
