/** What `secret put` stores and prints. `transcripts/secrets.txt` has what it refuses. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { plainKeys, plainOpen } from '../../unit/vectors/plain-browser-envelope.ts';

const file = await createDatabase();
const [plain, sharing] = await Promise.all(
  [{}, { SHARE_PAGES: 'on' }].map((more) => startGatehouse({ after }, ['secrets'], file.url, more)),
);
const url = plain?.url.secrets ?? assert.fail();
const sharingUrl = sharing?.url.secrets ?? assert.fail();
const client = secretsClient(url);

const run = (
  words: readonly string[],
  input: string | Buffer = '',
  more: Readonly<Record<string, string>> = {},
) => runCommand(['secret', ...words], { GATEHOUSE_URL: url, AUTH_TOKEN, ...more }, input);

const count = async () => Number((await file.sql`select count(*) from secrets.secrets`)[0]?.count);

async function put(input: string | Buffer, ...options: readonly string[]) {
  const { code, stdout, stderr } = await run(['put', '--no-end-to-end', ...options], input);
  assert.equal(code, 0, stderr);
  const [, id = '', secret = ''] = /^([0-9a-f-]{36})\n([A-Za-z0-9_-]{43})\n$/.exec(stdout) ?? [];
  assert.notEqual(id, '', stdout);
  return { id, secret };
}

test('put: id and key on standard output, the expiry on standard error', async () => {
  const { code, stdout, stderr } = await run(['put'], 'hunter2\n');
  assert.equal(code, 0, stderr);
  const [id = '', keys = '', ...rest] = stdout.split('\n');
  assert.deepEqual(rest, ['']);
  await assertEndToEnd(id, keys, 'hunter2');
  const until = (await client.receipt(id)).json.expires_at;
  assert.equal(stderr, `Stored until ${until}. Id and key (shown only once):\n`);
});

/** Only the keys open it, and only the first of them is the service's. */
async function assertEndToEnd(id: string, keys: string, text: string) {
  const [, secret = '', key = ''] = /^1\.([\w-]{43})\.([\w-]{48})$/.exec(keys) ?? [];
  const { password } = (await client.decrypt(id, secret)).json;
  assert.ok(!password.includes(text), 'the service does not see the text');
  assert.equal(plainOpen(plainKeys(key, '').content, password).bytes.toString('utf8'), text);
}

test('put: prints a link if the service has share pages', async () => {
  for (const GATEHOUSE_URL of [sharingUrl, `${sharingUrl}/`]) {
    const { code, stdout, stderr } = await run(['put'], 'hunter2\n', { GATEHOUSE_URL });
    assert.equal(code, 0, stderr);
    const [, id = '', keys = ''] = /\/s\/([0-9a-f-]{36})#(.+)\n$/.exec(stdout) ?? [];
    assert.equal(stdout, `${sharingUrl}/s/${id}#${keys}\n`);
    const receipt = new RegExp(
      `^Receipt, for you alone: ${sharingUrl}/r/${id}#[A-Za-z0-9_-]{43}\\n$`,
      'm',
    );
    assert.match(stderr, /^Stored until \S+Z\. Link \(shown only once\):\n/);
    assert.match(stderr, receipt);
    await assertEndToEnd(id, keys, 'hunter2');
  }
});

test('put --no-end-to-end: the service sees the text, and programs can read it', async () => {
  const { stdout } = await run(['put', '--no-end-to-end'], 'hunter2', {
    GATEHOUSE_URL: sharingUrl,
  });
  const [, id = '', secret = ''] = /\/s\/([0-9a-f-]{36})#([\w-]{43})\n$/.exec(stdout) ?? [];
  assert.equal((await client.decrypt(id, secret)).json.password, 'hunter2');
});

test('put: no expiry in the note of a secret that never expires', async (t) => {
  const { url: there } = await startGatehouse(t, ['secrets'], file.url, { SECRET_TTL: '0' });
  const { stderr } = await run(['put'], 'never expires', { GATEHOUSE_URL: there.secrets });
  assert.equal(stderr, 'Stored. Id and key (shown only once):\n');
});

