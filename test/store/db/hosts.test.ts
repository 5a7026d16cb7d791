/**
 * A database URL with several hosts, which may be dead, silent, read-only or standbys, and a Unix
 * socket.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { createReadiness } from '../../../src/platform/db/readiness.ts';
import { TooSlow } from '../../../src/platform/runtime/errors.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import {
  ask,
  changeSettings,
  openConnections,
  PATIENT,
  PURPOSES,
  type Purpose,
  untilSql,
} from '../../support/connections.ts';
import { holdTimers } from '../../support/clock.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { startNamed, urlOf } from '../../support/database-servers.ts';
import { makeDirectory } from '../../support/directories.ts';
import { variables } from '../../support/gatehouse.ts';
import { createRelay } from '../../support/relay.ts';
import { listenOnTcp } from '../../support/socket.ts';
import { test } from '../../support/until.ts';

// Each test leaves them as they are here.
const [first, standby, primary] = await Promise.all(
  ['first', 'standby', 'primary'].map((name) => startNamed({ after }, name)),
);
assert.ok(first && standby && primary);
await standby.restartAsStandby();

test('after the address of a host has changed, no connection stays on the former server', async (t) => {
  t.after(() => first.proxy.restore(first.url()));
  const database = openConnections(t, urlOf([first.at]), 'moved');
  await assertAllAt(database, 'first');
  // For new connections: those that are open stay.
  await first.proxy.restore(primary.url());
  assert.equal(await nameOf(database, 'write'), 'first');
  const read = await ask(database, 'read', 'select pg_backend_pid() as pid');
  await first.query(`select pg_terminate_backend(${Number(read.pid)})`);
  for (const purpose of PURPOSES) await untilAt(database, purpose, 'primary');
  const left = `select from pg_stat_activity where application_name = 'gatehouse-moved'`;
  await untilSql(
    () => withConnection(first.url(), async (sql) => (await sql.unsafe(left)).length === 0),
    'none is left on the former server',
  );
});

const NAME = 'select name from name';
const nameOf = async (database: Database, purpose: Purpose) =>
  (await ask(database, purpose, NAME)).name;
async function assertAllAt(database: Database, name: string) {
  for (const purpose of PURPOSES) assert.equal(await nameOf(database, purpose), name, purpose);
}
const untilAt = (database: Database, purpose: Purpose, name: string) =>
  untilSql(
    async () => (await nameOf(database, purpose).catch(() => '')) === name,
    `${purpose} reaches ${name}`,
  );
const READ_ONLY = 'alter system set default_transaction_read_only = on';
const READ_WRITE = 'alter system reset default_transaction_read_only';

/** A port on which nothing listens. */
const NOBODY = '127.0.0.1:1';

/**
 * With a real limit, a slow machine would skip a host that works. No other timer has this length.
 */
const CONNECT_SECONDS = 77;
const CONNECT_TIMEOUT = `?connect_timeout=${CONNECT_SECONDS}`;
const holdConnectTimeouts = (t: TestContext) => holdTimers(t, CONNECT_SECONDS * 1_000);

test('hosts that are dead or silent are skipped, for every purpose', async (t) => {
  const endAttempts = holdConnectTimeouts(t);
  const silent = `127.0.0.1:${await listenOnTcp(t, (socket) => socket.once('data', endAttempts))}`;
  const database = openConnections(t, urlOf([NOBODY, silent, first.at], CONNECT_TIMEOUT), 'skip');
  assert.equal(
    await database.maintain(
      async (sql) => (await sql<Array<{ name: string }>>`select name from name`)[0]?.name,
    ),
    'first',
  );
  await assertAllAt(database, 'first');
});

test('the server goes silent and another takes over: no call waits for the end of its connection', async (t) => {
  t.after(() => first.proxy.restore(first.url()));
  for (const { query } of [first, primary])
    await query(`create schema house; create table house.migrations (version int4, name text);
      insert into house.migrations values (1, 'first')`);
  const database = openConnections(t, urlOf([first.at]), 'house', PATIENT);
  const schema = { name: 'house', folder: new URL('file:///none'), steps: ['first'] };
  const probe = createReadiness(
    database,
    schema,
    createLog('silent', () => {}),
  );
  assert.equal(await probe(), null);
  await assertAllAt(database, 'first');
  first.proxy.stall();
  const waiting = assert.rejects(ask(database, 'read', 'select 1'), /CONNECTION_/);
  await first.proxy.restore(primary.url());
  // A fast server takes over before a probe has failed.
  const before = first.proxy.connections();
  const isSearched = async () => (await probe()) !== null || first.proxy.connections() > before;
  await untilSql(isSearched, 'the silence is noticed');
  await untilSql(async () => (await probe()) === null, 'it is ready again');
  await waiting;
  await assertAllAt(database, 'primary');
});

test('no host can be reached: calls fail with the names of all, and succeed when one is back', async (t) => {
  await first.stop();
  const database = openConnections(t, urlOf([NOBODY, first.at]), 'none');
  const message = `the connection to the database at ${NOBODY},${first.at} failed (ECONNREFUSED: no server listens there)`;
  for (const purpose of PURPOSES)
    await assert.rejects(ask(database, purpose, NAME), { message, isTemporary: true });
  await first.start();
  await assertAllAt(database, 'first');
});

