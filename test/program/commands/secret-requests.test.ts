/** `secret request`, `secret answer`, and `secret get` with a link to keep. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';

const { url: databaseUrl, sql } = await createDatabase();
const { url } = await startGatehouse({ after }, ['secrets'], databaseUrl, { SHARE_PAGES: 'on' });
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
const answer = (link: string, input: string | Buffer, ...words: readonly string[]) =>
  runCommand(['secret', 'answer', link, ...words], {}, input);
const get = (input: string, ...words: readonly string[]) =>
  runCommand(['secret', 'get', ...words], {}, input);
const idOf = (link: string) => new URL(link).pathname.split('/').at(-1) ?? '';
const secretsOf = async (link: string) =>
  (await sql`select id from secrets.secrets where id = ${idOf(link)}`).length;

test('a text is asked for, answered and read once, without a token for the answer', async () => {
  const { send, keep } = await request('Password of the shop', '--expires-in', '1h');
  assert.match(send, new RegExp(`^${base}/answer/[0-9a-f-]{36}#1\\.[A-Za-z0-9_-]{43}$`));
  assert.match(keep, new RegExp(`^${base}/request/[0-9a-f-]{36}#1\\.[\\w-]{43}\\.[\\w-]{48}$`));
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

test('a swapped key, another title and an altered answer are refused', async () => {
  const { send, keep } = await request('x');
  const other = await request('y');
  await sql`update secrets.requests r set public_key = o.public_key
    from secrets.requests o where r.id = ${idOf(send)} and o.id = ${idOf(other.send)}`;
  assertRefused(await answer(send, 'x'), 1, /the service has altered this request/);
  await sql`update secrets.requests set title = 'z' where id = ${idOf(other.send)}`;
  assertRefused(await answer(other.send, 'x'), 1, /the service has altered this request/);
  for (const link of [send, other.send]) assert.equal(await secretsOf(link), 0);

  const third = await request('x');
  assert.equal((await answer(third.send, 'x')).code, 0);
  await sql`update secrets.requests set answer_key = ${'A'.repeat(87)} where id = ${idOf(third.send)}`;
  assertRefused(await get(third.keep), 1, /the answer does not open with this link/);
  assertRefused(await get(keep), 1, /there is no answer/);
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
  await sql`update secrets.requests set expires_at = now() where id = ${idOf(expired.send)}`;
  assertRefused(await answer(expired.send, 'x'), 1, /it is expired/);
  assertRefused(await get(expired.keep), 1, /there is no answer: the request is expired/);
});
