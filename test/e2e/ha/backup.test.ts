/**
 * A backup with pg_dump under load, its restore on another server, and `restored` there: what was
 * acknowledged before the dump exists, and what had ended since, or could have, is over. The same
 * with a database and two roles for each service. Then `make dump` and `make load` between two
 * major versions of PostgreSQL, that of `make start` and that of the system.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { dump, load } from '../../../scripts/dump.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import { createDatabase, createEmptyDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { readDocument } from '../../support/documents.ts';
import { ask, AUTH_TOKEN, logIn, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, runProgram } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';
import { startLoad } from '../faults/load/load.ts';
import { stopInOrder } from '../faults/scenario.ts';
import { SERVICES, startServices } from '../faults/system.ts';
import { createServer, PASSWORD } from '../servers.ts';
import { createMachine, findPostgres } from './cluster.ts';

const BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');
const bounded = { timeout: 280_000 };

/** A server of the system's PostgreSQL. Each name is that of a database and of its owner. */
async function startDatabases(t: TestContext, ...names: readonly string[]) {
  const server = await createServer(createMachine(t), BIN, 'postgres', []);
  await server.start();
  const admin = server.url('postgres', 'postgres');
  await withConnection(admin, async (sql) => {
    for (const name of names) {
      await sql.unsafe(`create role ${name} login password '${PASSWORD}'`);
      await sql.unsafe(`create database ${name} owner ${name}`);
    }
  });
  return server;
}

async function startDatabase(t: TestContext) {
  const server = await startDatabases(t, 'gatehouse');
  return server.url('gatehouse', 'gatehouse');
}

function createDirectory(t: TestContext) {
  const directory = makeDirectory(t, 'backup');
  return (name: string) => join(directory, name);
}

