/**
 * The services move to a newer PostgreSQL by logical replication, with the statements of
 * docs/database.md, under load.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { findBinaries, reachableBinaries, unprivilegedUser } from '../../../scripts/binaries.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import { variables } from '../../support/gatehouse.ts';
import { readDocument } from '../../support/documents.ts';
import { root, runProgram } from '../../support/process.ts';
import { startLoad } from '../faults/load/load.ts';
import { startServices } from '../faults/system.ts';
import { createServer, PASSWORD, type Server } from '../servers.ts';
import { createMachine, findPostgres, until } from './cluster.ts';

const NAME = 'gatehouse';
const OLD_BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');
const SCHEMAS = ['identity', 'secrets', 'webhook'];

/** The statements of each block in the section, without comments. */
function documentedSteps(): string[][] {
  const [, section = ''] =
    /\n## Upgrading PostgreSQL while services run\n([^]*?)\n## /.exec(
      readDocument('docs/database.md'),
    ) ?? [];
  const blocks = [...section.matchAll(/```sql\n([^]*?)```/g)].map(([, block = '']) => block);
  return blocks.map((block) =>
    block
      .split(';')
      .map((statement) => statement.trim())
      .filter(Boolean),
  );
}

async function startServers(t: TestContext) {
  const machine = createMachine(t);
  const user = unprivilegedUser();
  const binaries = reachableBinaries(findBinaries(), user);
  t.after(() => binaries.remove());
  const settings = ['wal_level=logical', 'max_connections=200'];
  const old = await createServer(machine, OLD_BIN, 'old', settings);
  const latest = await createServer(machine, join(binaries.path, 'bin'), 'latest', settings);
  for (const server of [old, latest]) {
    await server.start();
    await withConnection(server.url('postgres', 'postgres'), async (sql) => {
      await sql.unsafe(`create role gatehouse login password '${PASSWORD}'`);
      await sql.unsafe(`create database ${NAME} owner gatehouse`);
    });
  }
  return { old, latest };
}

/** Every table with a digest of its rows. */
const contentOf = (server: Server) =>
  withConnection(server.url('postgres', NAME), async (sql) => {
    const tables = await tablesOf(sql);
    const digests = new Map<string, string>();
    for (const table of tables) {
      const [row] = await sql.unsafe(
        `select count(*) || ' ' || md5(string_agg(t::text, ' ' order by t::text)) as rows
         from ${table} t`,
      );
      digests.set(table, row?.rows);
    }
    return digests;
  });

async function tablesOf(sql: Sql): Promise<string[]> {
  const rows = await sql<Array<{ table: string }>>`
    select oid::regclass::text as table from pg_class
    where relkind = 'r' and relnamespace::regnamespace::text in ${sql(SCHEMAS)} order by 1`;
  return rows.map(({ table }) => table);
}

/** What logical replication does not copy by itself. */
const uncopied = (server: Server) =>
  withConnection(server.url('postgres', NAME), async (sql) => {
    const rows = await sql`
      select oid::regclass::text as name from pg_class c
      where relnamespace::regnamespace::text in ${sql(SCHEMAS)} and (relkind = 'S'
        or relkind = 'r' and not exists (
          select from pg_index where indrelid = c.oid and indisprimary))`;
    return rows.map(({ name }) => name);
  });

const versionOf = (server: Server) =>
  withConnection(server.url('postgres', NAME), async (sql) => {
    const [row] = await sql`show server_version`;
    return String(row?.server_version);
  });

async function run(server: Server, statements: readonly string[]): Promise<void> {
  await withConnection(server.url('postgres', NAME), async (sql) => {
    for (const statement of statements) await sql.unsafe(statement);
  });
}

const untilReady = (server: Server, [query = '']: readonly string[]) =>
  until(query, () =>
    withConnection(server.url('postgres', NAME), async (sql) => {
      const [row] = await sql.unsafe(query);
      return row?.ready === true;
    }),
  );

async function upgrade(t: TestContext): Promise<void> {
  const { old, latest } = await startServers(t);
  const migrated = await runProgram(t, root, ['migrate'], variables(old.url(NAME, NAME)));
  assert.equal(migrated.code, 0, migrated.stderr);
  assert.deepEqual(await uncopied(old), []);
  let current = old;
  const both = old.url(NAME, NAME).replace(/(@[^/]+)/, `$1,127.0.0.1:${latest.port}`);
  const services = await startServices(t, both, () => current.url(NAME, NAME));
  const load = await startLoad(t, services);
  await load.progress(100);

  const [publish = [], subscribe = [], copied = [], end = [], caughtUp = [], accept = []] =
    documentedSteps();
  const flags = ['--schema-only', '--no-toast-compression'];
  const dump = spawnSync(join(OLD_BIN, 'pg_dump'), [...flags, old.url('postgres', NAME)]);
  assert.equal(dump.status, 0, String(dump.stderr));
  const words = [latest.url('postgres', NAME), '--quiet', '--set', 'ON_ERROR_STOP=1'];
  const restored = spawnSync(join(OLD_BIN, 'psql'), words, { input: dump.stdout });
  assert.equal(restored.status, 0, String(restored.stderr));
  await run(old, publish);
  const address = `host=127.0.0.1 port=${old.port}`;
  const place = (statement: string) =>
    statement
      .replace('host=old port=5432', address)
      .replace('password=secret', `password=${PASSWORD}`);
  assert.ok(subscribe.some((statement) => place(statement).includes(address)));
  await run(latest, subscribe.map(place));
  await untilReady(latest, copied);
  await run(latest, ['analyze']);
  await load.progress(100);
  const failed = load.failed();

  const begun = performance.now();
  await run(old, end);
  await untilReady(old, caughtUp);
  const caughtUpMs = performance.now() - begun;
  const before = await contentOf(old);
  const after = await contentOf(latest);
  const comparedMs = performance.now() - begun - caughtUpMs;
  await run(latest, accept);
  current = latest;
  await services.untilReady();
  await load.progress(1);
  const refusedMs = performance.now() - begun - comparedMs;
  assert.deepEqual(after, before);
  assert.ok(load.failed() > failed, 'no request failed: the services did not move');
  await load.progress(100);
  await load.stop();
  t.diagnostic(await load.check());
  t.diagnostic(
    `PostgreSQL ${await versionOf(old)} to ${await versionOf(latest)}: writes were refused for ` +
      `${(refusedMs / 1000).toFixed(1)} s, and ${(comparedMs / 1000).toFixed(1)} s more, in ` +
      `which the test compared ${before.size} tables`,
  );
}

test('the services move to a newer PostgreSQL, and nothing is lost', { timeout: 280_000 }, upgrade);
