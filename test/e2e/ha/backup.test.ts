/**
 * A backup with pg_dump under load, its restore on another server, and `restored` there: what was
 * acknowledged before the dump exists, and what had ended since, or could have, is over. The same
 * with a database and two roles for each service. Then `make dump` and `make load` between two
 * major versions of PostgreSQL, that of `make start` and that of the system.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createDatabase, createEmptyDatabase } from '../../support/database.ts';
import { readDocument } from '../../support/documents.ts';
import { ask, AUTH_TOKEN, logIn, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { startLoad as startRounds } from '../../support/load.ts';
import { buildProgram, runProgram } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until } from '../../support/until.ts';
import { unprivilegedUser } from '../../../scripts/binaries.ts';
import { dump, load } from '../../../scripts/dump.ts';
import { startLoad } from '../faults/load/load.ts';
import { type Services, SERVICES, startServices } from '../faults/system.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import { start } from '../programs.ts';
import { findPostgres } from './cluster.ts';

const BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');
const PASSWORD = 'rehearsal';

/**
 * A server of the system's PostgreSQL.
 * @param names of databases, each of a new role with the same name
 * @returns the port
 */
async function startDatabases(t: TestContext, names: readonly string[]): Promise<number> {
  const asAdmin = (work: Parameters<typeof withConnection<unknown>>[1]) =>
    withConnection(urlOf('postgres', port, 'postgres'), work);
  const after = (stop: () => Promise<void>) =>
    t.after(async () => {
      // Otherwise, it waits for its clients.
      await asAdmin(async (sql) => {
        for (const name of names)
          await sql.unsafe(`alter database ${name} with allow_connections false`);
        await sql`select pg_terminate_backend(pid) from pg_stat_activity
          where datname = any (${names})`;
      });
      await stop();
    });
  const { port } = await start(
    { after },
    {
      name: 'postgres',
      unprivileged: true,
      prepare(directory, free) {
        const data = join(directory, 'data');
        const words = join(directory, 'words');
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
  await asAdmin(async (sql) => {
    for (const name of names) {
      await sql.unsafe(`create role ${name} login password '${PASSWORD}'`);
      await sql.unsafe(`create database ${name} owner ${name}`);
    }
  });
  return port;
}

/** @returns the URL of a new database of the role gatehouse, on a server of its own */
async function startServer(t: TestContext): Promise<string> {
  const port = await startDatabases(t, ['gatehouse']);
  return urlOf('gatehouse', port, 'gatehouse');
}

const urlOf = (role: string, port: number, database: string) =>
  `postgres://${role}:${PASSWORD}@127.0.0.1:${port}/${database}`;

/** What must be in a backup that begins now: the ids of everything that was acknowledged. */
const stored = (url: string): Promise<ReadonlySet<string>> =>
  withConnection(url, async (sql) => {
    const rows = await sql<Array<{ id: string }>>`
      select id from identity.users union all select id from identity.sessions
      union all select id from identity.api_keys union all select id from secrets.secrets
      union all select id from webhook.events`;
    return new Set(rows.map(({ id }) => id));
  });

function run(program: string, ...words: readonly string[]): void {
  const { status, stderr } = spawnSync(join(BIN, program), words, { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [0, ''], program);
}

/** What a caller may do with a session, a key, an operator's token and a sender's. */
interface Credentials {
  readonly session: string;
  readonly keyId: string;
  readonly key: string;
  readonly operator: string;
}

async function createCredentials(t: TestContext, live: Services): Promise<Credentials> {
  const session = await logIn(live.url('identity'));
  const made = await ask('POST', `${live.url('identity')}/api/key/`, {
    bearer: session,
    body: { name: 'revoked later' },
  });
  const { id: keyId, key } = made.json.data;
  const words = ['token', 'create', '--name', 'reader', '--role', 'operator'];
  const { stdout } = await runProgram(t, buildProgram(), words, live.environment);
  return { session, keyId, key, operator: stdout.trim() };
}

async function statuses({ url }: Services, credentials: Credentials) {
  const get = async (address: string, bearer: string) =>
    (await ask('GET', address, { bearer })).status;
  const sent = await ask('POST', `${url('webhook')}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event: 'x', data: { page_id: 'p' } },
  });
  return {
    session: await get(`${url('identity')}/api/test/`, credentials.session),
    key: await get(`${url('identity')}/api/test/`, credentials.key),
    operator: await get(`${url('webhook')}/events`, credentials.operator),
    sender: sent.status,
  };
}

const ALL_ACCEPTED = { session: 200, key: 200, operator: 200, sender: 200 };
const ALL_REJECTED = { session: 401, key: 401, operator: 401, sender: 401 };

async function revoke(live: Services, { keyId, session }: Credentials): Promise<void> {
  const admin = await logIn(live.url('identity'));
  for (const path of [`key/${keyId}/revoke`, `session/revoke?session=${session}`]) {
    const answer = await ask('DELETE', `${live.url('identity')}/api/${path}`, { bearer: admin });
    assert.equal(answer.status, 200, path);
  }
}

function stop({ running }: Services): void {
  for (const service of SERVICES) running(service).signal('SIGTERM');
}

/** Runs `restored` for each service, which ends what the restore has revived. */
async function confirmRestored(t: TestContext, databaseUrl: string): Promise<void> {
  for (const service of SERVICES) {
    const words = ['restored', service, '--confirm'];
    const environment = { DATABASE_URL: databaseUrl, AUTH_TOKEN };
    const { code, stderr } = await runProgram(t, buildProgram(), words, environment);
    assert.equal(code, 0, stderr);
  }
}

test('pg_dump under load, pg_restore elsewhere, and restored', { timeout: 280_000 }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-backup-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, 'gatehouse.dump');
  const source = await startServer(t);
  const live = await startServices(t, source, () => source);
  const clients = await startLoad(t, live);
  await clients.progress(100);
  const credentials = await createCredentials(t, live);
  const secrets = secretsClient(live.url('secrets'));
  const once = await secrets.keep('for one reader', { max_reads: 1 });
  const often = await secrets.keep('for any number of readers');
  assert.deepEqual(await statuses(live, credentials), ALL_ACCEPTED);

  const before = await stored(source);
  run('pg_dump', '--format=custom', '--file', file, source);
  await clients.progress(20);
  assert.equal((await secrets.decrypt(once.id, once.secret)).json.password, 'for one reader');
  await revoke(live, credentials);
  await clients.stop();
  t.diagnostic(await clients.check());
  stop(live);

  const target = await startServer(t);
  run('pg_restore', '--clean', '--if-exists', '--dbname', target, file);
  const after = await stored(target);
  const lost = [...before].filter((id) => !after.has(id));
  assert.deepEqual(lost, [], 'acknowledged before the dump');
  t.diagnostic(`${before.size} records before the dump, ${after.size} in it`);
  const again = await startServices(t, target, () => target);
  const revived = await statuses(again, credentials);
  assert.deepEqual(revived, ALL_ACCEPTED, 'the restore revives them');
  await confirmRestored(t, target);
  assert.deepEqual(await statuses(again, credentials), ALL_REJECTED);
  const restored = secretsClient(again.url('secrets'));
  const { status } = await restored.decrypt(once.id, once.secret);
  assert.equal(status, 404, 'it was read after the dump');
  const read = await restored.decrypt(often.id, often.secret);
  assert.equal(read.json.password, 'for any number of readers');
  const fresh = await logIn(again.url('identity'));
  const own = await ask('GET', `${again.url('identity')}/api/test/`, { bearer: fresh });
  assert.equal(own.status, 200);
  stop(again);
});

/** With a database for each service, and the role that serves beside the one that migrates. */
async function startDivided(t: TestContext) {
  const names = SERVICES.map((service) => `${service}_owner`);
  const port = await startDatabases(t, names);
  await withConnection(urlOf('postgres', port, 'postgres'), (sql) =>
    sql.unsafe(`create role app login password '${PASSWORD}'`),
  );
  const urlFor = (service: string, role = `${service}_owner`) =>
    urlOf(role, port, `${service}_owner`);
  const environmentFor = (role?: string) =>
    Object.fromEntries(
      SERVICES.map((service) => [`${service.toUpperCase()}_DATABASE_URL`, urlFor(service, role)]),
    );
  return { urlFor, owners: environmentFor(), app: { ...environmentFor('app'), MIGRATE: 'off' } };
}

const GRANTS = /```sql\n(grant usage on schema identity[\s\S]*?)```/;

test('a database and two roles for each service', { timeout: 280_000 }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-backup-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const [, grants = ''] = GRANTS.exec(readDocument('docs/database.md')) ?? [];
  const source = await startDivided(t);
  const command = async (words: readonly string[], environment: Record<string, string>) => {
    const settings = { ...environment, AUTH_TOKEN };
    const { code, stderr } = await runProgram(t, buildProgram(), words, settings);
    assert.equal(code, 0, stderr);
  };
  await command(['migrate'], source.owners);
  for (const service of SERVICES)
    await withConnection(source.urlFor(service), (sql) =>
      sql.unsafe(grants.replaceAll('identity', service)),
    );
  const live = await startGatehouse(t, SERVICES, source.urlFor('identity', 'app'), source.app);
  const session = await logIn(live.url.identity);
  const kept = await secretsClient(live.url.secrets).keep('for any number of readers');
  const event = { event: 'x', data: { page_id: 'p' } };
  const send = (address: string, bearer: string) =>
    ask('POST', `${address}/webhook`, { bearer, body: event });
  assert.equal((await send(live.url.webhook, WEBHOOK_TOKEN)).status, 200);
  await live.stop();

  const target = await startDivided(t);
  for (const service of SERVICES) {
    const file = join(directory, service);
    run('pg_dump', '--format=custom', '--file', file, source.urlFor(service));
    run('pg_restore', '--clean', '--if-exists', '--dbname', target.urlFor(service), file);
  }
  // The dumps hold the rights of the role that serves, also those for tables to come.
  for (const service of SERVICES) {
    await command(['restored', service, '--confirm'], target.app);
    await withConnection(target.urlFor(service), async (sql) => {
      await sql.unsafe(`create table ${service}.later (id int4)`);
    });
    await withConnection(target.urlFor(service, 'app'), (sql) =>
      sql.unsafe(`insert into ${service}.later values (1)`),
    );
  }
  const again = await startGatehouse(t, SERVICES, target.urlFor('identity', 'app'), target.app);
  const ended = await ask('GET', `${again.url.identity}/api/test/`, { bearer: session });
  assert.equal(ended.status, 401);
  assert.ok(await logIn(again.url.identity));
  const read = await secretsClient(again.url.secrets).decrypt(kept.id, kept.secret);
  assert.equal(read.json.password, 'for any number of readers');
  assert.equal((await send(again.url.webhook, WEBHOOK_TOKEN)).status, 401);
  await withConnection(target.urlFor('webhook'), async (sql) => {
    assert.equal((await sql`select from webhook.events`).length, 1);
  });
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
    const first = join(directory, 'first');
    const second = join(directory, 'second');
    const third = join(directory, 'third');
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
