/**
 * How the process ends: in order when it is asked, at once when it is asked twice, and never half
 * way.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { connect } from '../../scripts/postgres.ts';
import { PATIENT, untilSql } from '../support/connections.ts';
import { createDatabase, createEmptyDatabase } from '../support/database.ts';
import { ask, AUTH_TOKEN, logIn, variables, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { buildProgram, type Running, startProgram } from '../support/process.ts';
import { startProxy } from '../support/proxy.ts';
import { startRecorder } from '../support/recorder.ts';
import { SERVICES } from '../support/settings.ts';
import { connectTo, headOf, type RawClient } from '../support/socket.ts';

const file = await createDatabase();
const IN_ORDER = { code: 0, signal: null };
const AT_ONCE = { code: 1, signal: null };

async function start(
  t: TestContext,
  services: readonly string[],
  more: Readonly<Record<string, string>> = {},
): Promise<Running> {
  const given = { ...variables(file.url), ...more };
  const running = startProgram(t, buildProgram(), ['serve', ...services], given);
  await running.ready(...services);
  return running;
}

async function open(t: TestContext, url: string, request = ''): Promise<RawClient> {
  const client = await connectTo(url);
  t.after(() => client.leave());
  client.send(request);
  return client;
}

/** Holds a table, so that every statement on it hangs until it is let go. */
async function holdSessions(t: TestContext) {
  const holder = connect(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await holder`lock table identity.sessions in access exclusive mode`;
  return () => holder`rollback`;
}

/** How many statements of identity wait for a table. */
const countBlocked = async () =>
  (
    await file.sql`select from pg_stat_activity where datname = current_database()
      and application_name = 'gatehouse-identity' and wait_event_type = 'Lock'`
  ).length;

const body = JSON.stringify({ session: 'session:00000000-0000-4000-8000-000000000000' });
const LOGOUT = `${headOf(['POST /api/auth/logout HTTP/1.1', 'Host: x', `Content-Length: ${body.length}`])}${body}`;
const READY = headOf(['GET /readyz HTTP/1.1', 'Host: x']);
const ALIVE = headOf(['GET /livez HTTP/1.1', 'Host: x']);

/** A log-out that hangs in the database, and holds up nothing else. */
async function hangingLogout(t: TestContext, running: Running): Promise<RawClient> {
  const client = await open(t, await running.url('identity'), LOGOUT);
  await untilSql(async () => (await countBlocked()) === 1, 'the log-out waits for the table');
  return client;
}

const isRefused = (url: string): Promise<boolean> =>
  connectTo(url).then(
    (client) => {
      client.leave();
      return false;
    },
    () => true,
  );

test('on SIGTERM requests in flight finish, new ones fail, and the exit code is 0', async (t) => {
  const running = await start(t, ['identity']);
  const url = await running.url('identity');
  const idle = await open(t, url, READY);
  assert.equal((await idle.answer()).status, 200);
  const silent = await open(t, url);
  const half = await open(t, url, READY.slice(0, 20));
  const release = await holdSessions(t);
  const logout = await hangingLogout(t, running);

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
  assert.deepEqual([answer.status, answer.headers.get('connection')], [200, 'close'], answer.body);
  assert.equal(await logout.closed(), '');
  assert.deepEqual(await running.ended, IN_ORDER);
  assert.doesNotMatch(running.stderr(), /^gatehouse:|^ +at /m);
  const said = running.log().map(({ message }) => message);
  assert.ok(said.indexOf('shutting down') < said.lastIndexOf('request'), 'it is logged');
  const left = await file.sql`select from pg_stat_activity
    where datname = current_database() and application_name = 'gatehouse-identity'`;
  assert.equal(left.length, 0, 'no connection to the database is left');
});

test('signals for other programs change nothing; SIGTERM ends all services while database and target hang', async (t) => {
  const proxy = await startProxy(t, file.url);
  const recorder = await startRecorder(t);
  recorder.answer(() => {});
  const running = await start(t, SERVICES, {
    // No call ends while it waits for this database, open connection or not.
    ...PATIENT,
    DATABASE_URL: `${proxy.url}?connect_timeout=99`,
    SHUTDOWN_DELAY: '1',
    SHUTDOWN_GRACE: '2',
    METRICS_PORT: '0',
    WEBHOOK_FORWARD_URL: recorder.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  });
  const post = async (service: string, path: string, bearer: string, sent: object) =>
    ask('POST', (await running.url(service)) + path, { bearer, body: sent });
  const event = () =>
    post('webhook', '/webhook', WEBHOOK_TOKEN, { event: 'hangs', data: { page_id: '1' } });
  assert.equal((await event()).status, 200);
  await untilSql(async () => recorder.received.length > 0, 'a delivery is under way');
  proxy.stall();
  const answered = Promise.allSettled([
    logIn(await running.url('identity')),
    event(),
    post('secrets', '/api/store/encrypt', AUTH_TOKEN, { password: 'x' }),
  ]);
  const metrics = `${await running.url('metrics')}/metrics`;
  const areInFlight = async () => {
    const { text } = await ask('GET', metrics);
    return SERVICES.every((name) => text.includes(`requests_in_flight{service="${name}"} 1\n`));
  };
  await untilSql(areInFlight, 'the calls are under way');
  for (const name of ['SIGHUP', 'SIGUSR1', 'SIGUSR2'] as const) {
    running.signal(name);
    const said = `${name} changes nothing`;
    await untilSql(async () => running.stderr().includes(said), 'it says so');
  }
  assert.ok(!running.stderr().includes('Debugger listening'));
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, IN_ORDER);
  const said = 'shutdown took too long: work is left unfinished';
  assert.ok(running.log().some(({ message }) => message === said));
  const ends = (await answered).map(({ status }) => status);
  assert.deepEqual(
    ends,
    ['rejected', 'rejected', 'rejected'],
    'no answer, rather than a wrong one',
  );
});

test('a process that waits for its database, or migrates it, stops on a signal', async (t) => {
  const proxy = await startProxy(t, file.url);
  proxy.cut();
  const given = { ...variables(proxy.url), SHUTDOWN_DELAY: '0' };
  const waiting = startProgram(t, buildProgram(), ['serve', 'identity'], given);
  await waiting.line(({ message }) => message === 'not ready yet, trying again');
  waiting.signal('SIGTERM');
  assert.deepEqual([await waiting.ended, waiting.stderr()], [IN_ORDER, '']);

  const empty = await createEmptyDatabase(t);
  // SIGINT comes from a person, who does not wait for a load balancer.
  const first = { ...variables(empty.url), SHUTDOWN_DELAY: '600' };
  const running = startProgram(t, buildProgram(), ['serve'], first);
  await Promise.all(SERVICES.map((service) => running.url(service)));
  running.signal('SIGINT');
  assert.deepEqual(await running.ended, IN_ORDER);
});

test('during SHUTDOWN_DELAY requests are served, only readiness fails, and another signal ends it', async (t) => {
  const running = await start(t, ['identity'], { SHUTDOWN_DELAY: '600' });
  const url = await running.url('identity');
  running.signal('SIGTERM');
  await untilSql(async () => (await ask('GET', `${url}/readyz`)).status === 500, 'it is not ready');
  const alive = await (await open(t, url, ALIVE)).answer();
  // The next request goes elsewhere.
  assert.deepEqual([alive.status, alive.headers.get('connection')], [200, 'close']);
  assert.ok(await logIn(url), 'a new connection is accepted');
  running.signal('SIGINT');
  assert.deepEqual([await running.ended, running.stderr()], [AT_ONCE, '']);
});
