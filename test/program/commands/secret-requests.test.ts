/** `secret request`, `secret answer`, and `secret get` with a link to keep. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import { createRequest } from '../../../src/secrets/pages/request-keys.js';
import { expireRequest } from '../../support/altered-requests.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { reply, startRecorder } from '../../support/recorder.ts';

const { url, sql } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const base = url.secrets;
const files = mkdtempSync(join(tmpdir(), 'gatehouse-requests-'));
after(() => rmSync(files, { recursive: true }));

const own = { GATEHOUSE_URL: base, AUTH_TOKEN };
const request = async (...words: readonly string[]) => {
  const { code, stdout, stderr } = await runCommand(['secret', 'request', ...words], own);
  assert.equal(code, 0, stderr);
  const [send = '', keep = ''] = stdout.trimEnd().split('\n');
  return { send, keep };
};
const answer = (link: string, input: string, ...words: readonly string[]) =>
  runCommand(['secret', 'answer', ...words], {}, `${link}\n${input}`);
const get = (input: string, ...words: readonly string[]) =>
  runCommand(['secret', 'get', ...words], {}, input);
const idOf = (link: string) => new URL(link).pathname.split('/').at(-1) ?? '';
const secretsOf = async (link: string) =>
  (await sql`select id from secrets.secrets where id = ${idOf(link)}`).length;

test('a text is asked for, answered and read once, without a token for the answer', async () => {
  const { send, keep } = await request('Password of the shop', '--expires-in', '1h');
  assert.match(send, new RegExp(`^${base}/answer/[0-9a-f-]{36}#1\\.[A-Za-z0-9_-]{43}$`));
  assert.match(
    keep,
    new RegExp(`^${base}/request/[0-9a-f-]{36}#1(\\.[\\w-]{43}){2}\\.[\\w-]{48}$`),
  );
  assertRefused(await get(keep), 1, /there is no answer: the request is open/);
  const sent = await answer(send, 'hunter2 "ü" 🔑\n');
  assert.deepEqual([sent.code, sent.stdout], [0, '']);
  assert.match(sent.stderr, /^Asked for: Password of the shop\nSent\./);
  const whole = await get(keep);
  assert.deepEqual([whole.code, whole.stdout], [0, 'hunter2 "ü" 🔑\n']);
  assertRefused(await get(keep), 1, /has been read as often as allowed/);
});

test('link and key apart open an answer as well', async () => {
  const { send, keep } = await request('x');
  assert.equal((await answer(send, '1')).code, 0);
  const [place = '', key = ''] = keep.split('#');
  assert.equal((await get(key, place)).stdout, '1\n');
});

test('a file of 32 KiB, and one at the limit, arrive byte by byte', async () => {
  for (const size of [32 * 1_024, 1_048_576]) {
    const path = join(files, `${size}.bin`);
    // ASCII: the test reads standard output as text.
    const bytes = Buffer.from(randomBytes(size / 2).toString('hex'));
    writeFileSync(path, bytes);
    const { send, keep } = await request('a file', '--file');
    assertRefused(
      await answer(send, 'a text').then(lastLine),
      2,
      /give --file if a file is asked for/,
    );
    assert.equal((await answer(send, '', '--file', path)).code, 0);
    const { stdout, stderr } = await get(keep);
    assert.ok(stdout === bytes.toString());
    assert.equal(stderr, `File "${size}.bin", ${size} bytes.\n`);
  }
});

/** Without what was noted before the error. */
const lastLine = <T extends { stderr: string }>(finished: T): T => ({
  ...finished,
  stderr: finished.stderr.replace(/^Asked for: .*\n/, ''),
});

test('a file over the limit is refused, and nothing is used up', async () => {
  const path = join(files, 'large.bin');
  writeFileSync(path, Buffer.alloc(1_300_000));
  const { send } = await request('a file', '--file');
  assertRefused(
    lastLine(await answer(send, '', '--file', path)),
    1,
    /the text or file is too large for the service: nothing was sent/,
  );
  assert.equal(await secretsOf(send), 0);
});

