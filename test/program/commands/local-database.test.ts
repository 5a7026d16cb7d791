/** Commands in a directory where `make start` runs. */
import assert from 'node:assert/strict';
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { buildProgram, runProgram } from '../../support/process.ts';

const SECRET = 'webhook-secret-for-tests-0123456789abcdef';

function makeDirectory(t: TestContext, files: Readonly<Record<string, string>>): string {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-local-'));
  t.after(() => rmSync(directory, { recursive: true }));
  mkdirSync(join(directory, '.data'));
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(directory, '.data', name), `${text}\n`);
  }
  return directory;
}

const NOTE = 'gatehouse: using the database of "make start" (.data/database-url)\n';
const createSigned = 'token create --name deploys --source github --signing-secret-file -'.split(
  ' ',
);

test('without a database URL, commands use the database and secrets of make start, and say so', async (t) => {
  const { url, sql } = await createDatabase(t);
  const cwd = makeDirectory(t, { 'database-url': url, 'webhook-secret': SECRET });
  const run = (words: readonly string[], given = {}) =>
    runProgram(t, buildProgram(), words, given, { cwd, input: 'signing-secret-0123456789abcdef' });

  const created = await run(createSigned);
  assert.equal(created.code, 0, created.stderr);
  assert.ok(created.stderr.startsWith(NOTE), created.stderr);
  assert.equal((await sql`select from webhook.tokens`).length, 1);
  const listed = await run(['user', 'list', '--json']);
  assert.deepEqual([listed.code, listed.stderr, listed.stdout], [0, NOTE, '[]\n']);

  for (const variable of ['DATABASE_URL', 'DATABASE_URL_FILE', 'IDENTITY_DATABASE_URL']) {
    const { stderr } = await run(['user', 'list'], { [variable]: '/nowhere' });
    assert.ok(!stderr.includes(NOTE), variable);
  }
});

test('a link that a command prints is of the sign-in pages of make start', async (t) => {
  const { url } = await createDatabase(t);
  const origin = 'http://localhost:4242';
  const cwd = makeDirectory(t, {
    'database-url': url,
    'signin-pages': 'on',
    'signin-origin': origin,
  });
  const words = ['user', 'invite', '--username', 'ada', '--email', 'ada@example.org'];
  const { stdout, stderr, code } = await runProgram(t, buildProgram(), words, {}, { cwd });
  assert.equal(code, 0, stderr);
  assert.ok(stdout.startsWith(`${origin}/link#`), stdout);
});

test('without make start, or with the files of another user, DATABASE_URL must be set', async (t) => {
  const missing = /^gatehouse: IDENTITY_DATABASE_URL or DATABASE_URL must be set/;
  const cwd = makeDirectory(t, {});
  const run = () => runProgram(t, buildProgram(), ['user', 'list'], {}, { cwd });
  assert.match((await run()).stderr, missing);
  const file = join(cwd, '.data/database-url');
  writeFileSync(file, 'postgres://elsewhere/');
  if (process.getuid?.() !== 0) return;
  chownSync(file, 65_534, 65_534);
  assert.match((await run()).stderr, missing);
});

test('serve does not use the database of make start', async (t) => {
  const cwd = makeDirectory(t, { 'database-url': 'postgres://elsewhere/' });
  const { code, stderr } = await runProgram(t, buildProgram(), ['serve', 'identity'], {}, { cwd });
  assert.equal(code, 78);
  assert.match(stderr, /IDENTITY_DATABASE_URL or DATABASE_URL must be set/);
});
