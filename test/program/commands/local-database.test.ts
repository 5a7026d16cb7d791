/** Commands in a directory where `make start` runs. */
import assert from 'node:assert/strict';
import { chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, test, type TestContext } from 'node:test';
import { configure } from '../../../src/serve.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { WEBHOOK_SECRET } from '../../support/senders.ts';

const home = process.cwd();
afterEach(() => process.chdir(home));

function enterDirectory(t: TestContext, files: Readonly<Record<string, string>>): void {
  const directory = makeDirectory(t, 'local');
  process.chdir(directory);
  mkdirSync('.data');
  for (const [name, text] of Object.entries(files)) writeFileSync(join('.data', name), `${text}\n`);
}

const NOTE = 'gatehouse: using the database of "make start" (.data/database-url)\n';
const run = (words: string, given = {}) =>
  runCommand(words.split(' '), given, 'signing-secret-0123456789abcdef');

test('without a database URL, commands use the database and values of make start, and say so', async (t) => {
  const { url, sql } = await createDatabase(t);
  const origin = 'http://localhost:4242';
  const pages = { 'signin-pages': 'on', 'signin-origin': origin };
  enterDirectory(t, { 'database-url': url, 'webhook-secret': WEBHOOK_SECRET, ...pages });
  const created = await run('token create --source github --signing-secret-file -');
  assert.equal(created.code, 0, created.stderr);
  assert.ok(created.stderr.startsWith(NOTE), created.stderr);
  assert.equal((await sql`select from webhook.tokens`).length, 1);
  const listed = await run('user list --json');
  assert.deepEqual([listed.code, listed.stderr, listed.stdout], [0, NOTE, '[]\n']);
  const invited = await run('user invite --username ada --email ada@example.org');
  assert.ok(invited.stdout.startsWith(`${origin}/link#`), invited.stderr);

  for (const variable of ['DATABASE_URL', 'DATABASE_URL_FILE', 'IDENTITY_DATABASE_URL']) {
    const { stderr } = await run('user list', { [variable]: '/nowhere' });
    assert.ok(!stderr.includes(NOTE), variable);
  }
});

test('without make start, with the files of another user, or for serve, DATABASE_URL must be set', async (t) => {
  const missing = /IDENTITY_DATABASE_URL or DATABASE_URL must be set/;
  enterDirectory(t, {});
  assert.match((await run('user list')).stderr, missing);
  writeFileSync('.data/database-url', 'postgres://elsewhere/');
  await assert.rejects(configure(['identity'], 'serve', {}), missing);
  if (process.getuid?.() !== 0) return;
  chownSync('.data/database-url', 65_534, 65_534);
  assert.match((await run('user list')).stderr, missing);
});