test('a file that cannot be read is refused with the reason, and nothing is used up', async () => {
  const { send } = await request('a file', '--file');
  for (const [path, code] of [
    [join(files, 'missing.bin'), 'ENOENT'],
    [files, 'EISDIR'],
  ] as const)
    assertRefused(
      lastLine(await answer(send, '', '--file', path)),
      2,
      new RegExp(`--file cannot be read \\(${code}\\)`),
    );
  assert.equal(await secretsOf(send), 0);
});

test('--wait prints the answer to standard output, and the links to standard error', async () => {
  const stopped = runCommand(['secret', 'request', 'x', '--wait'], own);
  const id = async () => {
    const found =
      await sql`select id, digest from secrets.requests where title = 'x' and ending is null`;
    return found[0];
  };
  let row = await id();
  while (!row) row = await id();
  assert.equal((await answer(`${base}/answer/${row.id}#1.${row.digest}`, 'waited for')).code, 0);
  const { code, stdout, stderr } = await stopped;
  assert.deepEqual([code, stdout], [0, 'waited for\n']);
  assert.match(stderr, /\/answer\/.*\n.*\/request\//);
});

test('a link that was cut, altered or is of another version is refused before anything is sent', async () => {
  const { send, keep } = await request('x');
  const whole = /the link is incomplete or has a mistake, or is of another version/;
  for (const wrong of [send.slice(0, -1), send.replace('#1.', '#2.'), send.split('#')[0] ?? ''])
    assertRefused(await answer(wrong, 'x'), 2, whole);
  for (const host of ['https://my host', 'https://'])
    assertRefused(await answer(send.replace(base, host), 'x'), 2, whole);
  const changed = keep.slice(0, -1) + (keep.endsWith('A') ? 'B' : 'A');
  for (const wrong of [keep.slice(0, -1), changed, keep.replace('#1.', '#2.')])
    assertRefused(await get(wrong), 1, whole);
  assert.equal(await secretsOf(send), 0);
});

test('an argument that holds a key is refused, and says how to pass it', async () => {
  const { send, keep } = await request('x');
  const said =
    /an argument holds a key, which other users of this machine can see\. Pass links and keys on standard input/;
  const link = `${base}/s/${idOf(send)}#${'A'.repeat(43)}`;
  for (const words of [
    ['answer', send],
    ['get', keep],
    ['get', link],
    ['get', link.split('#')[0] ?? '', `#${'A'.repeat(43)}`],
    ['status', link],
    ['delete', keep],
    ['request', `the text for ${send}`],
    ['token', 'create', `--name=share:${'A'.repeat(43)}`],
  ])
    assertRefused(await runCommand(['secret', ...words], own, 'x'), 2, said);
  const words = ['secret', 'put', 'hunter2'];
  const refused = await runCommand(words, own);
  assertRefused(refused, 2, /secret put: takes no argument; keys, .* are read from standard input/);
  assert.doesNotMatch(refused.stderr, /hunter2/);
  assert.equal(await secretsOf(send), 0);
});

/** A service that says whatever `change` makes of its replies, as its operator could. */
async function startAltering(t: TestContext, change: (reply: any) => object): Promise<string> {
  const { url, answer } = await startRecorder(t);
  answer(async (response, { method, target, headers, body }) => {
    const { authorization = '' } = headers;
    const real = await ask(method, `${base}${target}`, {
      body,
      headers: { authorization, 'content-type': 'application/json' },
    });
    reply(real.status, change(real.json))(response);
  });
  return url;
}

test('a service that alters what was asked for is noticed, and nothing of it is shown', async (t) => {
  const { request: other } = await createRequest('text', 'another title');
  const altered = /the service has altered this request: what it returned does not belong to the/;
  for (const lie of [
    { title: 'another title' },
    { kind: 'file' },
    { public_key: other.public_key },
    other,
  ])
    for (const status of ['open', 'answered', 'withdrawn']) {
      const there = await startAltering(t, (said) => ({ ...said, ...lie, status }));
      const { send, keep } = await request('x');
      const at = (link: string) => link.replace(base, there);
      if (status === 'answered') assert.equal((await answer(send, 'hunter2')).code, 0);
      for (const refused of [await answer(at(send), 'hunter2'), await get(at(keep))])
        assertRefused(refused, 1, altered);
      if (status !== 'answered') assert.equal(await secretsOf(send), 0);
      else assert.equal((await get(keep)).stdout, 'hunter2\n');
    }
});

test('--wait: a request that is altered meanwhile ends the command', async (t) => {
  const { request: other } = await createRequest('text', 'x');
  let replies = 0;
  const there = await startAltering(t, (said) => {
    replies += 1;
    return replies > 2 ? { ...said, public_key: other.public_key } : said;
  });
  const words = ['secret', 'request', 'x', '--wait'];
  const { code, stdout, stderr } = await runCommand(words, { ...own, GATEHOUSE_URL: there });
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /\ngatehouse: the service has altered this request/);
});

