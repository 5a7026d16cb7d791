/** The report on server secrets at startup and in the metrics. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { createDatabase, type TestDatabase } from '../../support/database.ts';
import { ask, type Gatehouse, SERVER_SECRET, startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until } from '../../support/until.ts';

const OLD = SERVER_SECRET;
const NEW = 'new-server-secret-0123456789abcdefghijklmn';
const OTHER = 'other-server-secret-0123456789abcdefghijkl';
const idOf = (secret: string) => createServerKey(secret).id;

const start = (t: TestContext, { url }: TestDatabase, current: string, previous = '') =>
  startGatehouse(t, ['secrets'], url, {
    SERVER_SECRET: current,
    SERVER_SECRET_PREVIOUS: previous,
  });

const NEW_HERE =
  'SERVER_SECRET was never used with this database before: correct in a rotation, otherwise a mistake';
const MISSING =
  'a server secret is missing: add the one with this key id to SERVER_SECRET_PREVIOUS';

/**
 * The log lines about server secrets, in order. They follow the count, which runs in the
 * background.
 */
async function reportOf({ log }: Gatehouse) {
  await until(() => log().some(({ state }) => state === 'current'), 'the report');
  // All lines are written in the same turn.
  await setImmediate();
  const ours = new Set<unknown>([NEW_HERE, MISSING, 'server secret']);
  return log()
    .filter(({ message }) => ours.has(message))
    .map(({ level, message, key_id, state, secrets }) =>
      [level, message, key_id, state, secrets].filter((one) => one !== undefined),
    );
}

/** A database with three secrets encrypted under OLD, one of which can be read once. */
async function withThree(t: TestContext) {
  const database = await createDatabase(t);
  const gatehouse = await start(t, database, OLD);
  const client = secretsClient(gatehouse.url.secrets);
  const made = [
    await client.keep('marked-text'),
    await client.keep('marked-text', { max_reads: 1 }),
    await client.keep('marked-text', { passphrase: 'marked-words' }),
  ];
  return { database, gatehouse, client, made };
}

test('the first server secret of a database is reported as current, without a warning', async (t) => {
  const database = await createDatabase(t);
  for (const _start of [1, 2])
    assert.deepEqual(await reportOf(await start(t, database, OLD)), [
      ['info', 'server secret', idOf(OLD), 'current', 0],
    ]);
});

test('a wrong SERVER_SECRET: each missing key id is reported at startup; the service serves', async (t) => {
  const { database, gatehouse, made } = await withThree(t);
  await gatehouse.stop();
  const wrong = await start(t, database, NEW);
  assert.deepEqual(await reportOf(wrong), [
    ['warn', NEW_HERE, idOf(NEW)],
    ['error', MISSING, idOf(OLD), 'missing', 3],
    ['info', 'server secret', idOf(NEW), 'current', 0],
  ]);
  assert.equal((await ask('GET', `${wrong.url.secrets}/readyz`)).status, 200);
  const there = secretsClient(wrong.url.secrets);
  for (const { id, secret } of made)
    assert.equal((await there.decrypt(id, secret)).json.error.code, 'key_unknown');
  const own = await there.keep('new');
  assert.equal((await there.decrypt(own.id, own.secret)).status, 200, 'new secrets are served');
  const written = wrong.stdout() + wrong.stderr();
  for (const mark of [OLD, NEW, 'marked-', ...made.map(({ secret }) => secret)])
    assert.ok(!written.includes(mark));
  await wrong.stop();

  // Back to the right one: the wrong one is known by now, and one secret needs it.
  const right = await start(t, database, OLD);
  assert.deepEqual((await reportOf(right)).sort(), [
    ['error', MISSING, idOf(NEW), 'missing', 1],
    ['info', 'server secret', idOf(OLD), 'current', 3],
  ]);
  assert.deepEqual(await reportOf(await start(t, database, OTHER, `${NEW},${OLD}`)), [
    ['warn', NEW_HERE, idOf(OTHER)],
    ['info', 'server secret', idOf(OLD), 'previous', 3],
    ['info', 'server secret', idOf(NEW), 'previous', 1],
    ['info', 'server secret', idOf(OTHER), 'current', 0],
  ]);
  const back = secretsClient(right.url.secrets);
  for (const { id, secret } of made.slice(0, 2))
    assert.equal((await back.decrypt(id, secret)).json.password, 'marked-text');
});

test('a server secret is new once, and can be removed without a report if no secret needs it', async (t) => {
  const { database, client, made } = await withThree(t);
  const [kept, once, locked] = made;
  assert.ok(kept && once && locked);
  await client.decrypt(once.id, once.secret);
  await client.remove(kept.id);
  await database.sql`
    update secrets.secrets set blob = null, tag = null, ending = 'expired', ended_at = now()
    where id = ${locked.id}`;
  // One of several replicas that start together warns.
  const replicas = await Promise.all([1, 2, 3].map(() => start(t, database, NEW, OLD)));
  const reports = (await Promise.all(replicas.map(reportOf))).flat();
  assert.equal(reports.filter(([, message]) => message === NEW_HERE).length, 1);
  assert.deepEqual(await reportOf(await start(t, database, NEW)), [
    ['info', 'server secret', idOf(NEW), 'current', 0],
  ]);
});

test('metrics: the number of secrets for each known server secret, down to 0', async (t) => {
  const { database, client, made } = await withThree(t);
  await secretsClient((await start(t, database, NEW, OLD)).url.secrets).keep('x');
  const { url, runJobs } = await start(t, database, OLD);
  const assertStored = async (underOld: number) => {
    await runJobs(/count secrets/);
    const { text } = await ask('GET', `${url.metrics}/metrics`);
    const lines = text.match(/^gatehouse_secrets_stored\{.*$/gm) ?? [];
    const line = (secret: string, secrets: number) =>
      `gatehouse_secrets_stored{key_id="${idOf(secret)}"} ${secrets}`;
    assert.deepEqual(lines.sort(), [line(OLD, underOld), line(NEW, 1)].sort());
  };
  await assertStored(3);
  for (const { id } of made) await client.remove(id);
  await assertStored(0);
});
