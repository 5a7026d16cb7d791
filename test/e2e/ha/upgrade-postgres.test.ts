/**
 * The services move to a newer PostgreSQL by logical replication, with the statements of
 * docs/database.md, under load.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { findBinaries, reachableBinaries, unprivilegedUser } from '../../../scripts/binaries.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import { untilSql } from '../../support/connections.ts';
import { variables } from '../../support/gatehouse.ts';
import { readDocument } from '../../support/documents.ts';
import { root, runProgram } from '../../support/process.ts';
import { startLoad } from '../faults/load/load.ts';
import { startServices } from '../faults/system.ts';
import { createOwned, createServer, PASSWORD, type Server } from '../servers.ts';
import { createMachine, findPostgres } from './cluster.ts';

const NAME = 'gatehouse';
const OLD_BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');

/** The statements of each block in the section, without comments. */
function documentedSteps() {
  const [, section = ''] =
    /\n## Upgrading PostgreSQL while services run\n([^]*?)\n## /.exec(
      readDocument('docs/database.md'),
    ) ?? [];
  const blocks = [...section.matchAll(/```sql\n([^]*?)```/g)].map(([, block = '']) => block);
  return blocks.map((block) =>
    block
      .split(';')
      .map((one) => one.trim())
      .filter(Boolean),
  );
}

/** @returns the rows of the last statement */
const run = (server: Server, ...statements: readonly string[]) =>
  withConnection(server.url('postgres', NAME), async (sql) => {
    let rows: ReadonlyArray<Record<string, unknown>> = [];
    for (const statement of statements) rows = [...(await sql.unsafe(statement))];
    return rows;
  });

async function startServers(t: TestContext) {
  const machine = createMachine(t);
  const binaries = reachableBinaries(findBinaries(), unprivilegedUser());
  t.after(() => binaries.remove());
  const settings = ['wal_level=logical', 'max_connections=200'];
  const old = await createServer(machine, OLD_BIN, 'old', settings);
  const latest = await createServer(machine, join(binaries.path, 'bin'), 'latest', settings);
  for (const server of [old, latest]) {
    await server.start();
    await createOwned(server.url('postgres', 'postgres'));
  }
  return { old, latest };
}

const OURS = `relnamespace::regnamespace::text in ('identity', 'secrets', 'webhook')`;
/** What logical replication does not copy by itself. */
const UNCOPIED = `select oid::regclass::text as name from pg_class c where ${OURS}
  and (relkind = 'S' or relkind = 'r' and not exists (
    select from pg_index where indrelid = c.oid and indisprimary))`;
const TABLES = `select oid::regclass::text as name from pg_class
  where relkind = 'r' and ${OURS} order by 1`;

/** Every table with a digest of its rows. */
async function contentOf(server: Server) {
  const queries = (await run(server, TABLES)).map(
    ({ name }) => `select '${name}' as name, count(*)::int as rows,
      md5(string_agg(t::text, ' ' order by t::text)) as digest from ${name} t`,
  );
  return run(server, queries.join(' union all '));
}

const untilReady = (server: Server, [query = '']: readonly string[]) =>
  untilSql(async () => (await run(server, query))[0]?.ready === true, query);

async function upgrade(t: TestContext) {
  const { old, latest } = await startServers(t);
  const migrated = await runProgram(t, root, ['migrate'], variables(old.url(NAME, NAME)));
  assert.equal(migrated.code, 0, migrated.stderr);
  assert.deepEqual(await run(old, UNCOPIED), []);
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
  await run(old, ...publish);
  const place = (statement: string) =>
    statement
      .replace('host=old port=5432', `host=127.0.0.1 port=${old.port}`)
      .replace('password=secret', `password=${PASSWORD}`);
  await run(latest, ...subscribe.map(place));
  await untilReady(latest, copied);
  await run(latest, 'analyze');
  await load.progress(100);
  const failed = load.failed();

  const begun = performance.now();
  await run(old, ...end);
  await untilReady(old, caughtUp);
  const compared = performance.now();
  const before = await contentOf(old);
  const after = await contentOf(latest);
  const comparedMs = performance.now() - compared;
  await run(latest, ...accept);
  current = latest;
  await services.untilReady();
  await load.progress(1);
  const refusedMs = performance.now() - begun - comparedMs;
  assert.deepEqual(after, before);
  assert.ok(load.failed() > failed, 'no request failed: the services did not move');
  await load.progress(100);
  await load.stop();
  t.diagnostic(await load.check());
  const seconds = (refusedMs / 1000).toFixed(1);
  t.diagnostic(`writes were refused for ${seconds} s, beside the comparison of all tables`);
}

test('the services move to a newer PostgreSQL, and nothing is lost', { timeout: 280_000 }, upgrade);
