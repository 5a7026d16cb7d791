/**
 * What commands find around them: clocks, processes, and a directory where `make start` runs.
 * `transcripts/check.txt` has the rest of `check`, and `documented-sql.test.ts` has rights.
 */
import assert from 'node:assert/strict';
import { chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, test, type TestContext } from 'node:test';
import { servedBy } from '../../../src/commands/check.ts';
import { configure } from '../../../src/serve.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { startGatehouse, variables } from '../../support/gatehouse.ts';
import { listenOn } from '../../support/ports.ts';
import { createRelay } from '../../support/relay.ts';
import { WEBHOOK_SECRET } from '../../support/senders.ts';

/** Without warnings. */
const settings = (url: string) => ({ ...variables(url), PASSWORD_SCRYPT: '' });

/** @returns how it ends, and state and detail of each line by what it checks */
async function check(service: string, given: Readonly<Record<string, string>>) {
  const { code, stdout } = await runCommand(['check', '--json', service], given);
  const rows: Array<{ state: string; check: string; detail: string }> = JSON.parse(stdout);
  const lines = rows.map((row) => [row.check, `${row.state}: ${row.detail}`] as const);
  return { code, lines: new Map(lines) };
}

test('check reports wrong settings as serve does, and exits 78', async () => {
  const given = { ...settings('postgres://x@127.0.0.1:1/y'), IDENTITY_PORT: 'x', SESION_TTL: '5' };
  const { code, stdout, stderr } = await runCommand(['check'], given);
  const problems = stderr
    .trim()
    .replaceAll(/^gatehouse: /gm, '')
    .split('\n');
  assert.deepEqual([code, stdout, problems.length], [78, '', 2]);
  await assert.rejects(configure([], 'serve', given), { problems });
});

test('check names the listener of a running service', async (t) => {
  const { url } = await createDatabase(t);
  const running = await startGatehouse(t, ['secrets'], url);
  const { port } = new URL(running.url.secrets);
  const { code, lines } = await check('secrets', { ...settings(url), SECRETS_PORT: port });
  assert.equal(code, 0);
  const used = / \(in use now, by a running Gatehouse or another program\)$/;
  assert.match(lines.get('secrets listener') ?? '', used);
});

test('check refuses a server that is too old', async (t) => {
  const { url } = await createDatabase(t);
  const asked = `current_setting('server_version_num')`;
  const older = `'140020'`.padEnd(asked.length);
  const relay = createRelay(Number(new URL(url).port), (sent) =>
    Buffer.from(sent.toString('latin1').replace(asked, older), 'latin1'),
  );
  const port = String(await listenOn(t, relay));
  const { code, lines } = await check(
    'secrets',
    settings(Object.assign(new URL(url), { port }).href),
  );
  assert.equal(code, 1);
  const said = /^failed: PostgreSQL .*; PostgreSQL 15 or newer is needed$/;
  assert.match(lines.get('secrets database') ?? '', said);
});

// With a view like that of Citus: `make e2e NAME=citus` has the real one.
test('check and serve accept no distributed table but one of secrets', async (t) => {
  const { url, sql } = await createDatabase(t);
  for (const [table, state, end] of [
    ['secrets.secrets by id', 'ok', 'all others are on the coordinator'],
    ['secrets.secrets by key_id', 'failed', 'its statements need one node'],
    ['secrets.tokens by id', 'failed', 'its statements need one node'],
  ] as const) {
    const [name = '', column = ''] = table.split(' by ');
    await sql.unsafe(`
      create or replace view citus_tables as
      select '${name}'::regclass as table_name, '${column}' as distribution_column,
        'distributed' as citus_table_type`);
    const { code, lines } = await check('secrets', settings(url));
    const said = `${state}: distributed by Citus: ${table}; ${end}`;
    assert.deepEqual([code, lines.get('secrets table')], [state === 'ok' ? 0 : 1, said]);
    const started = startGatehouse(t, ['secrets'], url);
    if (state === 'ok') await started;
    else await assert.rejects(started, new RegExp(`Citus distributes ${table}, whose `));
  }
  const other = await check('identity', settings(url));
  assert.deepEqual([other.code, other.lines.get('identity table')], [0, undefined]);
});

test('check warns if the clocks of this machine and of the server differ', async (t) => {
  const { url } = await createDatabase(t);
  const { now } = Date;
  for (const [seconds, said] of [
    [-3_600, /^warning: .* ahead of this machine's clock .*; synchronize both$/],
    [60, /^warning: .* behind this machine's clock .*; synchronize both$/],
    [20, /^ok: /],
  ] as const) {
    t.mock.restoreAll();
    t.mock.method(Date, 'now', () => now() + seconds * 1_000);
    const { code, lines } = await check('secrets', settings(url));
    assert.equal(code, 0);
    assert.match(lines.get('secrets clock') ?? '', said);
  }
});

test('without a name, check takes the services that process 1 of a container serves', () => {
  const node = 'node\0/app/dist/cli.js';
  for (const [commandLine, ...services] of [
    [`${node}\0serve\0webhook\0`, 'webhook'],
    [`/sbin/docker-init\0--\0${node}\0serve\0secrets\0webhook\0`, 'secrets', 'webhook'],
    [`${node}\0serve\0`],
    [`${node}\0check\0`],
    ['/sbin/init\0'],
    ['other\0serve\0webhook\0'],
    [''],
  ] as const)
    assert.deepEqual(servedBy(commandLine), services, commandLine);
});

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