test('target_session_attrs: read-write, the default, and primary skip a standby; any does not', async (t) => {
  const assertFinds = (target: string, name: string) =>
    assertAllAt(openConnections(t, urlOf([standby.at, primary.at], target), 'target'), name);
  await assertFinds('', 'primary');
  await assertFinds('?target_session_attrs=read-write', 'primary');
  await assertFinds('?target_session_attrs=primary', 'primary');
  await assertFinds('?target_session_attrs=any', 'standby');
  // A primary that is read-only is a primary.
  await changeSettings(primary.url(), READ_ONLY);
  await assertFinds('?target_session_attrs=primary', 'primary');
  for (const target of ['read-write', 'primary']) {
    const url = urlOf([standby.at], `?target_session_attrs=${target}`);
    const message = `the server at ${standby.at} is not ${target}, as target_session_attrs requires`;
    await assert.rejects(ask(openConnections(t, url, 'target'), 'read', NAME), { message });
  }
  await changeSettings(primary.url(), READ_WRITE);
});

test('check says that a server is a standby', async () => {
  for (const [target, said] of [
    ['any', /^failed +identity database +PostgreSQL .*; it is a standby; connect to the primary$/m],
    ['read-write', /^failed +identity database +the server at \S+ is not read-write, as /m],
  ] as const) {
    const url = urlOf([standby.at], `?target_session_attrs=${target}`);
    const { code, stdout } = await runCommand(['check', 'identity'], variables(url));
    assert.equal(code, 1);
    assert.match(stdout, said);
  }
});

test('a server becomes read-only under open connections: writes find the other one, reads follow', async (t) => {
  for (const server of [first, primary]) await server.query('create table things (id integer)');
  const database = openConnections(t, urlOf([first.at, primary.at]), 'follow');
  await assertAllAt(database, 'first');
  t.after(() => changeSettings(first.url(), READ_WRITE));
  await changeSettings(first.url(), READ_ONLY);
  const insert = () => ask(database, 'write', 'insert into things values (1)');
  await untilSql(
    () =>
      insert().then(
        () => true,
        () => false,
      ),
    'a write reaches the next server',
  );
  for (const purpose of PURPOSES) await untilAt(database, purpose, 'primary');
  // The former primary keeps its place in the list, and nobody goes back to it.
  await changeSettings(first.url(), READ_WRITE);
  assert.equal(await nameOf(database, 'write'), 'primary');
});

test('a Unix socket, in the authority and as the parameter host; TLS is not asked for there', async (t) => {
  const { url } = await createDatabase(t);
  const { port, username, password, pathname } = new URL(url);
  const directory = makeDirectory(t, 'socket');
  const relay = createRelay(Number(port));
  t.after(() => relay.close());
  relay.listen(join(directory, '.s.PGSQL.6543'));
  await once(relay, 'listening');
  const user = `${username}:${password}`;
  const encoded = encodeURIComponent(directory);
  for (const form of [
    `${user}@${encoded}:6543${pathname}`,
    `${user}@:6543${pathname}?host=${directory}`,
    `${user}@:6543${pathname}?host=${encoded}&sslmode=require`,
  ]) {
    const database = openConnections(t, `postgres://${form}`, 'socket');
    assert.deepEqual(await ask(database, 'write', 'select 1 as one'), { one: 1 }, form);
  }
});

test('application_name and the limits reach the server', async (t) => {
  const { url } = await createDatabase(t);
  const show = `select current_setting('application_name') as name,
    current_setting('statement_timeout') as statement,
    current_setting('idle_in_transaction_session_timeout') as idle`;
  const limits = { DATABASE_STATEMENT_TIMEOUT: '120', DATABASE_DEAD_AFTER: '121' };
  const named = openConnections(t, `${url}?application_name=my%20app`, 'limits', limits);
  for (const purpose of PURPOSES) {
    const expected = { name: 'my app-limits', statement: '2min', idle: '2min' };
    assert.deepEqual(await ask(named, purpose, show), expected, purpose);
  }
  const short = openConnections(t, url, 'short', { DATABASE_STATEMENT_TIMEOUT: '1' });
  const endless = `with recursive numbers as (select 1 as n union all select n from numbers)
    select count(*) from (select from numbers limit 1000000000000) rows`;
  await assert.rejects(ask(short, 'list', endless), TooSlow);
});

test('DATABASE_LOCK_TIMEOUT ends a call that waits for a lock, and no other one', async (t) => {
  const own = await createDatabase(t);
  await own.sql`create table things (id integer)`;
  const insert = (seconds: string) =>
    ask(
      openConnections(t, own.url, 'locked', { DATABASE_LOCK_TIMEOUT: seconds }),
      'write',
      'insert into things values (1)',
    );
  const holder = await own.sql.reserve();
  await holder`begin`;
  await holder`lock table things`;
  const patient = insert('300');
  await assert.rejects(insert('1'), /55P03/);
  await holder`commit`;
  holder.release();
  await patient;
  await insert('1');
  assert.equal((await own.sql`select from things`).length, 2);
});
