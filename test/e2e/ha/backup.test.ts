/**
 * A backup with pg_dump under load, its restore on another server, and `restored` there: what was
 * acknowledged before the dump exists, and what had ended since, or could have, is over. Then
 * `make dump` and `make load` between two major versions of PostgreSQL, that of `make start` and
 * that of the system.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { dump, load } from '../../../scripts/dump.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask, logIn, startGatehouse } from '../../support/gatehouse.ts';
import { buildProgram, runProgram } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';
import { test } from '../../support/until.ts';
import { startLoad } from '../faults/load/load.ts';
import { stopInOrder } from '../faults/scenario.ts';
import { SERVICES, startServices } from '../faults/system.ts';
import { createOwned, createServer } from '../servers.ts';
import { createMachine, findPostgres } from './cluster.ts';

const BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');

/** @returns the URL of a database on a new server of the system's PostgreSQL */
async function startDatabase(t: TestContext) {
  const server = await createServer(createMachine(t), BIN, 'postgres', []);
  await server.start();
  await createOwned(server.url('postgres', 'postgres'));
  return server.url('gatehouse', 'gatehouse');
}

function run(program: string, ...words: readonly string[]) {
  const { status, stderr } = spawnSync(join(BIN, program), words, { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [0, ''], program);
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

/** By `make dump` and `make load`, to the PostgreSQL of `make start`. */
async function moveThereAndBack(t: TestContext, source: string) {
  const directory = makeDirectory(t, 'dump');
  const { url: embedded } = await createEmptyDatabase(t);
  const back = await startDatabase(t);
  const linesOf = async (url: string, file: string) => {
    await dump(url, file);
    return readFileSync(file, 'utf8').split('\n').sort();
  };
  let file = join(directory, 'source');
  const lines = await linesOf(source, file);
  for (const url of [embedded, back]) {
    await load(url, file);
    file = join(directory, new URL(url).port);
    assert.deepEqual(await linesOf(url, file), lines);
    const again = await startGatehouse(t, SERVICES, url);
    assert.ok(await logIn(again.url.identity));
    await again.stop();
  }
}

test('pg_dump under load, pg_restore elsewhere, restored, and moves between major versions', async (t) => {
  const file = join(makeDirectory(t, 'backup'), 'gatehouse.dump');
  const source = await startDatabase(t);
  const live = await startServices(t, source, () => source);
  const clients = await startLoad(t, live);
  await clients.progress(100);
  const session = await logIn(live.url('identity'));
  const secrets = secretsClient(live.url('secrets'));
  const once = await secrets.keep('for one reader', { max_reads: 1 });
  const often = await secrets.keep('for any number of readers');
  const before = await stored(source);
  run('pg_dump', '--format=custom', '--file', file, source);
  await clients.progress(20);
  assert.equal((await secrets.decrypt(once.id, once.secret)).json.password, 'for one reader');
  await clients.stop();
  t.diagnostic(await clients.check());

  const target = await startDatabase(t);
  run('pg_restore', '--clean', '--if-exists', '--dbname', target, file);
  const after = await stored(target);
  const lost = [...before].filter((id) => !after.has(id));
  assert.deepEqual(lost, [], 'acknowledged before the dump');
  const { url, running } = await startServices(t, target, () => target);
  const use = async (bearer: string) =>
    (await ask('GET', `${url('identity')}/api/test/`, { bearer })).status;
  assert.equal(await use(session), 200);
  for (const service of SERVICES) {
    const words = ['restored', service, '--confirm'];
    const { code, stderr } = await runProgram(t, buildProgram(), words, { DATABASE_URL: target });
    assert.equal(code, 0, stderr);
  }
  assert.equal(await use(session), 401);
  assert.equal(await use(await logIn(url('identity'))), 200);
  const restored = secretsClient(url('secrets'));
  const { status } = await restored.decrypt(once.id, once.secret);
  assert.equal(status, 404, 'it was read after the dump');
  const read = await restored.decrypt(often.id, often.secret);
  assert.equal(read.json.password, 'for any number of readers');
  await stopInOrder(SERVICES.map(running));
  await stopInOrder(SERVICES.map(live.running));
  await moveThereAndBack(t, source);
});
