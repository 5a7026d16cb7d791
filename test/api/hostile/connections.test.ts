/** More bodies, connections and waiting requests than the process accepts. */
import assert from 'node:assert/strict';
import type { Server } from 'node:http';
import { BlockList } from 'node:net';
import { Duplex } from 'node:stream';
import { after, type TestContext } from 'node:test';
import { stopClock } from '../../support/clock.ts';
import { bearerGuard, get, post, startPatient } from '../../support/listener.ts';
import { connectTo, exchange, headOf } from '../../support/socket.ts';
import { latch, test, until } from '../../support/until.ts';

const HOST = 'Host: gatehouse.test';
const MAX_BODIES = 1_024;
const MAX_CONNECTIONS = 4_096;
const SHARE = MAX_CONNECTIONS / 4;
const GET = headOf(['GET /a HTTP/1.1', HOST]);
const SLOW = headOf(['GET /slow HTTP/1.1', HOST]);

const A = get('/a', async () => ({ data: 'a' }));
const { url, server, inFlight } = await startPatient({ after }, [
  A,
  post('/a'),
  post('/large', bearerGuard),
]);

/** A connection of the listener without a socket of the system, for those that are thousands. */
function connectInside(to: Server, remoteAddress: string, first = '') {
  let said = '';
  const socket = new Duplex({
    read() {},
    write(chunk, _encoding, done) {
      said += String(chunk);
      done();
    },
  });
  to.emit('connection', Object.assign(socket, { remoteAddress }));
  const send = (text: string) => socket.push(text);
  if (first !== '') send(first);
  return {
    send,
    said: () => said,
    isOpen: () => !socket.destroyed,
    leave: () => {
      socket.destroy();
    },
  };
}
type Inside = ReturnType<typeof connectInside>;

const connectMany = (to: Server, count: number, from: (n: number) => string, first?: string) =>
  Array.from({ length: count }, (_, n) => connectInside(to, from(n), first));

/** Connections that have had a reply, in the order in which they became idle. */
async function connectIdle(to: Server, count: number, from: string): Promise<Inside[]> {
  const clients: Inside[] = [];
  for (let n = 0; n < count; n += 1) {
    const client = connectInside(to, from, GET);
    // The first ones in turn, so that it is known which has been idle for longest.
    if (n < 3) await until(() => client.said() !== '', 'a reply');
    clients.push(client);
  }
  await until(() => clients.every(({ said }) => said() !== ''), 'all replies');
  return clients;
}

function leave(...clients: ReadonlyArray<Pick<Inside, 'leave'> | undefined>) {
  for (const client of clients) client?.leave();
}
const untilIdle = (running = inFlight) => until(() => running() === 0, 'nothing is in flight');
const getFrom = (to: string, from: string) => exchange(to, ['GET /a HTTP/1.1', HOST], '', from);

