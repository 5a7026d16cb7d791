/**
 * How the process ends: in order when it is asked, at once when it is asked twice, and never half
 * way.
 */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { before, test, type TestContext } from 'node:test';
import { runCommand } from '../support/commands.ts';
import { createDatabase, createEmptyDatabase } from '../support/database.ts';
import { openConnections, untilSql } from '../support/connections.ts';
import { ask, AUTH_TOKEN, logIn, variables, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { buildProgram, type Running, startProgram } from '../support/process.ts';
import { startProxy } from '../support/proxy.ts';
import { startRecorder } from '../support/recorder.ts';
import { connectTo, headOf, type RawClient } from '../support/socket.ts';
import { latch } from '../support/until.ts';

const program = buildProgram();
const file = await createDatabase();
const environment = variables(file.url);

before(async () => {
  assert.equal((await runCommand(['migrate'], environment)).code, 0);
});

async function start(
  t: TestContext,
  services: readonly string[],
  more: Readonly<Record<string, string>> = {},
): Promise<Running> {
  const running = startProgram(t, program, ['serve', ...services], { ...environment, ...more });
  await running.ready(...services);
  return running;
}

async function open(t: TestContext, url: string): Promise<RawClient> {
  const client = await connectTo(url);
  t.after(() => client.leave());
  return client;
}

/** Holds a table, so that every statement on it hangs until it is let go. */
async function holdSessions(t: TestContext): Promise<() => Promise<void>> {
  const { opened: released, open: letGo } = latch();
  let holding: Promise<void> = Promise.resolve();
  const release = async () => {
    letGo();
    await holding;
  };
  t.after(release);
  await new Promise<void>((resolve) => {
    holding = file.sql.begin(async (sql) => {
      await sql`lock table identity.sessions in access exclusive mode`;
      resolve();
      await released;
    });
  });
  return release;
}

const body = JSON.stringify({ session: 'session:00000000-0000-4000-8000-000000000000' });
const LOGOUT = `${headOf(['POST /api/auth/logout HTTP/1.1', 'Host: x', `Content-Length: ${body.length}`])}${body}`;
const READY = headOf(['GET /readyz HTTP/1.1', 'Host: x']);

/**
 * How many statements of identity wait for a table. On another connection, since `file.sql` itself
 * may hold it.
 */
function watch(t: TestContext): () => Promise<number> {
  const database = openConnections(t, file.url, 'watcher');
  return () =>
    database.read(
      async (sql) =>
        (
          await sql`select from pg_stat_activity where datname = current_database() and application_name = 'gatehouse-identity' and wait_event_type = 'Lock'`
        ).length,
    );
}

/** A log-out that hangs in the database, and holds up nothing else. */
async function hangingLogout(t: TestContext, url: string, blocked = watch(t)): Promise<RawClient> {
  const client = await open(t, url);
  client.send(LOGOUT);
  await untilSql(async () => (await blocked()) === 1, 'the log-out waits for the table');
  return client;
}

const isRefused = (url: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('connect', () => resolve(false)).on('error', () => resolve(true));
    socket.on('connect', () => socket.destroy());
  });

test('on SIGTERM requests in flight finish, new ones fail, and the exit code is 0', async (t) => {
  const running = await start(t, ['identity']);
  const url = await running.url('identity');
  const idle = await open(t, url);
  idle.send(READY);
  assert.equal((await idle.answer()).status, 200);
  const silent = await open(t, url);
  const half = await open(t, url);
  half.send(READY.slice(0, 20));
  const release = await holdSessions(t);
  const logout = await hangingLogout(t, url);

  running.signal('SIGTERM');
  for (const one of [idle, silent])
    assert.equal(await one.closed(), '', 'an idle connection is closed without a word');
  // The doors close in the same breath, but the news of the first may travel faster.
  await untilSql(() => isRefused(url), 'new connections are refused');
  half.send(READY.slice(20));
  const unready = await half.answer();
  assert.deepEqual([unready.status, unready.headers.get('connection')], [500, 'close']);

  await release();
  const answer = await logout.answer();
  assert.equal(answer.status, 200, answer.body);
  assert.equal(answer.json.data, null);
  assert.equal(answer.headers.get('connection'), 'close');
  assert.equal(await logout.closed(), '');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
  assert.doesNotMatch(running.stderr(), /^gatehouse:|^ +at /m);
  const said = running.log().map(({ message }) => message);
  assert.ok(
    said.indexOf('shutting down') < said.lastIndexOf('request'),
    'the last request is logged after the signal',
  );
  const [left] =
    await file.sql`select count(*)::int as count from pg_stat_activity where datname = current_database() and application_name = 'gatehouse-identity'`;
  assert.equal(left?.count, 0, 'no connection to the database is left');
});

test('all services and the metrics listener stop together', async (t) => {
  const running = await start(t, ['identity', 'secrets', 'webhook'], { METRICS_PORT: '0' });
  const urls = await Promise.all(
    ['identity', 'secrets', 'webhook', 'metrics'].map((service) => running.url(service)),
  );
  const clients = await Promise.all(urls.map((url) => open(t, url)));
  for (const client of clients) {
    client.send(headOf(['GET /livez HTTP/1.1', 'Host: x']));
    await client.answer();
  }
  running.signal('SIGTERM');
  for (const client of clients) await client.closed();
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});

