/**
 * `secret get` with key and passphrase from standard input. `transcripts/secrets.txt` has what it
 * refuses.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';
import { type Finished, root } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';

const file = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['secrets'], file.url, { SHARE_PAGES: 'on' });
const url = gatehouse.url.secrets;
const client = secretsClient(url);
const UNKNOWN = '00000000-0000-4000-8000-000000000000';

const environment = { GATEHOUSE_URL: url, AUTH_TOKEN };
/** The environment of a receiver who has only a link. */
const nothing = {};

const get = (
  place: string,
  input: string | Buffer,
  given: Readonly<Record<string, string>> = environment,
) => runCommand(['secret', 'get', place], given, input);

function assertOpened({ code, stdout, stderr }: Finished, text: string): void {
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: `${text}\n`, stderr: '' });
}

const reads = async (id: string) => (await client.receipt(id)).json.reads;

test('get: the text on standard output, a single line with a newline, nothing on standard error', async () => {
  for (const [text, shown] of [
    ['hunter2', 'hunter2\n'],
    ['пароль 密码 🔑 \u0000', 'пароль 密码 🔑 \u0000\n'],
    [' one\ntwo\r\n', ' one\ntwo\r\n'],
    ['one\ntwo', 'one\ntwo'],
    ['\n', '\n'],
    ['\ufeffone', '\ufeffone\n'],
  ] as const) {
    const { id, secret } = await client.keep(text);
    const { code, stdout, stderr } = await get(id, `${secret}\n`);
    assert.deepEqual([code, stdout, stderr], [0, shown, '']);
  }
});

test('get: accepts the output of put as it is', async () => {
  const put = await runCommand(['secret', 'put'], environment, 'handed over');
  const link = put.stdout.trim();
  const [place = ''] = link.split('#');
  assertOpened(await get(place, put.stdout), 'handed over');
  assertOpened(await get(place.split('/').at(-1) ?? '', put.stdout), 'handed over');
});

test('get: the key may have spaces around it or the whole link before it', async () => {
  const { id, secret } = await client.keep('pasted');
  const pasted = [
    secret,
    `  ${secret}\t\r\n`,
    `\ufeff${secret}\n`,
    `${url}/s/${id}#${secret}\n`,
    `${secret}\nand more\n`,
  ];
  for (const input of pasted) assertOpened(await get(id, input), 'pasted');
});

test('get: accepts an upper-case id and a link with a trailing slash', async () => {
  const { id, secret } = await client.keep('written otherwise');
  for (const place of [id.toUpperCase(), `${url}/s/${id.toUpperCase()}`, `${url}/s/${id}/`]) {
    assertOpened(await get(place, secret), 'written otherwise');
  }
});

test('get: a link needs neither AUTH_TOKEN nor GATEHOUSE_URL', async () => {
  const { id, secret } = await client.keep('for a stranger');
  assertOpened(await get(`${url}/s/${id}`, secret, nothing), 'for a stranger');
  assertOpened(
    await get(`${url}/s/${id}`, secret, {
      GATEHOUSE_URL: 'http://127.0.0.1:1',
      AUTH_TOKEN: 'of another service',
    }),
    'for a stranger',
  );
});

test('get: an id requires AUTH_TOKEN', async () => {
  const { id, secret } = await client.keep('x');
  assertRefused(
    await get(id, secret, { GATEHOUSE_URL: url }),
    78,
    /^gatehouse: AUTH_TOKEN must be set to the bearer token of the secrets service\.\n$/,
  );
  assertRefused(await get(id, secret, { ...environment, AUTH_TOKEN: 'wrong' }), 1, /AUTH_TOKEN/);
  assert.equal(await reads(id), 0);
});

test('get: the passphrase is the second line, read only if required', async () => {
  const { id, secret } = await client.keep('locked', { passphrase: 'five words' });
  for (const place of [id, `${url}/s/${id}`]) {
    assertOpened(await get(place, `${secret}\nfive words\n`), 'locked');
    for (const input of place === id ? [secret] : [`${secret}\n\n`]) {
      assertRefused(
        await get(place, input),
        1,
        /this secret requires a passphrase: send it as the next line\. No read was used up\n$/,
      );
    }
  }
  const open = await client.keep('not locked');
  assertOpened(await get(open.id, `${open.secret}\r\nfive words\r\n`), 'not locked');
});

test('get: a wrong passphrase is exit 1 and uses nothing up', async () => {
  const { id, secret } = await client.keep('locked', { passphrase: 'five words', max_reads: 1 });
  const wrong = await get(id, `${secret}\nsix words\n`);
  assertRefused(wrong, 1, /passphrase/);
  assert.ok(!wrong.stderr.includes('six words'));
  for (let tries = 1; tries < 5; tries += 1) await client.decrypt(id, secret, 'seven words');
  assertRefused(
    await get(id, `${secret}\nfive words\n`),
    1,
    /\(try again after [1-9][0-9]* s\)\n$/,
  );
  assert.equal(await reads(id), 0);
});

test('get: one message for a wrong key, an unknown id and an ended secret', async () => {
  const { id, secret } = await client.keep('once', { max_reads: 1 });
  const other = await client.keep('other');
  const gone =
    /^gatehouse: No secret can be opened with this id and key\. Check both for typing mistakes; [^\n]*\n$/;
  for (const place of [id, `${url}/s/${id}`])
    assertRefused(await get(place, other.secret), 1, gone);
  assertRefused(await get(UNKNOWN, secret), 1, gone);
  assertRefused(
    await get(id, secret.slice(0, -1)),
    1,
    /the key is incomplete or has a mistake: copy the whole link again\. No read was used up/,
  );
  assertOpened(await get(id, secret), 'once');
  assertRefused(await get(id, secret), 1, gone);
});

test('get: exit 2 for a key that is no UTF-8 text', async () => {
  assertRefused(
    await get(UNKNOWN, Buffer.from('fffe', 'hex')),
    2,
    /standard input is not UTF-8 text/,
  );
});

test('AUTH_TOKEN_FILE is supported', async () => {
  const path = join(root, 'auth-token');
  writeFileSync(path, `${AUTH_TOKEN}\n`);
  const { id, secret } = await client.keep('by file');
  assertOpened(await get(id, secret, { GATEHOUSE_URL: url, AUTH_TOKEN_FILE: path }), 'by file');
  assertRefused(
    await get(id, secret, { GATEHOUSE_URL: url, AUTH_TOKEN_FILE: '/nowhere' }),
    78,
    /AUTH_TOKEN_FILE names a file that cannot be read \(ENOENT\)/,
  );
  assertRefused(
    await get(id, secret, { ...environment, AUTH_TOKEN_FILE: path }),
    78,
    /AUTH_TOKEN and AUTH_TOKEN_FILE are both set/,
  );
});
