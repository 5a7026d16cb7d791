import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { findBinaries, reachableBinaries, unprivilegedUser } from '../../scripts/binaries.ts';
import { connect, startPostgres } from '../../scripts/postgres.ts';
import type { PostgresServer } from '../../scripts/postgres.ts';
import { SetupError } from '../../scripts/setup-error.ts';
import { bounded, until } from '../support/until.ts';

// Only its owner may enter it, like a checkout in root's home directory.
const closed = mkdtempSync(join(tmpdir(), 'gatehouse-closed-'));
test.after(() => rmSync(closed, { recursive: true, force: true }));
const directory = join(closed, 'state');
const data = join(directory, 'postgres/data');

async function start(t: TestContext): Promise<PostgresServer> {
  const server = await startPostgres({ directory, durable: false });
  t.after(() => server.stop());
  return server;
}

async function query(url: string, text: string): Promise<unknown[]> {
  const sql = connect(url);
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end();
  }
}

/** A process that starts the server and then does nothing. */
function starter(): ReturnType<typeof spawn> {
  const program = join(closed, 'starter.mts');
  const module = JSON.stringify(join(import.meta.dirname, '../../scripts/postgres.ts'));
  writeFileSync(
    program,
    `import { startPostgres } from ${module};
     await startPostgres({ directory: ${JSON.stringify(directory)}, durable: false });
     console.log('started');`,
  );
  return spawn(process.execPath, ['--import', 'tsx', program], { stdio: ['ignore', 'pipe', 'inherit'] });
}

test('a start that was killed while it made the database leaves nothing that the next one trusts', bounded, async (t) => {
  const parent = starter();
  const drafts = () => (existsSync(directory) ? readdirSync(directory) : []).map((name) => join(directory, name));
  await until(() => drafts().some((draft) => existsSync(join(draft, 'data/PG_VERSION'))));
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  assert.equal(existsSync(join(directory, 'postgres')), false);
  assert.equal(drafts().length, 2, 'the draft and the log');

  const server = await start(t);
  await query(server.url, 'create table kept as select 42 as number');
  assert.equal(drafts().some((draft) => draft.includes('.new-')), false);
});

test('the next start finds what was stored, and nobody else does', bounded, async (t) => {
  const server = await start(t);
  assert.deepEqual(await query(server.url, 'select number from kept'), [{ number: 42 }]);
  for (const [path, mode] of [['.', 0o700], ['postgres', 0o700], ['postgres/data', 0o700], ['postgres/password', 0o600]] as const) {
    assert.equal(statSync(join(directory, path)).mode & 0o777, mode, path);
  }
  assert.equal(statSync(join(directory, 'postgres.log')).mode & 0o777, 0o600);
  assert.deepEqual(await query(server.url, "select current_setting('listen_addresses') as addresses"), [{ addresses: '127.0.0.1' }]);

  const stranger = new URL(server.url);
  stranger.password = 'wrong';
  await assert.rejects(query(stranger.href, 'select'), { code: '28P01' });
});

test('only what protects against a power failure depends on `durable`, and it is on for `make start`', bounded, async (t) => {
  const settings = "select name, setting from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes') order by name";
  const values = async (durable: boolean) => {
    const server = await startPostgres({ directory, durable });
    t.after(() => server.stop());
    const rows = await query(server.url, settings);
    await server.stop();
    return rows;
  };
  const shipped = [{ name: 'fsync', setting: 'on' }, { name: 'full_page_writes', setting: 'on' }, { name: 'synchronous_commit', setting: 'on' }];
  assert.deepEqual(await values(true), shipped);
  assert.deepEqual(await values(false), [{ name: 'fsync', setting: 'off' }, ...shipped.slice(1)]);
});

test('of two starts at once one serves and the other says so', bounded, async (t) => {
  const starts = await Promise.allSettled([start(t), start(t)]);
  const refused = starts.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
  assert.equal(refused.length, 1);
  assert.ok(refused[0] instanceof SetupError);
  assert.match(refused[0].message, /^another "make start" is running in this directory \(its PostgreSQL is process \d+\).*$/);
});

test('the server stops in order when its starter is killed', bounded, async (t) => {
  const parent = starter();
  if (parent.stdout !== null) await once(parent.stdout, 'data');
  assert.equal(existsSync(join(data, 'postmaster.pid')), true);
  parent.kill('SIGKILL');
  // PostgreSQL removes it as the last act of an orderly shutdown.
  await until(() => !existsSync(join(data, 'postmaster.pid')));
  await start(t);
});

test('a server that was killed is noticed, and the next one recovers what was committed', bounded, async (t) => {
  const server = await start(t);
  await query(server.url, 'insert into kept values (43)');
  process.kill(server.processId, 'SIGKILL');
  assert.equal(await server.ended, 128 + 9);

  const next = await start(t);
  assert.deepEqual(await query(next.url, 'select number from kept order by number'), [{ number: 42 }, { number: 43 }]);
});

test('a pid file of a dead server does not matter when another program has that number by now', bounded, async (t) => {
  const other = spawn('sleep', ['1000'], { ...unprivilegedUser(), stdio: 'ignore' });
  t.after(() => other.kill());
  await once(other, 'spawn');
  writeFileSync(join(data, 'postmaster.pid'), `${other.pid}\n/proc/self/cwd\n1\n1\n\n127.0.0.1\n`);
  await start(t);
});

test('nor does one that a server left empty because it was killed before it had written it', bounded, async (t) => {
  const file = join(data, 'postmaster.pid');
  writeFileSync(file, '');
  utimesSync(file, new Date(0), new Date(0));
  await start(t);
});

test('what a person can put right is said in one line', bounded, async () => {
  assert.throws(() => findBinaries('linux', 'riscv64'), (error) => {
    assert.ok(error instanceof SetupError);
    assert.match(error.message, /^no PostgreSQL binary for linux-riscv64: set DATABASE_URL .* without --omit=optional\)$/);
    return true;
  });
  const file = join(closed, 'a-file');
  writeFileSync(file, '');
  await assert.rejects(startPostgres({ directory: join(file, 'state'), durable: false }), (error) => {
    assert.ok(error instanceof SetupError);
    assert.match(error.message, /^cannot write .*a-file\/state \(ENOTDIR\): make it writable, or set DATABASE_URL$/);
    return true;
  });
});

test('programs in a directory that PostgreSQL\'s user may not enter are copied for the time of the run', bounded, () => {
  const native = join(closed, 'native');
  cpSync(findBinaries(), native, { recursive: true, verbatimSymlinks: true });
  const user = unprivilegedUser();
  const forgotten = join(tmpdir(), 'gatehouse-postgres-999999999-forgotten');
  mkdirSync(forgotten, { recursive: true });

  const binaries = reachableBinaries(native, user);
  assert.equal(binaries.path === native, user === undefined, 'only root needs a copy');
  assert.equal(existsSync(forgotten), user === undefined, 'a copy whose maker is gone is removed');
  binaries.remove();
  assert.equal(existsSync(binaries.path), user === undefined, 'the package itself is never removed');
  rmSync(forgotten, { recursive: true, force: true });
});
