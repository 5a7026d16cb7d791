/**
 * The tests of the secrets service, on a coordinator that keeps the secrets on two workers. Each
 * file gets a copy of one database, on every node.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { test } from 'node:test';
import { root } from '../../support/process.ts';
import { startDistributed } from './cluster.ts';

const TEMPLATE = 'template_of_tests';
const FOLDERS = ['test/api/secrets', 'test/store/secrets'];
/**
 * All tests of these look into one server: triggers on the table, and plans in its log. Single
 * tests of other files are marked with `onOneServer`.
 */
const OF_ONE_SERVER = ['receipts.test.js', 'plans.test.js'];
/** At once. Each opens connections to every node. */
const CONCURRENCY = 4;
const LIMIT_MS = 280_000;

test('the tests of secrets pass with distributed secrets', { timeout: 2_400_000 }, async (t) => {
  const { citus } = await startDistributed(t, TEMPLATE);
  await citus.onAll(async (sql) => {
    // No process of Citus may keep the database from being copied.
    await sql`alter database ${sql(TEMPLATE)} allow_connections false`;
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${TEMPLATE}`;
  });
  const url = ({ url: of }: (typeof citus)['coordinator']) => of('postgres', 'postgres');
  const files = FOLDERS.flatMap((folder) => {
    const names = readdirSync(join(root, folder)).filter((name) => name.endsWith('.test.js'));
    assert.ok(names.length > 5, folder);
    return names
      .filter((name) => !OF_ONE_SERVER.includes(name))
      .map((name) => join(root, folder, name));
  });
  const options = [
    '--test',
    '--test-reporter=spec',
    `--test-concurrency=${CONCURRENCY}`,
    `--test-timeout=${LIMIT_MS}`,
  ];
  const { NODE_TEST_CONTEXT: _own, ...inherited } = process.env;
  const run = spawn(process.execPath, [...options, ...files], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      ...inherited,
      TEST_POSTGRES_URL: url(citus.coordinator),
      TEST_WORKER_URLS: citus.workers.map(url).join(' '),
      TEST_TEMPLATE: TEMPLATE,
    },
  });
  t.after(() => run.kill());
  const [text, [code]] = await Promise.all([readText(run.stdout), once(run, 'close')]);
  assert.equal(code, 0, text);
  const [, passed] = /^ℹ pass (\d+)$/m.exec(text) ?? [];
  assert.ok(Number(passed) > 5 * files.length, text);
  t.diagnostic(`${passed} tests of secrets passed`);
});
