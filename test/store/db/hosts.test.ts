/**
 * A database URL with several hosts, which may be dead, silent, read-only or standbys, and a Unix
 * socket.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import {
  ask,
  changeSettings,
  openConnections,
  PURPOSES,
  untilSql,
} from '../../support/connections.ts';
import { holdTimers } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import { startServer, urlOf } from '../../support/database-servers.ts';
import { variables } from '../../support/gatehouse.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { listenOnTcp } from '../../support/socket.ts';
import { test } from '../../support/until.ts';

// Each test leaves them as they are here.
const [first, second, standby, primary] = await Promise.all([
  startServer({ after }, 'first'),
  startServer({ after }, 'second'),
  startServer({ after }, 'standby'),
  startServer({ after }, 'primary'),
]);
await standby.restartAsStandby();

test('after the address of a host has changed, no connection stays on the former server', async (t) => {
  t.after(() => first.proxy.restore(first.url()));
  const database = openConnections(t, urlOf([first.at]), 'moved');
  for (const purpose of PURPOSES)
    assert.deepEqual(await ask(database, purpose, NAME), { name: 'first' });
  // For new connections: those that are open stay.
  await first.proxy.restore(second.url());
  assert.deepEqual(await ask(database, 'write', NAME), { name: 'first' });
  const read = await ask(database, 'read', 'select pg_backend_pid() as pid');
  await first.query(`select pg_terminate_backend(${Number(read.pid)})`);
  await untilSql(async () => {
    const found = await ask(database, 'read', NAME).catch(() => null);
    return found?.name === 'second';
  }, 'the connection that was cut reaches the new server');
  for (const purpose of PURPOSES) {
    await ask(database, purpose, NAME).catch(() => {}); // may notice the end of its connection
    assert.deepEqual(await ask(database, purpose, NAME), { name: 'second' }, purpose);
  }
  const left = `select from pg_stat_activity where application_name = 'gatehouse-moved'`;
  await untilSql(
    () => withConnection(first.url(), async (sql) => (await sql.unsafe(left)).length === 0),
    'none is left on the former server',
  );
});

const NAME = 'select name from name';
const READ_ONLY = 'alter system set default_transaction_read_only = on';
const READ_WRITE = 'alter system reset default_transaction_read_only';

/** A port on which nothing listens. */
const NOBODY = '127.0.0.1:1';

/** With a real limit, a slow machine would skip a host that works. No other timer has this length. */
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
  for (const purpose of PURPOSES)
    assert.deepEqual(await ask(database, purpose, NAME), { name: 'first' }, purpose);
});

test('no host can be reached: calls fail with the names of all, and succeed when one is back', async (t) => {
  await first.stop();
  const database = openConnections(t, urlOf([NOBODY, first.at]), 'none');
  for (const purpose of PURPOSES) {
    await assert.rejects(
      ask(database, purpose, NAME),
      (error) =>
        error instanceof Unavailable &&
        error.isTemporary &&
        error.message ===
          `the connection to the database at ${NOBODY},${first.at} failed (ECONNREFUSED: no server listens there)`,
    );
  }
  await first.start();
  for (const purpose of PURPOSES)
    assert.deepEqual(await ask(database, purpose, NAME), { name: 'first' }, purpose);
});

test('a process starts with a standby first, and serves', async (t) => {
  const running = startProgram(
    t,
    buildProgram(),
    ['serve', 'webhook'],
    variables(urlOf([standby.at, primary.at])),
  );
  await running.ready('webhook');
  assert.equal((await fetch(`${await running.url('webhook')}/readyz`)).status, 200);
});

test('target_session_attrs: read-write, the default, and primary skip a standby; any does not', async (t) => {
  const found = async (parameters: string) => {
    const database = openConnections(t, urlOf([standby.at, primary.at], parameters), 'target');
    const names = await Promise.all(PURPOSES.map((purpose) => ask(database, purpose, NAME)));
    return [...new Set(names.map(({ name }) => name))];
  };
  assert.deepEqual(await found(''), ['primary']);
  assert.deepEqual(await found('?target_session_attrs=read-write'), ['primary']);
  assert.deepEqual(await found('?target_session_attrs=primary'), ['primary']);
  assert.deepEqual(await found('?target_session_attrs=any'), ['standby']);
  // A primary that is read-only is a primary.
  await changeSettings(primary.url(), READ_ONLY);
  assert.deepEqual(await found('?target_session_attrs=primary'), ['primary']);
  for (const target of ['read-write', 'primary']) {
    const url = urlOf([standby.at], `?target_session_attrs=${target}`);
    const message = `the server at ${standby.at} is not ${target}, as target_session_attrs requires`;
    await assert.rejects(ask(openConnections(t, url, 'target'), 'read', NAME), { message });
  }
  await changeSettings(primary.url(), READ_WRITE);
});

