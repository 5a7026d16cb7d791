/**
 * The secret commands with links as mail programs leave them, and with files: what was sent comes
 * back byte for byte.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { createTerminal } from '../../../src/commands/command.ts';
import { showContent } from '../../../src/commands/secret-links.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const file = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['secrets'], file.url, { SHARE_PAGES: 'on' });
const url = gatehouse.url.secrets;
const client = secretsClient(url);
const own = { GATEHOUSE_URL: url, AUTH_TOKEN };
const files = mkdtempSync(join(tmpdir(), 'gatehouse-mail-'));
after(() => rmSync(files, { recursive: true }));

async function put(input: string | Buffer, ...options: readonly string[]) {
  const { code, stdout, stderr } = await runCommand(['secret', 'put', ...options], own, input);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}
const get = (input: string, ...words: readonly string[]) =>
  runCommand(['secret', 'get', ...words], {}, input);
const reads = async (link: string) => {
  const id = /[0-9a-f-]{36}/.exec(link)?.[0] ?? '';
  return (await client.receipt(id)).json.reads;
};

const CHANGES: ReadonlyArray<(link: string) => string> = [
  (link) => link.replace('#', '%23'),
  (link) => `<${link.replace('#', '%2523')}>.`,
  (link) => link.replace('#', '?utm_source=mail#'),
  (link) => `https://safe.example/?url=${encodeURIComponent(link)}&data=1`,
  (link) => link.replace(/.{75}(?=.)/g, '$&=\r\n'),
  (link) => `${link.slice(0, 60)}\n> ${link.slice(60)}`,
];

test('get opens a link as mail programs leave it, also in several lines', async () => {
  for (const change of CHANGES) {
    const link = await put('text');
    assert.equal((await get(change(link))).stdout, 'text\n', change(link));
    const locked = await put('by phone\ntext', '--passphrase');
    assert.equal((await get(`${change(locked)}\nby phone\n`)).stdout, 'text\n', change(locked));
  }
});

test('get with a link or an id takes the key with what is around it', async () => {
  for (const change of [(key: string) => `${key}.`, (key: string) => `"${key}"`]) {
    const link = await put('text', '--max-reads', '2');
    const [place = '', key = ''] = link.split('#');
    assert.equal((await get(change(`#${key}`), `${place}?utm_source=mail`)).stdout, 'text\n');
    assert.equal((await get(link.replace('#', '%23'), place)).stdout, 'text\n');
  }
});

test('requests are answered and read with such links', async () => {
  for (const change of CHANGES) {
    const { stdout } = await runCommand(['secret', 'request', 'x'], own);
    const [send = '', keep = ''] = stdout.trimEnd().split('\n');
    const answered = await runCommand(['secret', 'answer'], {}, `${change(send)}\none\ntwo\n`);
    assert.equal(answered.code, 0, answered.stderr);
    assert.equal((await get(change(keep))).stdout, 'one\ntwo\n');
  }
});

test('a link that is not whole is refused, and what follows it is not taken for a part of it', async () => {
  const link = await put('text');
  const cut = link.slice(0, -1);
  for (const input of [`${cut}\nx`, `${cut}.`, `${cut}=\n`, `${link}x`, cut.replace('#', '%23')]) {
    const { code, stdout } = await get(input);
    assert.ok(code !== 0 && stdout === '', input);
  }
  assert.equal(await reads(link), 0);
  assert.equal((await get(link)).stdout, 'text\n');
});

test('a key that is no UTF-8 text is refused', async () => {
  const place = '00000000-0000-4000-8000-000000000000';
  const input = Buffer.from('fffe', 'hex');
  const refused = await runCommand(['secret', 'get', place], own, input);
  assertRefused(refused, 2, /standard input is not UTF-8 text/);
});

test('an argument that holds an encoded link is refused', async () => {
  const link = await put('text');
  for (const sign of ['%23', '%2523'])
    assertRefused(
      await get('', link.replace('#', sign)),
      2,
      /an argument holds a key, which other users of this machine can see/,
    );
});

/** Bytes as `get` writes them into a pipe. */
async function received(bytes: Uint8Array<ArrayBuffer>, about: { kind: 'text' }) {
  const stdout = new PassThrough();
  const streams = { stdin: process.stdin, stdout, stderr: new PassThrough() };
  await showContent(
    { about, bytes },
    createTerminal(streams, {}, () => true),
  );
  stdout.end();
  return buffer(stdout);
}

test('a text of several lines comes out of put and get as it was sent', async () => {
  for (const text of ['-----BEGIN\nkey\n-----END\n', 'a\r\nb\r\n', '\n', '\ufeffa\n\n', 'a\nb']) {
    assert.equal((await get(await put(text))).stdout, text);
    const bytes = new TextEncoder().encode(text);
    assert.deepEqual(await received(bytes, { kind: 'text' }), Buffer.from(text));
  }
});

test('put --file stores any bytes, with the name of the file and without standard input', async () => {
  const path = join(files, '名前 1.bin');
  const bytes = randomBytes(70_000);
  writeFileSync(path, bytes);
  const link = await put('', '--file', path, '--max-reads', '1');
  const { stderr, stdout } = await get(link);
  assert.equal(stderr, 'File "名前 1.bin", 70000 bytes.\n');
  assert.equal(stdout, bytes.toString('utf8'));
  const small = join(files, 'small');
  writeFileSync(small, 'one line\n');
  const locked = await put('by phone\n', '--file', small, '--passphrase');
  assert.equal((await get(`${locked}\nby phone`)).stdout, 'one line\n');
});

test('put --file: a file that is too large, or no file, is refused before anything is sent', async () => {
  const path = join(files, 'large');
  writeFileSync(path, Buffer.alloc(2_000_000));
  const refused = await runCommand(['secret', 'put', '--file', path], own);
  assertRefused(refused, 1, /the text or file is too large for the service: nothing was sent/);
  const folder = await runCommand(['secret', 'put', '--file', files], own);
  assertRefused(folder, 2, /--file cannot be read \(EISDIR\)/);
});
