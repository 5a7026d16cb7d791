/** CONTROL_SOCKET: what an operator sees and changes of a process that runs. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, statSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { join } from 'node:path';
import { after } from 'node:test';
import { assertRefused, runCommand } from '../support/commands.ts';
import { untilSql } from '../support/connections.ts';
import { makeDirectory } from '../support/directories.ts';
import {
  ADMIN_PASSWORD,
  ask,
  AUTH_TOKEN,
  launch,
  logIn,
  SERVER_SECRET,
  startGatehouse,
} from '../support/gatehouse.ts';
import { buildProgram, startProgram } from '../support/process.ts';
import { test, until } from '../support/until.ts';

const place = makeDirectory({ after }, 'control');
const socketIn = (name: string) => ({ CONTROL_SOCKET: join(place, name) });
const environment = socketIn('both');
const run = (words: string, given = environment) => runCommand(words.split(' '), given);

const gatehouse = await launch(['identity', 'secrets'], {
  ...environment,
  METRICS_PORT: undefined,
  LOG_PROBES: undefined,
});
const { identity, secrets } = gatehouse;

const statusOf = async (given = environment) => {
  const { code, stdout, stderr } = await run('status --json', given);
  assert.equal(code, 0, stderr);
  return { text: stdout, json: JSON.parse(stdout) };
};

/** Waits until so many requests of identity are under way. */
async function untilStatus(given: typeof environment, count: number) {
  let status = await statusOf(given);
  await untilSql(async () => {
    status = await statusOf(given);
    return (status.json.services[0].requests[0]?.requests ?? 0) === count;
  }, 'these requests are under way');
  return status;
}

test('status shows requests by route and age, queues, and the latest warnings', async () => {
  assert.equal(statSync(environment.CONTROL_SOCKET).mode & 0o777, 0o600, 'only to its user');
  await ask('GET', `${identity}/api/auth/verify`, { bearer: 'session:none' });
  const release = gatehouse.holdHashes();
  const logins = [logIn(identity), logIn(identity)];
  const both = await untilStatus(environment, 2);
  release();
  await Promise.all(logins);
  const { services, measurements, recent, state, log_level: level, pid } = both.json;
  assert.deepEqual([state, level, pid], ['serving', 'info', process.pid]);
  const [first, second] = services;
  assert.deepEqual(
    [first.name, first.prepared, first.requests[0].route, second.name, second.requests],
    ['identity', true, 'POST /api/auth/login', 'secrets', []],
  );
  assert.ok(first.requests[0].oldest_ms >= 0 && first.connections >= 2);
  const names = measurements.map(({ name }: { name: string }) => name);
  assert.ok(names.includes('gatehouse_database_pending{service="identity",connection="read"}'));
  const { message, credential } = recent.at(-1);
  assert.deepEqual([message, credential], ['credential refused', 'session']);
  for (const secret of [ADMIN_PASSWORD, SERVER_SECRET, AUTH_TOKEN, 'postgres://'])
    assert.equal(both.text.includes(secret), false);
  const { stdout } = await run('status');
  assert.match(stdout, /^state +serving$/m);
  assert.match(stdout, /^gatehouse_password_hashes_running +\d+$/m);
});

test('the log level changes without a restart', async () => {
  const probes = () =>
    gatehouse.log().filter(({ level, route }) => level === 'debug' && route === 'GET /livez');
  await ask('GET', `${secrets}/livez`);
  assert.equal(probes().length, 0);
  const changed = await run('log-level debug');
  assert.equal(changed.stderr, 'log level debug; it was info\n');
  await ask('GET', `${secrets}/livez`);
  await until(() => probes().length === 1);
  assertRefused(await run('log-level loud'), 2, /LEVEL must be one of debug, info, warn, error/);
  assert.equal((await statusOf()).json.log_level, 'debug');
  await run('log-level info');
  const changes = gatehouse
    .log()
    .flatMap(({ message, from, to }) => (message === 'log level changed' ? `${from} ${to}` : []));
  assert.deepEqual(changes, ['info debug', 'debug info']);
});