test('a server becomes read-only under open connections: writes find the other one, reads follow', async (t) => {
  for (const server of [first, second]) await server.query('create table things (id integer)');
  const database = openConnections(t, urlOf([first.at, second.at]), 'follow');
  for (const purpose of PURPOSES)
    assert.deepEqual(await ask(database, purpose, NAME), { name: 'first' }, purpose);
  t.after(() => changeSettings(first.url(), READ_WRITE));
  await changeSettings(first.url(), READ_ONLY);
  const isWritten = async () =>
    ask(database, 'write', 'insert into things values (1)').then(
      () => true,
      () => false,
    );
  await untilSql(isWritten, 'a write reaches the next server');
  await untilSql(
    async () => (await ask(database, 'read', NAME).catch(() => ({ name: '' }))).name === 'second',
    'reads follow',
  );
  for (const purpose of PURPOSES)
    assert.deepEqual(await ask(database, purpose, NAME), { name: 'second' }, purpose);
  // The former primary keeps its place in the list, and nobody goes back to it.
  await changeSettings(first.url(), READ_WRITE);
  assert.deepEqual(await ask(database, 'write', NAME), { name: 'second' });
});

test('a server falls silent while it is in use: the services continue with the other one', async (t) => {
  const endAttempts = holdConnectTimeouts(t);
  const limits = { DATABASE_STATEMENT_TIMEOUT: '1', DATABASE_DEAD_AFTER: '2' };
  const url = urlOf([first.at, second.at], CONNECT_TIMEOUT);
  const database = openConnections(t, url, 'silence', limits);
  for (const purpose of PURPOSES)
    assert.deepEqual(await ask(database, purpose, NAME), { name: 'first' }, purpose);
  first.proxy.onStatement(endAttempts);
  first.proxy.stall('all');
  t.after(() => first.proxy.restore());
  await assert.rejects(ask(database, 'read', NAME), Unavailable);
  // The other connections were idle, and are given up with it.
  for (const purpose of PURPOSES) {
    await untilSql(
      async () =>
        (await ask(database, purpose, NAME).catch(() => ({ name: '' }))).name === 'second',
      `${purpose} follows`,
    );
  }
});

test('a Unix socket, in the authority and as the parameter host; TLS is not asked for there', async (t) => {
  const { url } = await createDatabase(t);
  const { port, username, password, pathname } = new URL(url);
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-socket-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const sockets = new Set<Socket>();
  const relay = createServer((near) => {
    const far = connect(Number(port), '127.0.0.1');
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const)
      sockets.add(one.on('error', () => {}).on('close', () => other.destroy()));
    near.pipe(far).pipe(near);
  });
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    relay.close();
  });
  relay.listen(join(directory, '.s.PGSQL.6543'));
  await once(relay, 'listening');
  const user = `${username}:${password}`;
  const encoded = encodeURIComponent(directory);
  for (const form of [
    `${user}@${encoded}:6543${pathname}`,
    `${user}@:6543${pathname}?host=${directory}`,
    `${user}@:6543${pathname}?host=${encoded}&sslmode=require`,
  ]) {
    assert.deepEqual(
      await ask(openConnections(t, `postgres://${form}`, 'socket'), 'write', 'select 1 as one'),
      { one: 1 },
    );
  }
  assert.ok(sockets.size > 0);
});

test('application_name and the limits reach the server', async (t) => {
  const { url } = await createDatabase(t);
  const show = `select current_setting('application_name') as name,
    current_setting('statement_timeout') as statement,
    current_setting('idle_in_transaction_session_timeout') as idle`;
  const named = openConnections(t, `${url}?application_name=my%20app`, 'limits', {
    DATABASE_STATEMENT_TIMEOUT: '120',
    DATABASE_DEAD_AFTER: '121',
  });
  for (const purpose of PURPOSES) {
    assert.deepEqual(
      await ask(named, purpose, show),
      { name: 'my app-limits', statement: '2min', idle: '2min' },
      purpose,
    );
  }
  const short = openConnections(t, url, 'short', { DATABASE_STATEMENT_TIMEOUT: '1' });
  assert.deepEqual(await ask(short, 'list', show), {
    name: 'gatehouse-short',
    statement: '1s',
    idle: '1s',
  });
  const endless = `with recursive numbers as (select 1 as n union all select n from numbers)
    select count(*) from (select from numbers limit 1000000000000) rows`;
  await assert.rejects(ask(short, 'list', endless), /57014/);
});

test('DATABASE_LOCK_TIMEOUT ends a call that waits for a lock', async (t) => {
  const own = await createDatabase(t);
  await own.sql`create table things (id integer)`;
  const open = (seconds: string) =>
    openConnections(t, own.url, 'locked', { DATABASE_LOCK_TIMEOUT: seconds });
  const patient = open('50');
  const impatient = open('1');
  const insert = 'insert into things values (1)';
  let isOver = false;
  const first = await own.sql.begin(async (sql) => {
    await sql`lock table things`;
    // In an array, because the transaction would wait for a promise.
    const waiting = [
      ask(patient, 'write', insert).finally(() => {
        isOver = true;
      }),
    ];
    await assert.rejects(ask(impatient, 'write', insert), /55P03/);
    assert.equal(isOver, false, 'the other call waits on');
    return waiting;
  });
  await Promise.all(first);
  await ask(impatient, 'write', insert);
  assert.deepEqual([...(await own.sql`select count(*)::int from things`)], [{ count: 2 }]);
});