test('after SHUTDOWN_GRACE the process exits 0 without waiting for the database', async (t) => {
  const running = await start(t, ['identity'], { SHUTDOWN_GRACE: '0' });
  const blocked = watch(t);
  await holdSessions(t);
  const logout = await hangingLogout(t, await running.url('identity'), blocked);
  running.signal('SIGTERM');
  assert.equal(await logout.closed(), '', 'no answer, rather than a wrong one');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
  assert.equal(await blocked(), 1, 'the process ended only after the database had given up');
});

const IN_FLIGHT = /^gatehouse_requests_in_flight\{.*\} 1$/gm;

// A call waits for this database for 15 s and more, and then the log would not say so.
test('services end within SHUTDOWN_GRACE and two seconds while database and target hang', async (t) => {
  const proxy = await startProxy(t, file.url);
  const recorder = await startRecorder(t);
  recorder.answer(() => {});
  const running = await start(t, ['identity', 'secrets', 'webhook'], {
    DATABASE_URL: proxy.url,
    SHUTDOWN_GRACE: '2',
    METRICS_PORT: '0',
    WEBHOOK_FORWARD_URL: recorder.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  });
  const [identity, secrets, webhook] = await Promise.all(
    ['identity', 'secrets', 'webhook'].map((service) => running.url(service)),
  );
  const event = () =>
    ask('POST', `${webhook}/webhook`, {
      bearer: WEBHOOK_TOKEN,
      body: { event: 'hangs', data: { page_id: '1' } },
    });
  assert.equal((await event()).status, 200);
  await untilSql(async () => recorder.received.length > 0, 'a delivery is under way');
  proxy.stall();
  const calls = [
    logIn(identity ?? ''),
    event(),
    ask('POST', `${secrets}/api/store/encrypt`, { bearer: AUTH_TOKEN, body: { password: 'x' } }),
  ];
  const answered = Promise.allSettled(calls);
  const metrics = `${await running.url('metrics')}/metrics`;
  const inFlight = async () => (await ask('GET', metrics)).text.match(IN_FLIGHT)?.length ?? 0;
  await untilSql(async () => (await inFlight()) === calls.length, 'the calls are under way');
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
  assert.ok(
    running
      .log()
      .some(({ message }) => message === 'shutdown took too long: work is left unfinished'),
  );
  await answered;
});

test('a second signal ends the process at once', async (t) => {
  const running = await start(t, ['identity'], { SHUTDOWN_GRACE: '600' });
  await holdSessions(t);
  const logout = await hangingLogout(t, await running.url('identity'));
  running.signal('SIGTERM');
  await running.line(({ message }) => message === 'shutting down');
  running.signal('SIGINT');
  assert.deepEqual(await running.ended, { code: 1, signal: null });
  assert.equal(await logout.closed(), '');
  assert.equal(running.stderr(), '');
});

test('a process that waits for its database stops on a signal', async (t) => {
  const proxy = await startProxy(t, file.url);
  proxy.cut();
  const running = startProgram(t, program, ['serve', 'identity'], {
    ...environment,
    DATABASE_URL: proxy.url,
  });
  await running.line(({ message }) => message === 'not ready yet, trying again');
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
  assert.equal(running.stderr(), '');
});

test('a signal during the first start ends the process', async (t) => {
  const empty = await createEmptyDatabase(t);
  const given = { ...environment, DATABASE_URL: empty.url };
  const running = startProgram(t, program, ['serve'], given);
  await Promise.all(['identity', 'secrets', 'webhook'].map((service) => running.url(service)));
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});

test('during SHUTDOWN_DELAY requests are served, only readiness fails, and another signal ends it', async (t) => {
  const running = await start(t, ['identity'], { SHUTDOWN_DELAY: '600' });
  const url = await running.url('identity');
  running.signal('SIGTERM');
  await untilSql(async () => (await ask('GET', `${url}/readyz`)).status === 500, 'it is not ready');
  const kept = await open(t, url);
  kept.send(headOf(['GET /livez HTTP/1.1', 'Host: x']));
  const alive = await kept.answer();
  assert.equal(alive.status, 200);
  assert.equal(alive.headers.get('connection'), 'close', 'the next request goes elsewhere');
  assert.ok(await logIn(url), 'a new connection is accepted');
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 1, signal: null });
});

test('SIGTERM is delayed by SHUTDOWN_DELAY, SIGINT is not', async (t) => {
  const delayed = await start(t, ['identity'], { SHUTDOWN_DELAY: '1' });
  delayed.signal('SIGTERM');
  assert.deepEqual(await delayed.ended, { code: 0, signal: null });
  const interrupted = await start(t, ['identity'], { SHUTDOWN_DELAY: '600' });
  interrupted.signal('SIGINT');
  assert.deepEqual(await interrupted.ended, { code: 0, signal: null });
});

test('signals for other programs change nothing, and open no inspector', async (t) => {
  const running = await start(t, ['identity']);
  const url = await running.url('identity');
  for (const name of ['SIGHUP', 'SIGUSR1', 'SIGUSR2'] as const) {
    running.signal(name);
    const said = `${name} changes nothing`;
    await untilSql(async () => running.stderr().includes(said), 'it says so');
  }
  assert.ok(!running.stderr().includes('Debugger listening'));
  assert.equal((await ask('GET', `${url}/readyz`)).status, 200);
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});
