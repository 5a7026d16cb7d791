/**
 * `secret put` and `secret get`: texts, files, and links as pages make and mail programs leave
 * them.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { makeDirectory } from '../../support/directories.ts';
import { AUTH_TOKEN, launch, startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { plainKey, plainKeys, plainSeal } from '../../unit/vectors/plain-browser-envelope.ts';

const { secrets: base, sql, databaseUrl } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const client = secretsClient(base);
const own = { GATEHOUSE_URL: base, AUTH_TOKEN };
// Without pages, and thus with smaller limits.
const { url } = await startGatehouse({ after }, ['secrets'], databaseUrl, { SECRET_TTL: '0' });
const plain = { GATEHOUSE_URL: `${url.secrets}/`, AUTH_TOKEN };
const files = makeDirectory({ after }, 'secret');

async function put(input: string | Buffer, ...options: readonly string[]) {
  const { code, stdout, stderr } = await runCommand(['secret', 'put', ...options], own, input);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}
const get = (input: string, ...words: readonly string[]) =>
  runCommand(['secret', 'get', ...words], {}, input);
const reads = async (link: string) =>
  (await client.receipt(/[0-9a-f-]{36}/.exec(link)?.[0] ?? '')).json.reads;
const TEXT = { kind: 'text' };

/** What a page would have made, for one reader. */
async function share(about: object, content: string | Buffer, passphrase = '') {
  const key = plainKey(randomBytes(32));
  const keys = plainKeys(key, passphrase);
  const sealed = plainSeal(keys.content, randomBytes(12), about, Buffer.from(content));
  const locked = keys.proof === undefined ? {} : { passphrase: keys.proof };
  const { id, secret } = await client.keep(sealed, { max_reads: 1, ...locked });
  return `${base}/s/${id}#1.${secret}.${key}`;
}

test('put: stores the input as it is, but a single line without its end; get prints all of it', async () => {
  for (const [input, stored = input] of [
    ['text\n', 'text'],
    ['text\r\n', 'text'],
    ['text\n\n'],
    ['one\ntwo\n\nthree\n'],
    ['one\r\ntwo\r\n'],
    ['one\ntwo'],
    ['\n'],
    ['\r\n'],
    ['text\r'],
    ['\n text '],
    ['пароль 密码 🔑 e\u0301'],
    ['a\u0000b\u001b[31m\ufeff\u2028'],
    ['\ufefftext'],
    [`${'x'.repeat(32_768)}\n`, 'x'.repeat(32_768)],
  ] as const) {
    const link = await put(input, '--no-end-to-end');
    const [, id = '', secret = ''] = /\/s\/(.{36})#(.{43})$/.exec(link) ?? [];
    assert.ok((await client.decrypt(id, secret)).json.password === stored, input);
    // A single line gets its end back.
    const printed = stored.includes('\n') ? stored : `${stored}\n`;
    const opened = await get(link);
    assert.ok(opened.stdout === printed, JSON.stringify(input.slice(0, 40)));
    assert.equal(opened.stderr, '');
  }
  const locked = await put('five words\r\none\ntwo\n', '--passphrase');
  assert.equal((await get(`${locked}\nfive words`)).stdout, 'one\ntwo\n');
});

test('put: invalid input is an error, and nothing is stored', async () => {
  const count = async () => (await sql`select from secrets.secrets`).length;
  const before = await count();
  for (const [input, code, said] of [
    ['', 2, /secret put: no secret on standard input/],
    [Buffer.from('fffefdfc', 'hex'), 2, /standard input is not UTF-8 text/],
    [Buffer.from('text ü').subarray(0, -1), 2, /standard input is not UTF-8 text/],
    ['x'.repeat(64_513), 2, /: the secret must have at most 64512 bytes/],
    [`${'x'.repeat(64_511)}ü`, 2, /: the secret must have at most 64512 bytes/],
    ['x'.repeat(200_000), 1, /too large/],
    // As JSON, it becomes twice as long.
    ['"'.repeat(32_768), 1, /too large/],
  ] as const)
    assertRefused(await runCommand(['secret', 'put', '--no-end-to-end'], plain, input), code, said);
  const large = join(files, 'large');
  writeFileSync(large, Buffer.alloc(2_000_000));
  for (const [path, code, said] of [
    [large, 1, /the text or file is too large for the service: nothing was sent/],
    [files, 2, /--file cannot be read \(EISDIR\)/],
  ] as const)
    assertRefused(await runCommand(['secret', 'put', '--file', path], own), code, said);
  assert.equal(await count(), before);
});

