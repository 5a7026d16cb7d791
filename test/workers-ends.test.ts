/** How several processes end: together, in order when they are asked to, and never with one left behind. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { before, test } from 'node:test';
import { readConfig, SERVICES } from '../src/config.ts';
import { migrateAll } from '../src/serve.ts';
import { createDatabase } from './support/database.ts';
import { variables } from './support/gatehouse.ts';
import { untilSql } from './support/lanes.ts';
import { buildProgram } from './support/process.ts';
import { headOf, type RawClient } from './support/socket.ts';
import { bounded, until } from './support/until.ts';
import { childrenOf, isAlive, OWN_GROUP, startAny, startWorkers, untilGone, type Workers } from './support/workers.ts';

const program = buildProgram();
const file = await createDatabase();
const three = { ...variables(file.url), WORKERS: '3' };

before(async () => {
  await migrateAll(readConfig(SERVICES, 'administer', { DATABASE_URL: file.url }), process);
});

const body = JSON.stringify({ session: 'session:00000000-0000-4000-8000-000000000000' });
const LOGOUT = headOf(['POST /api/auth/logout HTTP/1.1', 'Host: x', `Content-Length: ${body.length}`, 'Expect: 100-continue']);

/** A request in each worker that is under way until its body has come. */
async function begin(house: Workers): Promise<RawClient[]> {
  const clients = await Promise.all(house.workers().map((pid) => house.connect('identity', pid)));
  for (const client of clients) {
    client.send(LOGOUT);
    assert.equal((await client.answer()).status, 100);
  }
  return clients;
}

async function finish(clients: readonly RawClient[]): Promise<void> {
  for (const client of clients) {
    client.send(body);
    const answer = await client.answer();
    assert.deepEqual([answer.status, answer.headers.get('connection')], [200, 'close'], answer.body);
  }
}

const isRefused = (url: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('connect', () => resolve(false)).on('error', () => resolve(true));
    socket.on('connect', () => socket.destroy());
  });

const ENDS: ReadonlyArray<readonly [what: string, send: (house: Workers) => void]> = [
  ['SIGTERM to the first process', ({ pid }) => void process.kill(pid, 'SIGTERM')],
  ['SIGINT to the whole group, as Ctrl-C in a terminal', ({ pid }) => void process.kill(-pid, 'SIGINT')],
  ['SIGTERM to the whole group', ({ pid }) => void process.kill(-pid, 'SIGTERM')],
];

for (const [what, send] of ENDS) {
  test(`${what} lets every worker answer what is under way, and ends all with 0`, bounded, async (t) => {
    const house = await startWorkers(t, program, three, ['identity'], OWN_GROUP);
    const pids = house.workers();
    const clients = await begin(house);
    send(house);
    await untilSql(() => isRefused(house.services.identity), 'new connections are refused');
    await until(() => house.count('shutting down') === 3);
    await finish(clients);
    assert.deepEqual(await house.ended, { code: 0, signal: null });
    assert.deepEqual(pids.filter(isAlive), [], 'nobody is left');
    assert.equal(house.stderr().split('\n').filter((line) => !line.startsWith('identity: created')).join('\n'), '');
    assert.equal(house.log().filter(({ level }) => level === 'error').length, 0, house.stdout());
    assert.equal(house.log().filter((line) => line.message === 'request' && line.route === 'POST /api/auth/logout' && line.status === 200).length, 3);
  });
}

test('what is under way for longer than SHUTDOWN_GRACE is cut, in every worker', bounded, async (t) => {
  const house = await startWorkers(t, program, { ...three, SHUTDOWN_GRACE: '0' }, ['identity']);
  const clients = await begin(house);
  // So that no limit for silent connections cuts them; the one for slow requests would answer.
  let sent = 0;
  const trickle = setInterval(() => {
    clients.forEach((client) => client.send(body.charAt(sent)));
    sent += 1;
  }, 1_000);
  t.after(() => clearInterval(trickle));
  house.signal('SIGTERM');
  for (const client of clients) assert.equal(await client.closed(), '', 'no answer, rather than a late one');
  assert.deepEqual(await house.ended, { code: 0, signal: null });
});

test('a second SIGTERM ends all at once with 1', bounded, async (t) => {
  const house = await startWorkers(t, program, { ...three, SHUTDOWN_GRACE: '600' }, ['identity'], OWN_GROUP);
  const pids = house.workers();
  const clients = await begin(house);
  process.kill(-house.pid, 'SIGTERM');
  await until(() => house.count('shutting down') === 3);
  process.kill(-house.pid, 'SIGTERM');
  assert.deepEqual(await house.ended, { code: 1, signal: null });
  for (const client of clients) assert.equal(await client.closed(), '');
  await untilGone(pids);
});

test('kill -9 of the first process leaves none behind', bounded, async (t) => {
  const house = await startWorkers(t, program, { ...three, SHUTDOWN_GRACE: '600' }, ['identity']);
  const pids = house.workers();
  await begin(house);
  house.signal('SIGKILL');
  assert.deepEqual(await house.ended, { code: null, signal: 'SIGKILL' });
  await untilGone(pids);
});