function run(program: string, ...words: readonly string[]) {
  const { status, stderr } = spawnSync(join(BIN, program), words, { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [0, ''], program);
}
const save = (url: string, file: string) => run('pg_dump', '--format=custom', '--file', file, url);
const restore = (url: string, file: string) =>
  run('pg_restore', '--clean', '--if-exists', '--dbname', url, file);

async function command(t: TestContext, words: string[], environment: Record<string, string>) {
  const settings = { ...environment, AUTH_TOKEN };
  const { code, stdout, stderr } = await runProgram(t, buildProgram(), words, settings);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}

/** What must be in a backup that begins now: the ids of everything that was acknowledged. */
const stored = (url: string) =>
  withConnection(url, async (sql) => {
    const rows = await sql<Array<{ id: string }>>`
      select id from identity.users union all select id from identity.sessions
      union all select id from identity.api_keys union all select id from secrets.secrets
      union all select id from webhook.events`;
    return new Set(rows.map(({ id }) => id));
  });

const SENT = { event: 'x', data: { page_id: 'p' } };
const send = (webhook: string) =>
  ask('POST', `${webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body: SENT });
const useSession = (identity: string, bearer: string) =>
  ask('GET', `${identity}/api/test/`, { bearer });

test('pg_dump under load, pg_restore elsewhere, and restored', bounded, async (t) => {
  const file = createDirectory(t)('gatehouse.dump');
  const source = await startDatabase(t);
  const live = await startServices(t, source, () => source);
  const clients = await startLoad(t, live);
  await clients.progress(100);
  const session = await logIn(live.url('identity'));
  const key = await ask('POST', `${live.url('identity')}/api/key/`, {
    bearer: session,
    body: { name: 'revoked later' },
  });
  const words = ['token', 'create', '--name', 'reader', '--role', 'operator'];
  const operator = await command(t, words, { ...live.environment });
  const statusesOf = async ({ url }: typeof live) => {
    const answers = [
      await useSession(url('identity'), session),
      await useSession(url('identity'), key.json.data.key),
      await ask('GET', `${url('webhook')}/events`, { bearer: operator }),
      await send(url('webhook')),
    ];
    return answers.map(({ status }) => status);
  };
  const secrets = secretsClient(live.url('secrets'));
  const once = await secrets.keep('for one reader', { max_reads: 1 });
  const often = await secrets.keep('for any number of readers');
  assert.deepEqual(await statusesOf(live), [200, 200, 200, 200]);

  const before = await stored(source);
  save(source, file);
  await clients.progress(20);
  assert.equal((await secrets.decrypt(once.id, once.secret)).json.password, 'for one reader');
  const bearer = await logIn(live.url('identity'));
  for (const path of [`key/${key.json.data.id}/revoke`, `session/revoke?session=${session}`])
    await ask('DELETE', `${live.url('identity')}/api/${path}`, { bearer });
  assert.deepEqual(await statusesOf(live), [401, 401, 200, 200]);
  await clients.stop();
  t.diagnostic(await clients.check());

  const target = await startDatabase(t);
  restore(target, file);
  const after = await stored(target);
  const lost = [...before].filter((id) => !after.has(id));
  assert.deepEqual(lost, [], 'acknowledged before the dump');
  const again = await startServices(t, target, () => target);
  assert.deepEqual(await statusesOf(again), [200, 200, 200, 200], 'the restore revives them');
  for (const service of SERVICES)
    await command(t, ['restored', service, '--confirm'], { DATABASE_URL: target });
  assert.deepEqual(await statusesOf(again), [401, 401, 401, 401]);
  const restored = secretsClient(again.url('secrets'));
  const { status } = await restored.decrypt(once.id, once.secret);
  assert.equal(status, 404, 'it was read after the dump');
  const read = await restored.decrypt(often.id, often.secret);
  assert.equal(read.json.password, 'for any number of readers');
  const fresh = await logIn(again.url('identity'));
  assert.equal((await useSession(again.url('identity'), fresh)).status, 200);
  for (const service of SERVICES)
    for (const { running } of [live, again]) running(service).signal('SIGTERM');
});

/** With a database for each service, and the role that serves beside the one that migrates. */
async function startDivided(t: TestContext) {
  const server = await startDatabases(t, ...SERVICES, 'app');
  const urlsFor = (roleOf: (service: string) => string) =>
    Object.fromEntries(
      SERVICES.map((service) => [
        `${service.toUpperCase()}_DATABASE_URL`,
        server.url(roleOf(service), service),
      ]),
    );
  const app = { ...urlsFor(() => 'app'), MIGRATE: 'off' };
  return { url: server.url, owners: urlsFor((service) => service), app };
}

const GRANTS = /```sql\n(grant usage on schema identity[\s\S]*?)```/;

test('a database and two roles for each service', bounded, async (t) => {
  const fileOf = createDirectory(t);
  const [, grants = ''] = GRANTS.exec(readDocument('docs/database.md')) ?? [];
  const source = await startDivided(t);
  await command(t, ['migrate'], source.owners);
  for (const service of SERVICES)
    await withConnection(source.url(service, service), (sql) =>
      sql.unsafe(grants.replaceAll('identity', service)),
    );
  const live = await startGatehouse(t, SERVICES, source.url('app', 'identity'), source.app);
  const session = await logIn(live.url.identity);
  const kept = await secretsClient(live.url.secrets).keep('for any number of readers');
  assert.equal((await send(live.url.webhook)).status, 200);
  await live.stop();

  const target = await startDivided(t);
  for (const service of SERVICES) {
    save(source.url(service, service), fileOf(service));
    restore(target.url(service, service), fileOf(service));
    // The dump holds the rights of the role that serves, also those for tables to come.
    await command(t, ['restored', service, '--confirm'], target.app);
    await withConnection(target.url(service, service), (sql) =>
      sql.unsafe(`create table ${service}.later (id int4)`),
    );
    await withConnection(target.url('app', service), (sql) =>
      sql.unsafe(`insert into ${service}.later values (1)`),
    );
  }
  const again = await startGatehouse(t, SERVICES, target.url('app', 'identity'), target.app);
  assert.equal((await useSession(again.url.identity, session)).status, 401);
  assert.ok(await logIn(again.url.identity));
  const read = await secretsClient(again.url.secrets).decrypt(kept.id, kept.secret);
  assert.equal(read.json.password, 'for any number of readers');
  assert.equal((await send(again.url.webhook)).status, 401);
});

test('make dump and make load between two major versions, there and back', bounded, async (t) => {
  const fileOf = createDirectory(t);
  const embedded = await createDatabase(t);
  const live = await startServices(t, embedded.url, () => embedded.url);
  const clients = await startLoad(t, live);
  await clients.progress(20);
  await clients.stop();
  await clients.check();
  await stopInOrder(SERVICES.map(live.running));

  const linesOf = async (from: string, name: string) => {
    await dump(from, fileOf(name));
    return readFileSync(fileOf(name), 'utf8').split('\n').sort();
  };
  const own = await startDatabase(t);
  const { url: back } = await createEmptyDatabase(t);
  const lines = await linesOf(embedded.url, 'first');
  await load(own, fileOf('first'));
  assert.deepEqual(await linesOf(own, 'second'), lines);
  await load(back, fileOf('second'));
  assert.deepEqual(await linesOf(back, 'third'), lines);
  for (const each of [own, back]) {
    const again = await startGatehouse(t, SERVICES, each);
    assert.ok(await logIn(again.url.identity));
    await again.stop();
  }
});