test('get opens what a page has encrypted', async () => {
  const text = 'hunter2 "ü" 🔑';
  const { code, stdout, stderr } = await get(`${await share(TEXT, text)}\n`);
  assert.deepEqual([code, stdout, stderr], [0, `${text}\n`, '']);
  const link = await share(TEXT, 'locked', 'said by phone');
  const wrong = await get(`${link}\nsaid by fax`);
  assertRefused(wrong, 1, /The passphrase is wrong\. No read was used/);
  assert.equal((await get(`${link}\nsaid by phone`)).stdout, 'locked\n');
  // Only the content tells the whole key of another secret from the right one.
  const once = await share(TEXT, text);
  const foreign = await get(once.slice(0, -48) + plainKey(randomBytes(32)));
  const said =
    /: the secret was read, but does not open with this key: ask the sender for another$/m;
  assertRefused(foreign, 1, said);
  assert.equal(await reads(once), 1);
});

test('a file goes into a pipe byte by byte, and its name to standard error', async () => {
  const bytes = '%PDF\r\n\n\r\tA';
  const about = { kind: 'file', name: '../a\u202eb.pdf', type: 'application/pdf' };
  const { code, stdout, stderr } = await get(await share(about, bytes));
  assert.deepEqual([code, stdout, stderr], [0, bytes, `File "ab.pdf", ${bytes.length} bytes.\n`]);

  const path = join(files, '名前 1.bin');
  const large = randomBytes(35_000).toString('hex');
  writeFileSync(path, large);
  const link = await put('by phone\n', '--file', path, '--passphrase');
  assertRefused(await get(link), 1, /this secret requires a passphrase/);
  const opened = await get(`${link}\nby phone`);
  assert.equal(opened.stderr, 'File "名前 1.bin", 70000 bytes.\n');
  assert.ok(opened.stdout === large);
});

test('a link that was cut, altered or continued says so, and uses no read up', async () => {
  const { id, secret } = await client.keep('plain', { max_reads: 1 });
  const sealed = await share(TEXT, 'end to end');
  for (const [link, text, ...others] of [
    [`${base}/s/${id}#${secret}`, 'plain\n'],
    [sealed, 'end to end\n', sealed.slice(0, -1) + (sealed.endsWith('A') ? 'B' : 'A')],
  ] as const) {
    const cut = link.slice(0, -1);
    const inputs = [cut, `${cut}\nx`, `${cut}.`, `${cut}=\n`, `${link}x`, cut.replace('#', '%23')];
    for (const input of [...inputs, link.replace('/s/', '/x/'), ...others]) {
      const { code, stdout, stderr } = await get(input);
      assert.ok(code !== 0 && stdout === '', input);
      assert.match(stderr, /the key is incomplete|no whole link on standard/, input);
    }
    assert.equal(await reads(link), 0);
    assert.equal((await get(link)).stdout, text);
  }
});

test('without a link on standard input: exit 2, and nothing is sent', async () => {
  const place = `${base}/s/00000000-0000-4000-8000-000000000000`;
  for (const input of ['', place, 'a key', '#', '#key', 'ftp://x/s/y#z']) {
    const { code, stdout } = await get(input);
    assert.deepEqual([code, stdout], [2, ''], input);
  }
  const bytes = await runCommand(['secret', 'get', place], {}, Buffer.from('fffe', 'hex'));
  assertRefused(bytes, 2, /standard input is not UTF-8 text/);
  const held = /an argument holds a key, which other users of this machine can see/;
  for (const sign of ['%23', '%2523'])
    assertRefused(await get('', `${place}${sign}${'A'.repeat(43)}`), 2, held);
});

test('links are taken as mail programs leave them, also in several lines', async () => {
  for (const change of [
    (link: string) => link.replace(/.{75}(?=.)/g, '$&=\r\n'),
    (link: string) => `<${link.slice(0, 60)}\n> ${link.slice(60)}>.`,
  ]) {
    const locked = await put('by phone\ntext', '--passphrase');
    assert.equal((await get(`${change(locked)}\nby phone\n`)).stdout, 'text\n', change(locked));
    const { stdout } = await runCommand(['secret', 'request', 'x'], own);
    const [send = '', keep = ''] = stdout.trimEnd().split('\n');
    await runCommand(['secret', 'answer'], {}, `${change(send)}\none\ntwo\n`);
    assert.equal((await get(change(keep))).stdout, 'one\ntwo\n');
  }
  const link = await put('text');
  const [place = '', key = ''] = link.split('#');
  for (const around of [`#${key}.`, `"#${key}"`, link.replace('#', '%23')])
    assert.equal((await get(around, `${place}?utm_source=mail`)).stdout, 'text\n');
});
