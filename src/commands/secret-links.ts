import { randomUUID } from 'node:crypto';
import { open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, extname, join } from 'node:path';
import {
  connect,
  contentOf,
  findAnswer,
  INCOMPLETE,
  PassphraseNeeded,
  textOf,
} from './secrets-client.ts';
import {
  type Content,
  deriveKeys,
  open as openEnvelope,
  splitKeys,
} from '../secrets/pages/envelope.js';
import { findLink, type Kind, type Link } from '../secrets/pages/link.js';
import {
  type Invocation,
  OperationFailed,
  stripControlChars,
  type Terminal,
  UsageError,
} from './command.ts';
import { readClientVariables } from './database.ts';
import type { LineReader } from './terminal.ts';
import { isUuid } from '../platform/runtime/text.ts';
import { readClient } from '../secrets/settings.ts';
import { ConfigurationError } from '../platform/process/settings.ts';

const KINDS: readonly Kind[] = ['s', 'request'];
const PLACE = /^https?:\/\/\S+\/(s|request)\/[0-9a-f-]{36}([/?]|$)/i;
const MISTAKE =
  'the key is incomplete or has a mistake: copy the whole link again. No read was used up';

/**
 * @returns a client of the service at GATEHOUSE_URL, with AUTH_TOKEN.
 * @throws ConfigurationError
 */
export function connectToSecrets(terminal: Terminal) {
  const { address, token } = readClientVariables(terminal, readClient);
  if (token === null)
    throw new ConfigurationError([
      'AUTH_TOKEN must be set to the bearer token of the secrets service.',
    ]);
  const url = address.replace(/\/$/, '');
  return { url, ask: connect(url, token, terminal) };
}

/**
 * Reads a link from standard input, or only its key if the command names the link or the id, and
 * opens the secret.
 */
export async function getSecret(call: Invocation, lines: LineReader) {
  const [target] = call.positionals;
  if (target !== undefined && !isId(target) && !isPlace(target))
    throw new UsageError(
      'give a UUID or a link, without # and the key: other users can see arguments',
    );
  const own = target !== undefined && isId(target) ? connectToSecrets(call).ask : null;
  const link = await findAnswer(await readLink(lines, target), call, false);
  const { keys } = link;
  const send = openerOf(link, own ?? connect(link.base, null, call));
  try {
    return await openWith(send, keys);
  } catch (error) {
    if (!(error instanceof PassphraseNeeded)) throw error;
  }
  const passphrase = await lines.next('Passphrase: ');
  if (passphrase === '')
    throw new OperationFailed(
      'this secret requires a passphrase: send it as the next line. No read was used up',
    );
  return openWith(send, keys, passphrase);
}

/**
 * @param target that the command names: a link or an id
 * @returns its link, without a base for an id
 */
async function readLink(lines: LineReader, target?: string) {
  if (target === undefined) {
    const { text, link } = await nextLink(lines, KINDS);
    if (link) return link;
    const [place = '', key] = text.split('#');
    if (key === '') throw new UsageError(NO_KEY);
    if (key === undefined || !isPlace(place))
      throw new UsageError(
        'no whole link on standard input: copy all of it, with the # and the key',
      );
    throw new OperationFailed(mistakeIn(place));
  }
  const typed = await lines.next('Key (the part of the link after #): ');
  const key = findLink(typed, KINDS)?.keys ?? typed.slice(typed.indexOf('#') + 1).trim();
  if (key === '') throw new UsageError(NO_KEY);
  const place = isId(target) ? `/s/${target}` : target;
  const link = findLink(`${place}#${key}`, KINDS);
  if (link) return link;
  throw new OperationFailed(mistakeIn(place));
}

/** Mail programs break lines after this many characters at the latest (RFC 5322, 2.1.1). */
const MAX_LINE = 78;
const MAX_LINES = 10;

/**
 * Reads a link, which may go on in further lines.
 * @returns null, and the text, unless it is whole
 */
export async function nextLink(lines: LineReader, kinds: readonly Kind[]) {
  const find = (text: string) => {
    const link = findLink(text, kinds);
    return link && URL.canParse(link.base) ? link : null;
  };
  let text = '';
  for (let count = 1; ; count += 1) {
    const line = (await lines.next(count === 1 ? 'Link: ' : 'The rest of the link: ')).trim();
    text = `${text}\n${line}`.trim();
    const link = find(text);
    const isBroken = text.includes('://') && (line.endsWith('=') || line.length <= MAX_LINE);
    if (link || !isBroken || line === '' || count === MAX_LINES) return { text, link };
  }
}