/** In chunks, because a body of known length that arrives with its head is read at once. */
const postFrom = (from: string, path = '/a', body = '{"name":"posted"}') =>
  exchange(
    url,
    [
      ...[`POST ${path} HTTP/1.1`, HOST, 'Authorization: Bearer good'],
      'Transfer-Encoding: chunked',
    ],
    `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    from,
  );

/** Holds back the last byte of many bodies. None is too slow, for the clock stands. */
function holdBodies(t: TestContext, path: string, count: number, size: number, networks: number) {
  stopClock(t);
  const head = [`POST ${path} HTTP/1.1`, HOST, 'Authorization: Bearer good'];
  const begun = headOf([...head, `Content-Length: ${size}`]) + ' '.repeat(size - 1);
  return connectMany(server, count, (n) => `127.0.0.${2 + (n % networks)}`, begun);
}

test('one network with 1,024 unfinished bodies does not block the bodies of another', async (t) => {
  // Small, because large ones that wait for a slow check would pause their network.
  const clients = holdBodies(t, '/a', MAX_BODIES, 1_000, 1);
  await until(() => clients.some(({ said }) => said().includes(' 503 ')), 'its share is used up');
  const own = await postFrom('127.0.0.2');
  assert.deepEqual([own.status, own.json.error.code], [503, 'overloaded']);
  assert.match(own.json.error.message, /of your network/);
  assert.equal((await postFrom('127.0.0.3')).status, 200);
  leave(...clients);
  await untilIdle();
});

test('beyond 1,024 bodies: 503 for another body, 200 for a request without one', async (t) => {
  const clients = holdBodies(t, '/a', MAX_BODIES, 1_000, 4);
  await until(() => inFlight() === MAX_BODIES, 'all bodies are being received');
  const refused = await postFrom('127.0.0.9');
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  assert.equal((await getFrom(url, '127.0.0.1')).status, 200);
  const head = ['POST /a HTTP/1.1', HOST, 'Content-Length: 12'];
  const complete = await exchange(url, head, '{"name":"a"}', '127.0.0.9');
  assert.equal(complete.status, 200, 'a body that arrives with its head takes no slot');
  leave(...clients);
  await untilIdle();
  assert.equal((await postFrom('127.0.0.9')).status, 200);
});

test('the bytes of all bodies together are bounded, and are free again afterwards', async (t) => {
  const clients = holdBodies(t, '/large', 400, 60_000, 4);
  const isRefused = ({ said }: Inside) => said().includes('Too many request bodies');
  await until(() => inFlight() > 0 && clients.some(isRefused), 'some are refused');
  leave(...clients);
  await untilIdle();
  const large = '{"name":"posted"}'.padEnd(60_000);
  assert.equal((await postFrom('127.0.0.2', '/large', large)).status, 200);
});

/** The metrics, once the limit has closed so many connections. */
const closed = (limit: string, count = 1) =>
  new RegExp(
    `^gatehouse_connections_closed_total\\{service="test",limit="${limit}"\\} ${count}$`,
    'm',
  );

test('4,096 idle or silent connections of four networks do not shut out a fifth', async (t) => {
  const own = await startPatient(t, [A]);
  const clients = await connectIdle(own.server, 2, '127.0.0.2');
  clients.push(...connectMany(own.server, SHARE - 2, () => '127.0.0.2'));
  clients.push(...connectMany(own.server, 3 * SHARE, (n) => `127.0.0.${3 + (n % 3)}`));
  const [first, second, third] = clients;
  // The first connection is no longer the one that has been idle for longest.
  const before = first?.said().length ?? 0;
  first?.send(GET);
  await until(() => (first?.said().length ?? 0) > before, 'another reply');
  const open = () => clients.filter(({ isOpen }) => isOpen()).length;
  for (const [closing, count] of [
    [second, 1],
    // It has not sent a byte.
    [third, 2],
  ] as const) {
    const other = await connectTo(own.url, '127.0.0.6');
    t.after(other.leave);
    other.send(GET);
    assert.equal((await other.answer()).status, 200);
    assert.equal(closing?.isOpen(), false);
    assert.match(own.metrics(), closed('connections', count));
    assert.equal(open(), MAX_CONNECTIONS - count);
  }
  leave(...clients);
});

test('one network holds a quarter of the connections, and its own longest idle one is closed', async (t) => {
  const own = await startPatient(t, [A]);
  const [other] = await connectIdle(own.server, 1, '127.0.0.3');
  const clients = await connectIdle(own.server, SHARE, '127.0.0.2');
  assert.equal((await getFrom(own.url, '127.0.0.2')).status, 200);
  const isOpen = [clients[0], clients[1], clients.at(-1), other].map((one) => one?.isOpen());
  assert.deepEqual(isOpen, [false, true, true, true]);
  assert.match(own.metrics(), closed('network'));
  leave(...clients);
  await new Promise(setImmediate);
  assert.equal((await getFrom(own.url, '127.0.0.2')).status, 200);
  assert.match(own.metrics(), closed('network'), 'none of those who have left is counted');
  leave(other);
});

test('at a limit without an idle connection, the new one is closed, and no request in progress', async (t) => {
  const { server: to, url: at, running, release, metrics } = await startSlow(t);
  const slow = connectMany(to, SHARE, () => '127.0.0.2', SLOW);
  await running(SHARE);
  const late = connectInside(to, '127.0.0.2', GET);
  assert.deepEqual([late.isOpen(), late.said()], [false, '']);
  assert.match(metrics(), closed('network'));
  const others = connectMany(to, 3 * SHARE, (n) => `127.0.0.${3 + (n % 3)}`, SLOW);
  await running(4 * SHARE);
  const stranger = connectInside(to, '127.0.0.6', GET);
  assert.equal(stranger.isOpen(), false);
  assert.match(metrics(), closed('connections'));
  release();
  const all = [...slow, ...others];
  await until(() => all.every(({ said }) => said().includes('"slow"')), 'all replies');
  assert.equal((await getFrom(at, '127.0.0.2')).status, 200);
  leave(...all);
});

test('the share of one network does not apply to a trusted proxy', async (t) => {
  const proxies = new BlockList();
  proxies.addAddress('127.0.0.2');
  const own = await startPatient(t, [A], proxies);
  const clients = await connectIdle(own.server, SHARE + 1, '127.0.0.2');
  assert.equal((await getFrom(own.url, '127.0.0.3')).status, 200);
  assert.ok(clients.every(({ isOpen }) => isOpen()));
  leave(...clients);
});

/** More than the kernel takes for a client that does not read. */
const LARGE = 'x'.repeat(8 * 1024 * 1024);

/** Routes of which `/slow` waits until the test ends it, and how often the others were called. */
async function startSlow(t: TestContext) {
  let calls = 0;
  const { opened: released, open: release } = latch();
  // Else a test that has failed would end only with the limit of its requests.
  t.after(release);
  const counted = (path: string, data: string) =>
    get(path, async () => {
      calls += 1;
      return { data };
    });
  async function* endless() {
    for (;;)
      yield await new Promise<string[]>((resolve) => setImmediate(resolve, ['x'.repeat(65_536)]));
  }
  const own = await startPatient(t, [
    get('/slow', async () => (await released, { data: 'slow' })),
    get('/list', async () => ({ items: endless() })),
    counted('/a', 'a'),
    counted('/large', LARGE),
  ]);
  const running = (count: number) =>
    until(() => own.inFlight() === count, `${count} requests are in progress`);
  return { ...own, release, running, calls: () => calls };
}

test('at a limit, the client that reads a reply for longest is closed, no request in progress is', async (t) => {
  const { server: to, url: at, running, release, metrics } = await startSlow(t);
  // It has sent a reply before.
  const [again] = await connectIdle(to, 1, '127.0.0.2');
  again?.send(SLOW);
  const slow = connectMany(to, SHARE - 4, () => '127.0.0.2', SLOW);
  /** A client that does not read, once its reply has begun. */
  const begin = async (...requests: readonly string[]) => {
    const client = await connectTo(at, '127.0.0.2');
    client.socket.pause();
    client.send(...requests);
    await until(() => client.socket.bytesRead > 0, 'its reply has begun');
    return client;
  };
  // HTTP/1.0 has no chunks: its list has no known length either.
  const list = await begin(headOf(['GET /list HTTP/1.0', HOST]));
  // Its second request waits.
  const first = await begin(headOf(['GET /large HTTP/1.1', HOST]), GET);
  const later = await begin(headOf(['GET /large HTTP/1.1', HOST]));
  await running(SHARE + 1);
  assert.equal((await getFrom(at, '127.0.0.2')).status, 200);
  first.socket.resume();
  await first.closed();
  assert.match(metrics(), closed('network'));
  assert.ok([list, later].every(({ socket }) => socket.readable && socket.writable));
  release();
  const others = [again, ...slow];
  await until(() => others.every((one) => one?.said().includes('"slow"')), 'all replies');
  later.socket.resume();
  assert.equal((await later.answer()).json.length, LARGE.length);
  leave(list, later, ...others);
});

test('pipelined requests are processed one after the other, after the reply to the one before', async (t) => {
  const { url: at, calls, inFlight: running } = await startSlow(t);
  const client = await connectTo(at);
  client.socket.pause();
  client.send(headOf(['GET /large HTTP/1.1', HOST]).repeat(2), GET);
  await until(() => calls() > 0, 'the first is processed');
  const other = await exchange(at, ['GET /none HTTP/1.1', HOST]);
  assert.deepEqual([other.status, calls(), running()], [404, 1, 3], 'the others wait');
  client.socket.resume();
  for (const { length } of [LARGE, LARGE, 'a'])
    assert.equal((await client.answer()).json.length, length);
  client.leave();
});

test('64 pipelined requests of a connection may wait, and more in one packet close it alone', async (t) => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => warnings.push(warning);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const { url: at, calls, release, metrics, running } = await startSlow(t);
  const client = await connectTo(at);
  client.send(SLOW, GET.repeat(64));
  await running(65);
  client.send(GET.repeat(2_000));
  assert.equal(await client.closed(), '', 'no reply in the place of another');
  assert.equal((await exchange(at, ['GET /none HTTP/1.1', HOST])).status, 404);
  release();
  await running(0);
  assert.equal(calls(), 0, 'none was processed');
  assert.match(metrics(), closed('pipelining'));
  assert.deepEqual(warnings, []);
});

test('of all connections, 256 requests may wait, and one more closes its own', async (t) => {
  const { server: to, url: at, release, metrics, running } = await startSlow(t);
  const client = await connectTo(at);
  client.send(SLOW);
  const [early, ...others] = connectMany(to, 8, (n) => `127.0.0.${2 + (n % 4)}`, SLOW);
  early?.send(GET.repeat(31));
  for (const other of others) other.send(GET.repeat(32));
  await running(1 + 8 + 255);
  client.send(GET);
  await running(1 + 8 + 256);
  const late = connectInside(to, '127.0.0.2', SLOW + GET);
  await until(() => !late.isOpen(), 'it is closed');
  assert.match(metrics(), closed('pipelining'));
  early?.leave();
  release();
  for (const expected of ['slow', 'a']) assert.equal((await client.answer()).json, expected);
  await running(0);
  client.send(GET.repeat(64));
  for (let n = 0; n < 64; n += 1)
    assert.equal((await client.answer()).json, 'a', 'others may wait');
  leave(client, ...others);
});

test('of a network, 64 requests may wait; those of other networks wait beside them', async (t) => {
  const { server: to, url: at, release, metrics, running } = await startSlow(t);
  const many = connectMany(to, 2, () => '127.0.0.2', SLOW + GET.repeat(32));
  await running(2 + 64);
  const late = connectInside(to, '127.0.0.2', SLOW + GET);
  await until(() => !late.isOpen(), 'it is closed');
  assert.match(metrics(), closed('pipelining'));
  // The first request of the closed connection goes on.
  await running(3 + 64);
  const client = await connectTo(at);
  client.send(SLOW, GET);
  await running(4 + 65);
  release();
  for (const expected of ['slow', 'a']) assert.equal((await client.answer()).json, expected);
  await running(0);
  leave(client, ...many);
});

test('requests that wait are not processed when their client leaves', async (t) => {
  const { url: at, calls, release, running } = await startSlow(t);
  const client = await connectTo(at);
  client.send(SLOW, GET, GET);
  await running(3);
  client.leave();
  await running(1);
  release();
  await running(0);
  assert.equal(calls(), 0);
});
