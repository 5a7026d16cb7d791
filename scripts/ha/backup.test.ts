/**
 * A backup with pg_dump under load, its restore on another server, and `restored` there: what was acknowledged before
 * the dump exists, and what had ended since, or could have, is over. Then `make dump` and `make load` between two major
 * versions of PostgreSQL, that of `make start` and that of the system.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createDatabase, createEmptyDatabase } from '../../test/support/database.ts';
import {
  ask,
  AUTH_TOKEN,
  logIn,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../../test/support/gatehouse.ts';
import { startLoad as startRounds } from '../../test/support/load.ts';
import { buildProgram, runProgram } from '../../test/support/process.ts';
import { secretsClient } from '../../test/support/secrets.ts';
import { until } from '../../test/support/until.ts';
import { unprivilegedUser } from '../binaries.ts';
import { dump, load } from '../dump.ts';
import { startLoad } from '../faults/load/load.ts';
import { type Services, SERVICES, startServices } from '../faults/system.ts';
import { withConnection } from '../postgres.ts';
import { start } from '../programs.ts';
import { findPostgres } from './cluster.ts';

const BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');
const PASSWORD = 'rehearsal';

/** A server of the system's PostgreSQL. @returns the URL of a new database of the role gatehouse */
async function startServer(t: TestContext): Promise<string> {
  const after = (stop: () => Promise<void>) =>
    t.after(async () => {
      // Otherwise, it waits for its clients.
      await withConnection(urlOf('postgres', port, 'postgres'), async (sql) => {
        await sql`alter database gatehouse with allow_connections false`;
        await sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'gatehouse'`;
      });
      await stop();
    });
  const { port } = await start(
    { after },
    {
      name: 'postgres',
      unprivileged: true,
      prepare(directory, free) {
        const [data, words] = [join(directory, 'data'), join(directory, 'words')];
        writeFileSync(words, PASSWORD, { mode: 0o644 });
        const options = { ...unprivilegedUser(), cwd: directory, env: { LC_ALL: 'C.UTF-8' } };
        execFileSync(
          join(BIN, 'initdb'),
          ['-D', data, '-U', 'postgres', '-A', 'scram-sha-256', '--pwfile', words, '-E', 'UTF8'],
          options,
        );
        return {
          command: [
            join(BIN, 'postgres'),
            '-D',
            data,
            '-c',
            `port=${free}`,
            '-c',
            'listen_addresses=127.0.0.1',
            '-c',
            'unix_socket_directories=',
          ],
        };
      },
      isReady: async (free) =>
        withConnection(urlOf('postgres', free, 'postgres'), (sql) => sql`select`).then(
          () => true,
          () => false,
        ),
    },
  );
  await withConnection(urlOf('postgres', port, 'postgres'), async (sql) => {
    await sql.unsafe(`create role gatehouse login password '${PASSWORD}'`);
    await sql`create database gatehouse owner gatehouse`;
  });
  return urlOf('gatehouse', port, 'gatehouse');
}

const urlOf = (role: string, port: number, database: string) =>
  `postgres://${role}:${PASSWORD}@127.0.0.1:${port}/${database}`;

/** What must be in a backup that begins now: the ids of everything that was acknowledged. */
const stored = (url: string): Promise<ReadonlySet<string>> =>
  withConnection(url, async (sql) => {
    const rows = await sql<Array<{ id: string }>>`
    select id from identity.users union all select id from identity.sessions union all select id from identity.api_keys
    union all select id from secrets.secrets union all select id from webhook.events`;
    return new Set(rows.map(({ id }) => id));
  });

function run(program: string, ...words: readonly string[]): void {
  const { status, stderr } = spawnSync(join(BIN, program), words, { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [0, ''], program);
}

test('pg_dump under load, pg_restore elsewhere, and restored', { timeout: 280_000 }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-backup-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, 'gatehouse.dump');
  const source = await startServer(t);
  const live = await startServices(t, source, () => source);
  const clients = await startLoad(t, live);
  await clients.progress(100);

  const program = buildProgram();
  const session = await logIn(live.url('identity'));
  const made = await ask('POST', `${live.url('identity')}/api/key/`, {
    bearer: session,
    body: { name: 'revoked later' },
  });
  const { id: keyId, key } = made.json.data;
  const { stdout: operator } = await runProgram(
    t,
    program,
    ['token', 'create', '--name', 'reader', '--role', 'operator'],
    live.environment,
  );
  const secrets = secretsClient(live.url('secrets'));
  const once = await secrets.keep('for one reader', { max_reads: 1 });
  const often = await secrets.keep('for any number of readers');
  const statuses = async ({ url }: Services) => ({
    session: (await ask('GET', `${url('identity')}/api/test/`, { bearer: session })).status,
    key: (await ask('GET', `${url('identity')}/api/test/`, { bearer: key })).status,
    operator: (await ask('GET', `${url('webhook')}/events`, { bearer: operator.trim() })).status,
    sender: (
      await ask('POST', `${url('webhook')}/webhook`, {
        bearer: WEBHOOK_TOKEN,
        body: { event: 'x', data: { page_id: 'p' } },
      })
    ).status,
  });
  assert.deepEqual(await statuses(live), { session: 200, key: 200, operator: 200, sender: 200 });

  const before = await stored(source);
  run('pg_dump', '--format=custom', '--file', file, source);
  await clients.progress(20);
  assert.equal((await secrets.decrypt(once.id, once.secret)).json.password, 'for one reader');
  const admin = await logIn(live.url('identity'));
  for (const path of [`key/${keyId}/revoke`, `session/revoke?session=${session}`]) {
    assert.equal(
      (await ask('DELETE', `${live.url('identity')}/api/${path}`, { bearer: admin })).status,
      200,
      path,
    );
  }
  await clients.stop();
  t.diagnostic(await clients.check());
  for (const service of SERVICES) live.running(service).signal('SIGTERM');

  const target = await startServer(t);
  run('pg_restore', '--clean', '--if-exists', '--dbname', target, file);
  const after = await stored(target);
  assert.deepEqual(
    [...before].filter((id) => !after.has(id)),
    [],
    'acknowledged before the dump',
  );
  t.diagnostic(`${before.size} records before the dump, ${after.size} in it`);
  const again = await startServices(t, target, () => target);
  assert.deepEqual(
    await statuses(again),
    { session: 200, key: 200, operator: 200, sender: 200 },
    'the restore revives them',
  );
  for (const service of SERVICES) {
    const { code, stderr } = await runProgram(t, program, ['restored', service, '--confirm'], {
      DATABASE_URL: target,
      AUTH_TOKEN,
    });
    assert.equal(code, 0, stderr);
  }
  assert.deepEqual(await statuses(again), { session: 401, key: 401, operator: 401, sender: 401 });
  const revived = secretsClient(again.url('secrets'));
  assert.equal(
    (await revived.decrypt(once.id, once.secret)).status,
    404,
    'it was read after the dump',
  );
  assert.equal(
    (await revived.decrypt(often.id, often.secret)).json.password,
    'for any number of readers',
  );
  const fresh = await logIn(again.url('identity'));
  assert.equal(
    (await ask('GET', `${again.url('identity')}/api/test/`, { bearer: fresh })).status,
    200,
  );
  for (const service of SERVICES) again.running(service).signal('SIGTERM');
});

test(
  'make dump and make load between two major versions, there and back',
  { timeout: 280_000 },
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), 'gatehouse-backup-'));
    t.after(() => rmSync(directory, { recursive: true, force: true }));
    const embedded = await createDatabase(t);
    const { url, stop } = await startGatehouse(t, SERVICES, embedded.url);
    const callers = await startRounds(url, 2);
    await until(() => callers.rounds() >= 6, '6 rounds');
    await callers.stopAndCompare(embedded.sql);
    await stop();

    const own = await startServer(t);
    const back = await createEmptyDatabase(t);
    const [first, second, third] = ['first', 'second', 'third'].map((name) =>
      join(directory, name),
    );
    assert.ok(first && second && third);
    const rows = await dump(embedded.url, first);
    assert.equal(await load(own, first), rows);
    await dump(own, second);
    await load(back.url, second);
    await dump(back.url, third);
    const lines = (file: string) => readFileSync(file, 'utf8').split('\n').sort();
    assert.deepEqual(lines(second), lines(first));
    assert.deepEqual(lines(third), lines(first));
    const versions = [embedded.url, own].map((each) =>
      withConnection(each, async (sql) =>
        (await sql`show server_version_num`)[0]?.server_version_num.slice(0, 2),
      ),
    );
    const [ours, theirs] = await Promise.all(versions);
    t.diagnostic(`${rows} rows, PostgreSQL ${ours} to ${theirs} and back`);
    for (const each of [own, back.url]) {
      const again = await startGatehouse(t, SERVICES, each);
      assert.ok(await logIn(again.url.identity));
      await again.stop();
    }
  },
);
