/** The PostgreSQL of `make start`: its directory, its settings, and what it says of itself. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  readdirSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { findBinaries, unprivilegedUser } from '../../../scripts/binaries.ts';
import { firstValue } from '../../../scripts/first-values.ts';
import { startPostgres, withConnection } from '../../../scripts/postgres.ts';
import { SetupError } from '../../../scripts/setup-error.ts';
import { makeDirectory } from '../../support/directories.ts';
import { root } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

// Only its owner may enter it, like a checkout in root's home directory.
const closed = makeDirectory({ after }, 'closed');
const directory = join(closed, 'state');
const data = join(directory, 'postgres/data');

async function start(t: TestContext, durable = false) {
  const server = await startPostgres({ directory, durable });
  t.after(() => server.stop());
  return server;
}

const query = (url: string, text: string): Promise<unknown[]> =>
  withConnection(url, async (sql) => [...(await sql.unsafe(text))]);
const settingsOf = async (url: string) => {
  const names = Object.keys(SETTINGS).map((name) => `'${name}'`);
  const [row] = await withConnection(
    url,
    (sql) => sql`select json_object_agg(name, setting order by name) as all from pg_settings
      where name in (${sql.unsafe(names.join())})`,
  );
  return row?.all;
};
const SETTINGS = {
  fsync: 'off',
  full_page_writes: 'on',
  listen_addresses: '127.0.0.1',
  synchronous_commit: 'on',
};

test('a start that was killed during initdb leaves nothing the next one uses', async (t) => {
  const program = join(closed, 'starter.mjs');
  const module = JSON.stringify(join(root, 'scripts/postgres.js'));
  writeFileSync(
    program,
    `import { startPostgres } from ${module};
     await startPostgres({ directory: ${JSON.stringify(directory)}, durable: false });`,
  );
  const parent = spawn(process.execPath, [program], { stdio: 'ignore' });
  const drafts = () =>
    (existsSync(directory) ? readdirSync(directory) : []).map((name) => join(directory, name));
  await until(() => drafts().some((draft) => existsSync(join(draft, 'data/PG_VERSION'))));
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  assert.equal(existsSync(join(directory, 'postgres')), false);
  assert.equal(drafts().length, 2, 'the draft and the log');

  const server = await start(t);
  await query(server.url, 'create table kept as select 42 as number');
  assert.ok(!drafts().some((draft) => draft.includes('.new-')));
});

test('the next start finds the data, which only its owner can read', async (t) => {
  const server = await start(t);
  assert.deepEqual(await query(server.url, 'select number from kept'), [{ number: 42 }]);
  for (const [path, mode] of [
    ['.', 0o700],
    ['postgres', 0o700],
    ['postgres/data', 0o700],
    ['postgres/password', 0o600],
    ['postgres.log', 0o600],
  ] as const)
    assert.equal(statSync(join(directory, path)).mode & 0o777, mode, path);
  const wrong = Object.assign(new URL(server.url), { password: 'wrong' });
  await assert.rejects(query(wrong.href, 'select'), { code: '28P01' });
  assert.deepEqual(await settingsOf(server.url), SETTINGS);
});

test('with `durable`, fsync is on; data of another major version lead to a document', async (t) => {
  const server = await start(t, true);
  assert.deepEqual(await settingsOf(server.url), { ...SETTINGS, fsync: 'on' });
  await server.stop();
  const file = join(data, 'PG_VERSION');
  const version = readFileSync(file, 'utf8');
  writeFileSync(file, '15\n');
  t.after(() => writeFileSync(file, version));
  const said = /incompatible with server[^]*\nSee "Upgrade of a clone" in docs\/deploy\.md\.$/;
  await assert.rejects(start(t), said);
});

test('a stale pid file is ignored: empty, or with the number of another program', async (t) => {
  const other = spawn('sleep', ['1000'], { ...unprivilegedUser(), stdio: 'ignore' });
  t.after(() => other.kill());
  await once(other, 'spawn');
  const file = join(data, 'postmaster.pid');
  for (const text of ['', `${other.pid}\n/proc/self/cwd\n1\n1\n\n127.0.0.1\n`]) {
    writeFileSync(file, text);
    utimesSync(file, new Date(0), new Date(0));
    await (await start(t)).stop();
  }
});

// One that is not installed: test/program/package.test.ts.
test('a setup error is one line that says what to do', async () => {
  const isSaid = (pattern: RegExp) => (error: unknown) =>
    error instanceof SetupError && pattern.test(error.message);
  const unknown = /^There is no embedded PostgreSQL for linux-riscv64: set DATABASE_URL to .*\.$/;
  assert.throws(() => findBinaries('linux', 'riscv64'), isSaid(unknown));
  const empty = join(closed, 'auth-token');
  writeFileSync(empty, '');
  const given = () => firstValue({}, closed, 'AUTH_TOKEN');
  assert.throws(given, isSaid(/auth-token is empty\. Restore it from a backup, or remove it /));
  const wrong = startPostgres({ directory: join(empty, 'state'), durable: false });
  await assert.rejects(
    wrong,
    isSaid(/^Cannot write .*\/state \(ENOTDIR\)\. Make it writable, or /),
  );
});