test('a service that returns another link instead of an id or a key is refused', async (t) => {
  const evil = `x\nhttps://example.org/answer/00112233-4455-4677-8899-aabbccddeeff#1.${'A'.repeat(43)}`;
  for (const lie of [{ id: evil }, { receipt: evil }, { secret: evil }]) {
    const there = await startAltering(t, (said) => ({ ...said, ...lie }));
    for (const words of [['put'], ...('secret' in lie ? [] : [['request', 'x']])]) {
      const environment = { ...own, GATEHOUSE_URL: there };
      const refused = await runCommand(['secret', ...words], environment, 'hunter2');
      assertRefused(refused, 1, /unexpected reply/);
    }
  }
});

test('an altered answer is refused', async (t) => {
  const { send, keep } = await request('x');
  assert.equal((await answer(send, 'x')).code, 0);
  const there = await startAltering(t, (said) => ({ ...said, answer_key: 'A'.repeat(87) }));
  const refused = await get(keep.replace(base, there));
  assertRefused(refused, 1, /the answer does not open with this link/);
});

test('texts of the service stay on one line', async (t) => {
  const forged = 'x\nSent. Only the link\u2028of \u202eyours\u0085\u001b[2J';
  const there = await startAltering(t, (said) => ({ ...said, status: forged }));
  const { send, keep } = await request('x');
  for (const refused of [
    await answer(send.replace(base, there), 'x'),
    await get(keep.replace(base, there)),
  ]) {
    assertRefused(refused, 1, /the request is x Sent\.|it is x Sent\./);
    assert.doesNotMatch(refused.stderr, /[^\P{C}\n]|[\p{Zl}\p{Zp}]/u);
  }
});

test('an answered, withdrawn or expired request takes no answer, and says which', async () => {
  const answered = await request('x');
  assert.equal((await answer(answered.send, 'first')).code, 0);
  assertRefused(
    await answer(answered.send, 'second'),
    1,
    /takes no answer any more: it is answered/,
  );
  const withdrawn = await request('x');
  assert.equal((await runCommand(['secret', 'delete', idOf(withdrawn.send)], own)).code, 0);
  assertRefused(await answer(withdrawn.send, 'x'), 1, /it is withdrawn/);
  const status = await runCommand(['secret', 'status', idOf(withdrawn.send)], own);
  assert.match(status.stdout, /status +withdrawn/);
  const expired = await request('x');
  await expireRequest(sql, idOf(expired.send));
  assertRefused(await answer(expired.send, 'x'), 1, /it is expired/);
  assertRefused(await get(expired.keep), 1, /there is no answer: the request is expired/);
});
