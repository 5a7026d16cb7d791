/** Where `secret get` saves a file on a terminal. The secret may be deleted by then. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, beforeEach, test } from 'node:test';
import { createTerminal, OperationFailed } from '../../../src/commands/command.ts';
import { showContent } from '../../../src/commands/secret-links.ts';
import { makeDirectory } from '../../support/directories.ts';

const root = makeDirectory({ after }, 'files');
const bytes = randomBytes(1_000);

beforeEach(() => {
  process.env.TMPDIR = mkdtempSync(join(root, 'tmp-'));
  process.chdir(mkdtempSync(join(root, 'here-')));
});

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
const saved = (as: string, name = 'a.pdf') => `File "${name}", 1000 bytes, saved as ${as}\n`;

test('a file never overwrites another one, and keeps its extension', async () => {
  writeFileSync('a.b.pdf', 'mine');
  for (const name of ['a.b (1).pdf', 'a.b (2).pdf']) {
    assert.equal((await receive('a.b.pdf')).stderr, saved(name, 'a.b.pdf'));
    assert.deepEqual(readFileSync(name), bytes);
    assert.equal(statSync(name).mode & 0o777, 0o600, 'nobody else can read it');
  }
  assert.equal(readFileSync('a.b.pdf', 'utf8'), 'mine');
});

test('a name or extension that the file system does not accept, or that is taken, is replaced', async () => {
  for (let number = 1; number < 100; number += 1) writeFileSync(`a (${number}).pdf`, '');
  writeFileSync('a.pdf', '');
  const names = [`${'契'.repeat(100)}.pdf`, `a.${'b'.repeat(300)}`, 'a.pdf'];
  for (const [count, name] of names.entries()) {
    await receive(name);
    const made = readdirSync('.').filter((one) => one.startsWith('secret-'));
    assert.equal(made.length, count + 1, name);
    for (const one of made) {
      assert.match(one, /^secret-[0-9a-f-]{36}(\.pdf)?$/);
      assert.deepEqual(readFileSync(one), bytes);
    }
  }
});

test('without a directory here, it is the temporary one; without that, the file is printed', async () => {
  rmSync(process.cwd(), { recursive: true });
  const path = join(tmpdir(), 'a.pdf');
  assert.equal((await receive('a.pdf')).stderr, saved(path));
  assert.deepEqual(readFileSync(path), bytes);
  rmSync(tmpdir(), { recursive: true });
  const { error, stdout } = await receive('a.pdf');
  assert.ok(error instanceof OperationFailed);
  assert.match(error.message, /"base64 -d" restores it$/);
  assert.deepEqual(Buffer.from(stdout, 'base64'), bytes);
});

test('on a full disk nothing is left of the file, and it is saved elsewhere or printed', async (t) => {
  const file = await open(join(root, 'any'), 'w');
  await file.close();
  const files: Pick<FileHandle, 'writeFile'> = Object.getPrototypeOf(file);
  const fill = (disks: number) =>
    t.mock.method(files, 'writeFile', () => Promise.reject(new Error('full')), { times: disks });
  fill(1);
  assert.equal((await receive('a.pdf')).stderr, saved(join(tmpdir(), 'a.pdf')));
  fill(2);
  const { error, stdout } = await receive('b.pdf');
  assert.ok(error instanceof OperationFailed);
  assert.deepEqual(Buffer.from(stdout, 'base64'), bytes);
  assert.deepEqual([readdirSync('.'), readdirSync(tmpdir())], [[], ['a.pdf']]);
});
