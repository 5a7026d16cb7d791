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

/** Files that look into one server, by how. Their subjects are the same without Citus. */
const OF_ONE_SERVER = [
  'receipts-commit', // triggers on the table, which Citus does not have
  'plans', // plans in the log of the server
];
/** Tests in other files that do so, by a part of their names. They fail here. */
const TESTS_OF_ONE_SERVER = [
  // Locks in pg_stat_activity.
  'events: a reader that loses the last read to another one is logged',
  // Updates whose value depends on another row or on a stable function, and updates of the id.
  'its expiry was put off',
  'its expiry was brought forward',
  'altered row: a row moved to another id',
  'altered row: with ',
  // The number of the transaction that has stored each row, and triggers.
  'secrets stored in one statement keep their own key',
  'shared statements in opposite orders',
  // Locks of all rows.
  'two replicas report the expiry of a secret once',
];
/** Such an update, too. It passes if the random ids of both rows belong to one shard. */
const TESTS_BY_SHARD = ['its text was replaced with that of another row'];
/** At once. Each opens connections to every node. */
const CONCURRENCY = 4;
const LIMIT_MS = 280_000;
/** There are more. None of them may be missing because no file was found. */
const LEAST_PASSED = 400;

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
    const wanted = names.filter((name) => !OF_ONE_SERVER.includes(name.replace('.test.js', '')));
    return wanted.map((name) => join(root, folder, name));
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
  const [text] = await Promise.all([readText(run.stdout), once(run, 'close')]);
  const names = [...text.matchAll(/^✖ (.*) \([\d.]+ms\)$/gm)].map(([, name = '']) => name);
  const excluded = [...TESTS_OF_ONE_SERVER, ...TESTS_BY_SHARD];
  const isExcluded = (name: string) => excluded.some((one) => name.includes(one));
  assert.deepEqual(
    names.filter((name) => !isExcluded(name)),
    [],
    text,
  );
  for (const one of TESTS_OF_ONE_SERVER) {
    assert.ok(
      names.some((name) => name.includes(one)),
      `"${one}" passes: remove it from the list`,
    );
  }
  const [, passed] = /^ℹ pass (\d+)$/m.exec(text) ?? [];
  assert.ok(Number(passed) >= LEAST_PASSED, `${passed} tests passed`);
  t.diagnostic(`${passed} tests of secrets passed`);
});