const NO_KEY = 'no key on standard input: it is the part of the link after #';
const mistakeIn = (place: string) => (/\/request\//i.test(place) ? INCOMPLETE : MISTAKE);

/** Waits for the answer to a request. @param kept the link to keep */
export async function readAnswer(kept: string, terminal: Terminal) {
  const link = findLink(kept, ['request']);
  if (!link) throw new OperationFailed(INCOMPLETE);
  const answer = await findAnswer(link, terminal, true);
  return openWith(openerOf(answer, connect(answer.base, null, terminal)), answer.keys);
}

/**
 * Reads a secret once, and decrypts it if it is encrypted end to end. A mistake in the keys is
 * recognized before a read is used up.
 * @param typed what follows the # of a link
 * @throws PassphraseNeeded
 */
async function openWith(send: ReturnType<typeof openerOf>, typed: string, passphrase?: string) {
  const split = splitKeys(typed);
  if (!split) throw new OperationFailed(MISTAKE);
  const { serviceKey: secret, key } = split;
  if (key === null) return contentOf(textOf(await send({ secret, passphrase }), 'password'));
  const keys = await deriveKeys(key, passphrase ?? '');
  if (!keys) throw new OperationFailed(MISTAKE);
  const envelope = textOf(await send({ secret, passphrase: keys.proof }), 'password');
  const content = await openEnvelope(envelope, keys.content);
  if (!content)
    throw new OperationFailed(
      'the secret was read, but does not open with this key: ask the sender for another',
    );
  return content;
}

const isId = (target: string) => isUuid(target.toLowerCase());

/** Whether a text is a link without the # and the key. */
const isPlace = (target: string) =>
  PLACE.test(target) && URL.canParse(target) && !target.includes('#');

/**
 * @param ask the host of the link, without the token; for an id, which has no base, GATEHOUSE_URL
 */
const openerOf =
  ({ base, id }: Link, ask: ReturnType<typeof connect>) =>
  (body: object) =>
    ask('POST', base === '' ? `/api/store/decrypt?id=${id}` : `/s/${id}`, body);

/**
 * A text is printed. A file is saved under its own name on a terminal, and is written as it is into
 * a pipe.
 * @throws OperationFailed if no file can be written, after printing the content as Base64
 */
export async function showContent({ about, bytes }: Content, terminal: Terminal) {
  const { stdout, note, print, printText } = terminal;
  if (about.kind === 'file') {
    const from = `File "${about.name}", ${bytes.length} bytes`;
    if (!stdout.isTTY) {
      stdout.write(bytes, () => note(`${from}.`));
      return;
    }
    const path = await save(about.name, bytes);
    if (path !== null) return note(`${from}, saved as ${path}`);
    print(Buffer.from(bytes).toString('base64'));
    throw new OperationFailed(
      'no file could be written here nor in the temporary directory. The file is above in Base64: "base64 -d" restores it',
    );
  }
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  if (stdout.isTTY && stripControlChars(text) !== text)
    note('Control characters were removed. Redirect the output to keep them.');
  // Byte by byte, so that what had several lines is as it was. A line gets its end, as from `echo`.
  if (!stdout.isTTY && text.includes('\n')) stdout.write(text);
  else printText(text.replace(/\n$/, ''));
}

/**
 * Never overwrites a file. The secret may be deleted by now, so neither a directory nor the name
 * that the sender chose may lose it: the last name is safe on every file system.
 * @returns the path, or null if no file can be written
 */
async function save(name: string, bytes: Uint8Array) {
  const extension = extname(name);
  const stem = basename(name, extension);
  const numbered = Array.from({ length: 99 }, (_, at) => `${stem} (${at + 1})${extension}`);
  const own = `secret-${randomUUID()}`;
  const names = [name, ...numbered, own + extension, own];
  return (await saveIn('.', names, bytes)) ?? saveIn(tmpdir(), names, bytes);
}

/** Writes the whole file or nothing, under the first name that can be created. */
async function saveIn(directory: string, names: readonly string[], bytes: Uint8Array) {
  for (const name of names) {
    const path = join(directory, name);
    const file = await open(path, 'wx', 0o600).catch(() => null);
    if (!file) continue;
    try {
      await file.writeFile(bytes);
      await file.close();
      return path;
    } catch {
      await Promise.allSettled([file.close(), rm(path)]);
      return null;
    }
  }
  return null;
}
