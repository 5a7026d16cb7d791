/**
 * `secret get` with links of the share pages: end-to-end encryption, files, and the whole link on
 * standard input.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { type Finished } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';
import { plainKey, plainKeys, plainSeal } from '../../unit/vectors/plain-browser-envelope.ts';

const { url } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const base = url.secrets;
const client = secretsClient(base);

/** What a page would have made. */
async function share(
  about: object,
  bytes: Buffer,
  passphrase = '',
): Promise<{ id: string; link: string; place: string }> {
  const key = plainKey(randomBytes(32));
  const { content, proof } = plainKeys(key, passphrase);
  const options = { max_reads: 1, ...(proof === undefined ? {} : { passphrase: proof }) };
  const { id, secret } = await client.keep(
    plainSeal(content, randomBytes(12), about, bytes),
    options,
  );
  return { id, place: `${base}/s/${id}`, link: `${base}/s/${id}#1.${secret}.${key}` };
}
const get = (
  words: readonly string[],
  input: string,
  given: Record<string, string> = {},
): Promise<Finished> => runCommand(['secret', 'get', ...words], given, input);
const reads = async (id: string) => (await client.receipt(id)).json.reads;
const TEXT = { kind: 'text' };

test('a whole link on standard input opens what a page has encrypted, without any settings', async () => {
  const { link } = await share(TEXT, Buffer.from('hunter2 "ü" 🔑'));
  assert.deepEqual(
    await get([], `${link}\n`).then(({ code, stdout, stderr }) => ({ code, stdout, stderr })),
    {
      code: 0,
      stdout: 'hunter2 "ü" 🔑\n',
      stderr: '',
    },
  );
});

test('link and key apart open it as well, and so does an id with AUTH_TOKEN', async () => {
  const one = await share(TEXT, Buffer.from('one'));
  assert.equal((await get([one.place], one.link.split('#')[1] ?? '')).stdout, 'one\n');
  const two = await share(TEXT, Buffer.from('two'));
  assert.equal(
    (await get([two.id], two.link, { GATEHOUSE_URL: base, AUTH_TOKEN })).stdout,
    'two\n',
  );
});

test('a passphrase is asked for, and the service gets only what is derived from it', async () => {
  const { id, link } = await share(TEXT, Buffer.from('locked'), 'said by phone');
  const without = await get([], `${link}\n`);
  assert.deepEqual([without.code, without.stdout], [1, '']);
  assert.match(without.stderr, /requires a passphrase/);
  assert.match(
    (await get([], `${link}\nsaid by fax`)).stderr,
    /The passphrase is wrong\. No read was used/,
  );
  assert.equal(await reads(id), 0);
  assert.equal((await get([], `${link}\nsaid by phone`)).stdout, 'locked\n');
});

test('what put stores with a passphrase, get opens', async () => {
  const put = await runCommand(
    ['secret', 'put', '--passphrase'],
    { GATEHOUSE_URL: base, AUTH_TOKEN },
    'fünf\ntext',
  );
  assert.equal((await get([], `${put.stdout}fünf`)).stdout, 'text\n');
  const short = await runCommand(
    ['secret', 'put', '--passphrase'],
    { GATEHOUSE_URL: base, AUTH_TOKEN },
    'abc\ntext',
  );
  assert.deepEqual([short.code, short.stdout], [2, '']);
  assert.match(short.stderr, /passphrase must have at least 4 characters/);
});

test('a file goes into a pipe byte by byte, and its name to standard error', async () => {
  const bytes = Buffer.from(
    [...'%PDF\r\n'].map((one) => one.charCodeAt(0)).concat([10, 13, 9, 65]),
  );
  const { link } = await share(
    { kind: 'file', name: '../a\u202eb.pdf', type: 'application/pdf' },
    bytes,
  );
  const { code, stdout, stderr } = await get([], link);
  assert.deepEqual(
    [code, stdout, stderr],
    [0, bytes.toString('latin1'), `File "ab.pdf", ${bytes.length} bytes.\n`],
  );
});

test('a key with a mistake is recognized before a read is used up', async () => {
  const { id, link } = await share(TEXT, Buffer.from('still there'));
  for (const wrong of [
    link.slice(0, -1),
    `${link.slice(0, -1)}${link.endsWith('A') ? 'B' : 'A'}`,
    `${link}x`,
  ]) {
    const { code, stdout, stderr } = await get([], wrong);
    assert.deepEqual([code, stdout], [1, ''], wrong);
    assert.match(
      stderr,
      /the key is incomplete or has a mistake: copy the whole link again\. No read was used up\n$/,
    );
  }
  assert.equal(await reads(id), 0);
  assert.equal((await get([], link)).stdout, 'still there\n');
});

test('a link that was cut anywhere says so, and uses no read up', async () => {
  const { id, secret } = await client.keep('plain', { max_reads: 1 });
  const plain = { id, link: `${base}/s/${id}#${secret}`, text: 'plain\n' };
  const sealed = { ...(await share(TEXT, Buffer.from('end to end'))), text: 'end to end\n' };
  for (const whole of [plain, sealed]) {
    for (let length = 1; length < whole.link.length; length += 1) {
      const cut = whole.link.slice(0, length);
      const { code, stdout, stderr } = await get([], cut);
      assert.ok(code !== 0 && stdout === '', cut);
      assert.match(
        stderr,
        /the key is incomplete|no whole link on standard|no key on standard/,
        cut,
      );
    }
    const elsewhere = await get([], whole.link.replace('/s/', '/x/'));
    assert.equal(elsewhere.code, 2);
    assert.match(elsewhere.stderr, /no whole link on standard input: copy all of it/);
    assert.equal(await reads(whole.id), 0);
    assert.equal((await get([], whole.link)).stdout, whole.text);
  }
});

test('without a link on standard input: exit 2, and nothing is sent', async () => {
  for (const input of [
    '',
    `${base}/s/00000000-0000-4000-8000-000000000000`,
    'a key',
    '#',
    '#key',
    'ftp://x/s/y#z',
  ]) {
    const { code, stdout } = await get([], input);
    assert.deepEqual([code, stdout], [2, ''], input);
  }
});