test('a process that drains is not ready and serves requests, until that is undone', async () => {
  const probe = () => Promise.all([identity, secrets].map((url) => ask('GET', `${url}/readyz`)));
  // On a busy machine, a probe of the database may take too long.
  const untilReady = () =>
    untilSql(async () => (await probe()).every(({ status }) => status === 200), 'it is ready');
  await untilReady();
  assert.equal((await run('drain')).stderr, 'the process is draining now\n');
  assert.equal((await run('drain')).stderr, 'the process was draining before\n');
  const said = 'Not ready: the process is starting, draining or shutting down.';
  for (const [index, { status, json }] of (await probe()).entries())
    assert.deepEqual([status, json.error.message], [[500, 503][index], said]);
  assert.equal((await statusOf()).json.state, 'draining');
  const { status, headers } = await ask('GET', `${identity}/livez`);
  assert.deepEqual([status, headers.get('connection')], [200, 'close']);
  await logIn(identity);
  assert.equal((await run('drain --undo')).stderr, 'the process is not draining now\n');
  await untilReady();
});

test('a process that shuts down cannot be drained', async (t) => {
  const given = { ...socketIn('ending'), SHUTDOWN_GRACE: '600' };
  const ending = await startGatehouse(t, ['identity'], gatehouse.databaseUrl, given);
  const release = ending.holdHashes();
  const login = logIn(ending.url.identity).catch(() => {});
  await untilStatus(given, 1);
  const stopped = ending.stop();
  assert.equal((await statusOf(given)).json.state, 'shutting down');
  assertRefused(await run('drain', given), 1, /The process is shutting down\./);
  release();
  await Promise.all([login, stopped]);
  assert.equal(existsSync(given.CONTROL_SOCKET), false);
  assertRefused(await run('status', given), 1, /no process listens there\. Is one running/);
});

test('a socket that a killed process has left is replaced, one that is in use is not', async (t) => {
  const given = socketIn('left');
  const serve = { ...given, WEBHOOK_VARIANT: 'plain', HOST: '127.0.0.1', PORT: '0' };
  const start = () => startProgram(t, buildProgram(), ['serve', 'webhook'], serve);
  const killed = start();
  await killed.ready('webhook');
  killed.signal('SIGKILL');
  await killed.ended;
  assertRefused(await run('status', given), 1, /does not run any more/);
  const next = start();
  await next.ready('webhook');
  const third = start();
  assert.deepEqual(await third.ended, { code: 1, signal: null });
  assert.match(third.stderr(), /CONTROL_SOCKET=\S+ cannot be made \(EADDRINUSE\): name a file/);
  assert.equal((await statusOf(given)).json.pid, next.pid);
});

test('a process that does not reply is given up', async (t) => {
  const given = socketIn('silent');
  const server = createServer();
  t.after(() => server.close());
  await once(server.listen(given.CONTROL_SOCKET), 'listening');
  const { setTimeout: limit } = Socket.prototype;
  // Ten seconds are over at once.
  t.mock.method(
    Socket.prototype,
    'setTimeout',
    function (this: Socket, ms: number, end?: () => void) {
      return limit.call(this, ms === 10_000 ? 1 : ms, end);
    },
  );
  assertRefused(await run('status', given), 1, /silent: no reply within 10 s/);
});

test('a socket that cannot be made is named with its variable', async (t) => {
  const given = { WEBHOOK_VARIANT: 'plain', CONTROL_SOCKET: '/nowhere/socket' };
  await assert.rejects(startGatehouse(t, ['webhook'], undefined, given), {
    message: /^CONTROL_SOCKET=\/nowhere\/socket cannot be made \((ENOENT|EACCES)\): name a file/,
  });
});
