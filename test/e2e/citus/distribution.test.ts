/**
 * What is refused before anything changes, and what `check` and `serve` say about each
 * distribution.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { variables } from '../../support/gatehouse.ts';
import { root, runProgram, startProgram } from '../../support/process.ts';
import { startLoad } from '../faults/load/load.ts';
import { SERVICES, startServices } from '../faults/system.ts';
import { distribute, migrate, NAME, startCitus } from './cluster.ts';

const bounded = { timeout: 280_000 };

const runCommand = (t: TestContext, words: readonly string[], url: string) =>
  runProgram(t, root, words, variables(url));

test('a distribution without Citus is refused', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const { status, stderr } = distribute(url);
  assert.notEqual(status, 0);
  assert.match(stderr, /this database has no Citus/);
});

test('bad distributions are refused before anything changes', bounded, async (t) => {
  const citus = await startCitus(t);
  await citus.createDatabase(NAME);
  const url = citus.coordinator.url('gatehouse', NAME);
  const admin = (work: string) =>
    withConnection(citus.coordinator.url('postgres', NAME), (sql) => sql.unsafe(work));
  const tables = () =>
    admin('select logicalrelid::text as name, partmethod from pg_dist_partition');
  const assertRefused = async (message: RegExp) => {
    const before = await tables();
    const { status, stderr } = distribute(url);
    assert.notEqual(status, 0);
    assert.match(stderr, message);
    assert.deepEqual(await tables(), before);
  };

  await assertRefused(/there is no table secrets\.secrets[^]*gatehouse migrate secrets/);
  await migrate(t, url);
  await admin(`update pg_dist_node set shouldhaveshards = false where groupid <> 0`);
  await assertRefused(/the coordinator has no active worker/);
  await admin(`update pg_dist_node set shouldhaveshards = true where groupid <> 0`);
  await admin(`update pg_extension set extversion = '11.3-1' where extname = 'citus'`);
  await assertRefused(/Citus 11 is too old: version 12 or newer is needed/);
  await admin(`update pg_extension set extversion = '13.0-1' where extname = 'citus'`);

  const { stdout: local } = await runCommand(t, ['check', 'secrets'], url);
  assert.doesNotMatch(local, /distributed by Citus/);
  assert.equal(distribute(url).status, 0);
  const again = distribute(url);
  assert.deepEqual([again.status, /distributed by id already/.test(again.stderr)], [0, true]);
  const checked = await runCommand(t, ['check'], url);
  assert.equal(checked.code, 0, checked.stdout);
  assert.match(
    checked.stdout,
    /^ok +secrets table +distributed by Citus: secrets\.secrets by id; all/m,
  );

  // Another shape, which serve refuses, too.
  await admin(`select undistribute_table('secrets.secrets')`);
  await admin(`alter table secrets.secrets drop constraint secrets_pkey`);
  await admin(`select create_distributed_table('secrets.secrets', 'key_id', shard_count => 4)`);
  await assertRefused(/secrets\.secrets is distributed by key_id, not by id/);
  const refused = await runCommand(t, ['serve', 'secrets'], url);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /Citus distributes secrets\.secrets by key_id/);
});

test(
  'with local tables all services work; distributed and schema-based ones are refused',
  bounded,
  async (t) => {
    const citus = await startCitus(t);
    await citus.createDatabase(NAME);
    const url = citus.coordinator.url('gatehouse', NAME);
    const services = await startServices(t, url, () => url);
    const load = await startLoad(t, services);
    await load.progress(100);
    await load.stop();
    t.diagnostic(await load.check());
    for (const service of SERVICES) services.running(service).signal('SIGTERM');

    const admin = (work: string) =>
      withConnection(citus.coordinator.url('gatehouse', NAME), (sql) => sql.unsafe(work));
    await admin(`select create_reference_table('webhook.pause')`);
    for (const service of ['identity', 'webhook']) {
      if (service === 'identity') await admin(`select citus_schema_distribute('identity')`);
      const refused = startProgram(t, root, ['serve', service], variables(url));
      assert.deepEqual(await refused.ended, { code: 1, signal: null });
      assert.match(refused.stderr(), /Citus distributes (identity|webhook)\.\w+ by <none>/);
      const checked = await runCommand(t, ['check', service], url);
      assert.equal(checked.code, 1);
      assert.match(checked.stdout, /^failed +\w+ table +distributed by Citus: /m);
    }
  },
);
