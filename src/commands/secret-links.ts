import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { connect, PassphraseNeeded, textsOf } from './secrets-client.ts';
import { OperationFailed, type Terminal, UsageError } from './command.ts';
import type { LineReader } from './terminal.ts';
import { codeOf } from '../runtime/errors.ts';
import { isUuid, stripControlChars } from '../runtime/text.ts';
import { Findings, readVariables } from '../runtime/variables.ts';
import { VARIABLES } from '../secrets/settings.ts';
import { ConfigurationError } from '../settings.ts';

export type About =
  Readonly<{ kind: 'text' }> | Readonly<{ kind: 'file'; name: string; type: string }>;
export type Content = Readonly<{ about: About; bytes: Uint8Array }>;
/** What the service gets as the passphrase, if there is one. */
type Proof = Readonly<{ proof: string | undefined }>;

/** The end-to-end encryption of the share pages. docs/secrets.md describes the format. */
interface Envelope {
  seal(
    content: Content,
    passphrase: string,
  ): Promise<Proof & Readonly<{ key: string; envelope: string }>>;
  open(envelope: string, contentKey: Uint8Array): Promise<Content | null>;
  deriveKeys(
    key: string,
    passphrase: string,
  ): Promise<(Proof & Readonly<{ content: Uint8Array }>) | null>;
  envelopeLength(about: About, size: number): number;
  safeName(name: string): string;
}

/** The same code as in browsers. The service itself does not use it. */
export const loadEnvelope = async (): Promise<Envelope> =>
  import(new URL('../secrets/pages/envelope.js', import.meta.url).href);

const NO_TOKEN = 'AUTH_TOKEN must be set to the bearer token of the secrets service.';
const NO_PASSPHRASE =
  'this secret requires a passphrase: send it as the next line. No read was used up';
const MISTAKE = 'the key has a mistake: copy the whole link again. No read was used up';
const DAMAGED = 'the secret was read, but does not open with this key: ask the sender for another';

/**
 * @returns a client of the service at GATEHOUSE_URL, with AUTH_TOKEN.
 * @throws ConfigurationError
 */
export function connectToSecrets({ environment, note }: Terminal) {
  const { GATEHOUSE_URL, AUTH_TOKEN } = VARIABLES;
  const findings = new Findings();
  const values = readVariables({ GATEHOUSE_URL, AUTH_TOKEN }, environment, findings);
  if (findings.problems.length > 0) throw new ConfigurationError(findings.problems);
  const token = values.AUTH_TOKEN;
  if (token === null) throw new ConfigurationError([NO_TOKEN]);
  const url = values.GATEHOUSE_URL.replace(/\/$/, '');
  return { url, ask: connect(url, token, note) };
}

/**
 * Encrypts a text so that the service cannot read it.
 * @returns the rest of the request, and the key for the link
 */
export async function sealText(text: string, passphrase: string | undefined) {
  const { seal } = await loadEnvelope();
  const bytes = new TextEncoder().encode(text);
  const sealed = await seal({ about: { kind: 'text' }, bytes }, passphrase ?? '');
  return { key: sealed.key, request: { password: sealed.envelope, passphrase: sealed.proof } };
}

/**
 * Asks for a link, or for the key to one, and opens it.
 * @param target an id or a link without its key
 */
export async function readSecret(
  target: string | undefined,
  lines: LineReader,
  terminal: Terminal,
): Promise<Content> {
  const known = target === undefined ? null : openerOf(target, terminal);
  const prompt = known ? 'Key (the part of the link after #): ' : 'Link: ';
  const typed = (await lines.next(prompt)).trim();
  const hash = typed.indexOf('#');
  const key = typed.slice(hash + 1);
  if (key === '') throw new UsageError('no key on standard input');
  if (!known && hash < 1) throw new UsageError('no link with its key on standard input');
  const send = known ?? openerOf(typed.slice(0, hash), terminal);
  try {
    return await openWith(send, key, undefined);
  } catch (error) {
    if (!(error instanceof PassphraseNeeded)) throw error;
  }
  const passphrase = await lines.next('Passphrase: ');
  if (passphrase === '') throw new OperationFailed(NO_PASSPHRASE);
  return openWith(send, key, passphrase);
}

type Send = (body: object) => Promise<Readonly<Record<string, unknown>>>;

/**
 * Reads a secret once, and decrypts it if its key has a second part: then it is encrypted end to
 * end.
 * @throws PassphraseNeeded
 */
async function openWith(send: Send, key: string, passphrase: string | undefined): Promise<Content> {
  const [secret, envelopeKey] = key.split('.');
  if (envelopeKey === undefined) {
    const [password = ''] = textsOf(await send({ secret, passphrase }), 'password');
    return { about: { kind: 'text' }, bytes: new TextEncoder().encode(password) };
  }
  const { deriveKeys, open } = await loadEnvelope();
  const keys = await deriveKeys(envelopeKey, passphrase ?? '');
  // A mistyped key is noticed before a read is used up.
  if (!keys) throw new OperationFailed(MISTAKE);
  const [envelope = ''] = textsOf(await send({ secret, passphrase: keys.proof }), 'password');
  const content = await open(envelope, keys.content);
  if (!content) throw new OperationFailed(DAMAGED);
  return content;
}

/** A link is sent to its own host, without the token; an id to GATEHOUSE_URL. */
function openerOf(target: string, terminal: Terminal): Send {
  if (isUuid(target.toLowerCase())) {
    const { ask } = connectToSecrets(terminal);
    return (body) => ask('POST', `/api/store/decrypt?id=${target}`, body);
  }
  const link = URL.canParse(target) && !target.includes('#') ? new URL(target) : null;
  if (!link || !/^https?:$/.test(link.protocol) || !/\/s\/[0-9a-f-]{36}\/?$/i.test(link.pathname)) {
    throw new UsageError(
      'give a UUID or a link, without # and the key: other users can see arguments',
    );
  }
  const send = connect(link.href, null, terminal.note);
  return (body) => send('POST', '', body);
}

/**
 * A text is printed. A file is saved under its own name on a terminal, and is written as it is into
 * a pipe.
 */
export async function showContent({ about, bytes }: Content, terminal: Terminal): Promise<void> {
  const { isShown, note, print, streams } = terminal;
  if (about.kind === 'file') {
    const from = `File "${about.name}", ${bytes.length} bytes`;
    if (isShown) note(`${from}, saved as ${await save(about.name, bytes)}`);
    else streams.stdout.write(bytes, () => note(`${from}.`));
    return;
  }
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  if (isShown && stripControlChars(text) !== text)
    note('Control characters were removed. Redirect the output to keep them.');
  print(text);
}

/**
 * Never overwrites a file. Otherwise saves to the temporary directory, because the secret may be
 * deleted by now.
 */
async function save(name: string, bytes: Uint8Array): Promise<string> {
  const extension = extname(name);
  const stem = name.slice(0, name.length - extension.length);
  for (const directory of ['.', tmpdir()]) {
    for (let count = 0; count < 100; count += 1) {
      const path = join(directory, count === 0 ? name : `${stem} (${count})${extension}`);
      const code = await writeNewFile(path, bytes);
      if (code === null) return path;
      if (code !== 'EEXIST') break;
    }
  }
  throw new OperationFailed(
    'the file was read and could not be saved here nor in the temporary directory',
  );
}

/** @returns null, or the code of the error */
async function writeNewFile(path: string, bytes: Uint8Array): Promise<string | null> {
  try {
    await writeFile(path, bytes, { flag: 'wx', mode: 0o600 });
    return null;
  } catch (error) {
    return codeOf(error);
  }
}
