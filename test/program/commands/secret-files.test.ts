/** Where `secret get` saves a file on a terminal. The secret may be deleted by then. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, test } from 'node:test';
import { createTerminal, OperationFailed } from '../../../src/commands/command.ts';
import { showContent } from '../../../src/commands/secret-links.ts';

const root = mkdtempSync(join(tmpdir(), 'gatehouse-files-'));
const before = { directory: process.cwd(), TMPDIR: process.env.TMPDIR };
const bytes = randomBytes(1_000);

beforeEach(() => {
  process.env.TMPDIR = mkdtempSync(join(root, 'tmp-'));
  process.chdir(mkdtempSync(join(root, 'here-')));
});
afterEach(() => {
  process.chdir(before.directory);
  if (before.TMPDIR === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = before.TMPDIR;
});
test.after(() => rmSync(root, { recursive: true }));

/** Receives a file of this name on a terminal. */
async function receive(name: string) {
  const stdout = Object.assign(new PassThrough(), { isTTY: true });
  const stderr = new PassThrough();
  const terminal = createTerminal({ stdin: process.stdin, stdout, stderr }, {}, () => true);
  const about = { kind: 'file', name, type: 'text/plain' } as const;
  const error: unknown = await showContent({ about, bytes }, terminal).catch((thrown) => thrown);
  stdout.end();
  stderr.end();
  return { error, stdout: await text(stdout), stderr: await text(stderr) };
}

test('a file never overwrites another one, and keeps its extension', async () => {
  writeFileSync('a.b.pdf', 'mine');
  for (const saved of ['a.b (1).pdf', 'a.b (2).pdf']) {
    assert.equal(
      (await receive('a.b.pdf')).stderr,
      `File "a.b.pdf", 1000 bytes, saved as ${saved}\n`,
    );
    assert.deepEqual(readFileSync(saved), bytes);
  }
  assert.equal(readFileSync('a.b.pdf', 'utf8'), 'mine');
});

test('a name that the file system does not accept is replaced', async () => {
  await receive(`${'契'.repeat(100)}.pdf`);
  const [saved = '', ...others] = readdirSync('.');
  assert.match(saved, /^secret-[0-9a-f-]{36}\.pdf$/);
  assert.deepEqual([readFileSync(saved), others], [bytes, []]);
});

test('so is an extension that the file system does not accept', async () => {
  await receive(`a.${'b'.repeat(300)}`);
  const [saved = ''] = readdirSync('.');
  assert.match(saved, /^secret-[0-9a-f-]{36}$/);
  assert.deepEqual(readFileSync(saved), bytes);
});

test('when a hundred names are taken, the file gets one of its own', async () => {
  writeFileSync('a.pdf', '');
  for (let number = 1; number < 100; number += 1) writeFileSync(`a (${number}).pdf`, '');
  await receive('a.pdf');
  const [saved = ''] = readdirSync('.').filter((name) => name.startsWith('secret-'));
  assert.deepEqual(readFileSync(saved), bytes);
});

test('without a directory here, the file is saved in the temporary directory', async () => {
  rmSync(process.cwd(), { recursive: true });
  const { stderr } = await receive('a.pdf');
  const saved = join(tmpdir(), 'a.pdf');
  assert.equal(stderr, `File "a.pdf", 1000 bytes, saved as ${saved}\n`);
  assert.deepEqual(readFileSync(saved), bytes);
});

test('a file that cannot be saved anywhere is printed, and the command fails', async () => {
  rmSync(process.cwd(), { recursive: true });
  rmSync(tmpdir(), { recursive: true });
  const { error, stdout } = await receive('a.pdf');
  assert.ok(error instanceof OperationFailed);
  assert.match(error.message, /"base64 -d" restores it$/);
  assert.deepEqual(Buffer.from(stdout, 'base64'), bytes);
});