test('a signal in the middle of the start ends all in order, however far they are', bounded, async (t) => {
  // Long before the first worker is there; when its ports are open; when it is ready, and the others are not.
  const moments = [['metrics', 'listening'], ['identity', 'listening'], ['identity', 'ready']] as const;
  for (const [service, message] of moments) {
    for (const isGroup of [false, true]) {
      const running = startAny(t, program, ['serve'], { ...three, METRICS_PORT: '0' }, OWN_GROUP);
      await running.line((line) => line.service === service && line.message === message);
      const pids = childrenOf(running.pid);
      process.kill(isGroup ? -running.pid : running.pid, 'SIGTERM');
      assert.deepEqual(await running.ended, { code: 0, signal: null }, `${service} ${message} ${isGroup} ${running.stderr()}`);
      assert.deepEqual(pids.filter(isAlive), []);
      assert.doesNotMatch(running.stderr(), /^gatehouse:|^ +at /m);
    }
  }
});

test('a signal to all that ends a worker before the process above it has heard of it is no failure', bounded, async (t) => {
  const running = startAny(t, program, ['serve'], { ...three, METRICS_PORT: '0' }, OWN_GROUP);
  await until(() => childrenOf(running.pid).length > 0, 'there is a worker');
  const [worker = assert.fail()] = childrenOf(running.pid);
  process.kill(worker, 'SIGTERM');
  await until(() => !isAlive(worker), 'it has ended: it was too young to mind');
  process.kill(running.pid, 'SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null }, running.stderr());
});

test('five ends within a minute are made good, and with the sixth the whole ends with 1 and one line', bounded, async (t) => {
  const house = await startWorkers(t, program, { ...three, WORKERS: '2' }, ['identity']);
  for (let end = 1; end <= 5; end += 1) await house.replace(house.workers().at(end % 2) ?? assert.fail('there is a worker'));
  const pids = house.workers();
  assert.equal(pids.length, 2);
  const said = house.stderr();
  process.kill(pids[0] ?? assert.fail('there is a worker'), 'SIGKILL');
  assert.deepEqual(await house.ended, { code: 1, signal: null });
  assert.equal(house.stderr().slice(said.length), 'gatehouse: too many workers have ended in too short a time.\n');
  assert.equal(house.count('a worker has ended and is started again'), 5);
  assert.deepEqual(pids.filter(isAlive), []);
});

test('a worker that is killed while it starts has a successor, too', bounded, async (t) => {
  const house = await startWorkers(t, program, three, ['identity']);
  const before = house.workers();
  for (const victim of before.slice(0, 2)) {
    const ready = house.count('ready');
    process.kill(victim, 'SIGKILL');
    const isNew = (pid: number) => !before.includes(pid);
    await until(() => house.workers().some(isNew));
    const successor = house.workers().find(isNew) ?? assert.fail('the successor has ended by itself');
    before.push(successor);
    process.kill(successor, 'SIGKILL');
    await until(() => house.count('ready') === ready + 1 || !isAlive(house.pid), 'the successor of the successor is ready');
    before.push(...house.workers());
  }
  assert.ok(isAlive(house.pid), house.stderr());
  assert.equal(house.workers().length, 3);
  const pids = house.workers();
  house.signal('SIGTERM');
  assert.deepEqual(await house.ended, { code: 0, signal: null });
  assert.deepEqual(pids.filter(isAlive), []);
});

test('a port that another program has taken ends all with 1, and is told once', bounded, async (t) => {
  const other = createServer().listen(0, '127.0.0.1');
  t.after(() => void other.close());
  await once(other, 'listening');
  const bound = other.address();
  const port = String(typeof bound === 'object' ? bound?.port : '');
  for (const name of ['METRICS_PORT', 'IDENTITY_PORT', 'WEBHOOK_PORT']) {
    const running = startAny(t, program, ['serve'], { ...three, [name]: port });
    const seen = new Set<number>();
    await until(() => running.stderr().includes('cannot listen'));
    childrenOf(running.pid).forEach((pid) => seen.add(pid));
    assert.deepEqual(await running.ended, { code: 1, signal: null });
    assert.equal(running.stderr().split(`cannot listen on 127.0.0.1:${port}`).length, 2, running.stderr());
    assert.ok(running.stderr().split('\n').length <= 3, running.stderr());
    assert.deepEqual([...seen].filter(isAlive), []);
  }
});

test('a start that a worker refuses is told once, and ends all with 1', bounded, async (t) => {
  const running = startAny(t, program, ['serve', 'webhook'], { ...three, WEBHOOK_COMMAND: '["/nowhere/at-all"]' });
  assert.deepEqual(await running.ended, { code: 1, signal: null });
  assert.equal(running.stderr().split('WEBHOOK_COMMAND').length, 2, running.stderr());
});

test('a configuration that is wrong is told once, before there is any worker', bounded, async (t) => {
  const { SERVER_SECRET: _secret, ...wrong }: Record<string, string> = three;
  const running = startAny(t, program, ['serve'], { ...wrong, METRICS_PORT: '0' });
  assert.deepEqual(await running.ended, { code: 78, signal: null });
  assert.match(running.stderr(), /^gatehouse: SERVER_SECRET must be set[^\n]*\n$/);
  assert.equal(running.stdout(), '');
});

test('a worker that hangs is killed in the end, and does not keep the others from ending in order', { timeout: 120_000 }, async (t) => {
  const house = await startWorkers(t, program, { ...three, SHUTDOWN_GRACE: '0' }, ['identity']);
  const [, hanging = 0] = house.workers();
  process.kill(hanging, 'SIGSTOP');
  house.signal('SIGTERM');
  assert.deepEqual(await house.ended, { code: 0, signal: null });
  await until(() => !isAlive(hanging), 'it is gone');
});
