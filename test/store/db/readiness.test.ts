/** A service is ready while its database can be used, however slow, and as soon as it is back. */
import assert from 'node:assert/strict';
import dns from 'node:dns';
import type { TestContext } from 'node:test';
import { createReadiness } from '../../../src/platform/db/readiness.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { ask, openConnections, PATIENT, PURPOSES, untilSql } from '../../support/connections.ts';
import { stopClock } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import { startProxy } from '../../support/proxy.ts';
import { startSwallowing } from '../../support/swallowing.ts';
import { test } from '../../support/until.ts';

const LEDGER = `create schema house;
  create table house.migrations (version int4 primary key, name text);
  insert into house.migrations values (1, 'first')`;
const SCHEMA = { name: 'house', folder: new URL('file:///none'), steps: ['first'] };

const TOO_SLOW = 'the database is too slow: no answer within 5 s';

/** @returns a probe, and what the log says */
function createProbe(database: Database, schema = SCHEMA) {
  const lines: string[] = [];
  const log = createLog('info', (line) => lines.push(line));
  const said = () =>
    lines.map((line) => JSON.parse(line)).map(({ message, error }) => error ?? message);
  return { probe: createReadiness(database, schema, log), said };
}

async function createHouse(t: TestContext) {
  const { sql, url } = await createDatabase(t);
  await sql.unsafe(LEDGER);
  return { sql, proxy: await startProxy(t, url) };
}

const connectAll = (database: Database) =>
  Promise.all(PURPOSES.map((purpose) => ask(database, purpose, 'select 1')));

test('ready with 800 ms to the database and back', async (t) => {
  const { proxy } = await createHouse(t);
  const database = openConnections(t, proxy.url, 'house', PATIENT);
  await connectAll(database);
  proxy.delay(800);
  const { probe } = createProbe(database);
  for (let round = 0; round < 6; round += 1) assert.equal(await probe(), null);
});

test('a database without an answer: not ready after five seconds, which the log says once', async (t) => {
  const { sql, proxy } = await createHouse(t);
  const database = openConnections(t, proxy.url, 'house', PATIENT);
  // Else the first check could outlast the lock's beginning: it opens connections as well.
  await connectAll(database);
  const { probe, said } = createProbe(database);
  const pass = stopClock(t);
  assert.equal(await probe(), null);
  await sql.begin(async (holding) => {
    await holding`lock table house.migrations in access exclusive mode`;
    // The check before counts no more.
    pass(2);
    assert.equal(await probe(), null);
    pass(6);
    assert.equal(await probe(), TOO_SLOW);
  });
  await untilSql(async () => (await probe()) === null, 'it is ready again');
  assert.deepEqual(said(), [TOO_SLOW, 'ready again']);
});

test('a schema that lacks a step of this program: not ready until another process has migrated', async (t) => {
  const { sql, proxy } = await createHouse(t);
  const steps = ['first', 'second'];
  const { probe, said } = createProbe(openConnections(t, proxy.url, 'house'), { ...SCHEMA, steps });
  const expected = 'the schema "house" is not up to date; run "gatehouse migrate"';
  assert.equal(await probe(), expected);
  await sql`insert into house.migrations values (2, 'second')`;
  assert.equal(await probe(), null);
  assert.deepEqual(said(), [expected, 'ready again']);
});

test('the reply does not name hosts, and the log does', async (t) => {
  const { proxy } = await createHouse(t);
  const { probe, said } = createProbe(openConnections(t, proxy.url, 'house'));
  assert.equal(await probe(), null);
  await proxy.cut();
  await untilSql(async () => (await probe()) !== null, 'it is not ready');
  assert.equal(await probe(), 'the database cannot be reached; the log says why');
  assert.match(String(said()[0]), /^the connection to the database at 127\.0\.0\.1:\d+ failed \(/);
  await proxy.restore();
  await untilSql(async () => (await probe()) === null, 'it is ready again');
});

test('an address that swallows packets does not hold up the next try', async (t) => {
  const { proxy } = await createHouse(t);
  const url = new URL(proxy.url);
  await startSwallowing(t, '127.0.0.2', Number(url.port));
  // As after the restart of a container, whose name gets another address.
  const addresses = ['127.0.0.2'];
  const lookUp = dns.lookup;
  t.mock.method(dns, 'lookup', (name: string, ...more: [object, () => void]) =>
    lookUp(name === 'moving' ? (addresses.shift() ?? '127.0.0.1') : name, ...more),
  );
  url.hostname = 'moving';
  url.searchParams.set('connect_timeout', '99');
  url.searchParams.set('sslmode', 'disable');
  const { probe } = createProbe(openConnections(t, url.href, 'house', PATIENT));
  await untilSql(async () => (await probe()) === null, 'it is ready');
  assert.deepEqual(addresses, []);
});