const INPUTS: ReadonlyArray<readonly [what: string, input: string, stored: string]> = [
  ['a newline at the end', 'text\n', 'text'],
  ['the newline of another system', 'text\r\n', 'text'],
  ['two newlines at the end', 'text\n\n', 'text\n\n'],
  ['several lines', 'one\ntwo\n\nthree\n', 'one\ntwo\n\nthree\n'],
  ['several lines, the last one without an end', 'one\ntwo', 'one\ntwo'],
  ['several lines of another system', 'one\r\ntwo\r\n', 'one\r\ntwo\r\n'],
  ['a newline', '\n', '\n'],
  ['the newline of another system alone', '\r\n', '\r\n'],
  ['two newlines of another system', 'text\r\n\r\n', 'text\r\n\r\n'],
  ['a carriage return at the end', 'text\r', 'text\r'],
  ['a newline and spaces before it, no newline behind it', '\n text ', '\n text '],
  ['letters of the whole world', 'пароль 密码 🔑 e\u0301', 'пароль 密码 🔑 e\u0301'],
  [
    'characters that are not for reading',
    'a\u0000b\u001b[31m\ufeff\u2028',
    'a\u0000b\u001b[31m\ufeff\u2028',
  ],
  ['a byte order mark before it', '\ufefftext', '\ufefftext'],
  ['all the bytes there may be', `${'x'.repeat(32_768)}\n`, 'x'.repeat(32_768)],
];

test('put: stores the input as it is, but a single line without its end', async () => {
  for (const [what, input, stored] of INPUTS) {
    const { id, secret } = await put(input);
    assert.ok((await client.decrypt(id, secret)).json.password === stored, what);
  }
});

const BAD_INPUTS: ReadonlyArray<
  readonly [what: string, input: string | Buffer, code: number, said: RegExp]
> = [
  ['nothing', '', 2, /secret put: no secret on standard input/],
  ['no UTF-8 text', Buffer.from('fffefdfc', 'hex'), 2, /standard input is not UTF-8 text/],
  [
    'UTF-8 that breaks off',
    Buffer.from('text ü').subarray(0, -1),
    2,
    /standard input is not UTF-8 text/,
  ],
  ['a byte too many', 'x'.repeat(64_513), 2, /must have at most 64512 bytes/],
  [
    'a byte too many in a letter of two',
    `${'x'.repeat(64_511)}ü`,
    2,
    /must have at most 64512 bytes/,
  ],
  ['more than a request may hold', 'x'.repeat(200_000), 1, /too large/],
  ['what becomes too long as JSON', '"'.repeat(32_768), 1, /too large/],
];

test('put: invalid input is an error, and nothing is stored', async () => {
  const before = await count();
  for (const [, input, code, said] of BAD_INPUTS)
    assertRefused(await run(['put', '--no-end-to-end'], input), code, said);
  assert.equal(await count(), before);
});

test('put: --expires-in accepts seconds, or a number with s, m, h or d', async () => {
  for (const [given, seconds] of [
    ['90', 90],
    ['45s', 45],
    ['30m', 1_800],
    ['12h', 43_200],
    ['30d', 2_592_000],
  ] as const) {
    const { id } = await put('x', '--expires-in', given);
    const { created_at, expires_at } = (await client.receipt(id)).json;
    // The expiry is computed just before the row is written.
    const lives = Date.parse(expires_at) - Date.parse(created_at);
    assert.ok(lives <= seconds * 1_000 && lives > (seconds - 30) * 1_000, `${given}: ${lives} ms`);
  }
});

test('put: --max-reads limits the reads', async () => {
  const { id, secret } = await put('x', '--max-reads', '2', '--expires-in=1h');
  assert.deepEqual(
    [
      await client.decrypt(id, secret),
      await client.decrypt(id, secret),
      await client.decrypt(id, secret),
    ].map(({ status }) => status),
    [200, 200, 404],
  );
});

test('put: --passphrase reads the first line; the rest is the secret', async () => {
  for (const newline of ['\n', '\r\n']) {
    const { id, secret } = await put(`five words${newline}one\ntwo\n`, '--passphrase');
    assert.equal((await client.decrypt(id, secret)).json.error.code, 'passphrase_needed');
    assert.equal((await client.decrypt(id, secret, 'five words')).json.password, 'one\ntwo\n');
  }
});
