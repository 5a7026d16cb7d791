/** More bodies and connections than the process accepts. */
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { after, type TestContext } from 'node:test';
import { stopClock } from '../../support/clock.ts';
import { bearerGuard, get, post, startPatient } from '../../support/listener.ts';
import { connectTo, exchange, headOf, type RawClient } from '../../support/socket.ts';
import { latch, test, until } from '../../support/until.ts';

const HOST = 'Host: gatehouse.test';
const MAX_BODIES = 1_024;

const { url, inFlight } = await startPatient({ after }, [
  get('/a', async () => ({ data: 'a' })),
  post('/a'),
  post('/large', bearerGuard),
]);

const BODY = '{"name":"posted"}';
/** In chunks, because a body of known length that arrives with its head is read at once. */
const chunked = (body: string) => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
const CHUNKED = chunked(BODY);
const TOO_MANY = 'Too many request bodies';
const postFrom = (from: string) =>
  exchange(url, ['POST /a HTTP/1.1', HOST, 'Transfer-Encoding: chunked'], CHUNKED, from);

async function leave(clients: readonly RawClient[]) {
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'nothing is being received');
}

/** Clients that each hold back the last byte of a body. None is too slow, for the clock stands. */
async function holdBodies(
  t: TestContext,
  count: number,
  from: (n: number) => string,
): Promise<RawClient[]> {
  stopClock(t);
  const hold = async (n: number) => {
    const client = await connectTo(url, from(n));
    // Small, because large ones that wait for a slow check would pause their network.
    client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 1000']), ' '.repeat(999));
    return client;
  };
  return Promise.all(Array.from({ length: count }, (_, n) => hold(n)));
}

test('one network with 1,024 unfinished bodies does not block the bodies of another', async (t) => {
  const clients = await holdBodies(t, MAX_BODIES, () => '127.0.0.2');
  await until(
    () => clients.some((client) => client.pending().includes(' 503 ')),
    'its share is used up',
  );
  const own = await postFrom('127.0.0.2');
  const other = await postFrom('127.0.0.3');
  assert.deepEqual([own.status, own.json.error.code, other.status], [503, 'overloaded', 200]);
  assert.match(own.json.error.message, /of your network/);
  await leave(clients);
});

test('beyond 1,024 bodies: 503 for another body, 200 for a request without one', async (t) => {
  const clients = await holdBodies(t, MAX_BODIES, (n) => `127.0.0.${2 + (n % 4)}`);
  await until(() => inFlight() === MAX_BODIES, 'all bodies are being received');
  const refused = await postFrom('127.0.0.9');
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  assert.equal((await exchange(url, ['GET /a HTTP/1.1', HOST])).status, 200);
  const complete = await exchange(
    url,
    ['POST /a HTTP/1.1', HOST, `Content-Length: ${BODY.length}`],
    BODY,
    '127.0.0.9',
  );
  assert.equal(complete.status, 200, 'a body that arrives with its head takes no slot');
  await leave(clients);
  assert.equal((await postFrom('127.0.0.9')).status, 200);
});

test('the bytes of all bodies together are bounded, and are free again afterwards', async (t) => {
  stopClock(t);
  const large = 60_000;
  const head = headOf([
    'POST /large HTTP/1.1',
    HOST,
    'Authorization: Bearer good',
    `Content-Length: ${large}`,
  ]);
  const clients = await Promise.all(
    Array.from({ length: 400 }, (_, n) => connectTo(url, `127.0.0.${2 + (n % 4)}`)),
  );
  for (const client of clients) client.send(head, ' '.repeat(large - 1));
  await until(
    // Not just 503: a reply is that, too, when it has taken too long.
    () => inFlight() > 0 && clients.some((client) => client.pending().includes(TOO_MANY)),
    'some are refused',
  );
  await leave(clients);
  const fits = await exchange(
    url,
    ['POST /large HTTP/1.1', HOST, 'Authorization: Bearer good', 'Transfer-Encoding: chunked'],
    chunked(BODY.padEnd(large)),
  );
  assert.equal(fits.status, 200);
});

const GET = headOf(['GET /a HTTP/1.1', HOST]);
const MAX_CONNECTIONS = 4_096;
const SHARE = MAX_CONNECTIONS / 4;
/** The metrics, once the limit has closed so many connections. */
const closed = (limit: string, count: number) =>
  new RegExp(
    `^gatehouse_connections_closed_total\\{service="test",limit="${limit}"\\} ${count}$`,
    'm',
  );
const CLOSED_OF_NETWORK = closed('network', 1);
const CLOSED_OF_PIPELINE = closed('pipelining', 1);

async function getAnswer(client: RawClient): Promise<void> {
  client.send(GET);
  await client.answer();
}

/**
 * Connections in the order in which they were opened.
 * @param begin what each does at once: a connection without a request is closed after ten seconds
 */
async function holdConnections(
  to: string,
  count: number,
  from: string,
  begin: (client: RawClient) => Promise<void> = getAnswer,
): Promise<RawClient[]> {
  const clients = [];
  // In waves, because the kernel's accept queue is limited.
  for (let wave = 0; wave < count; wave += 128) {
    const opened = await Promise.all(
      Array.from({ length: Math.min(128, count - wave) }, () => connectTo(to, from)),
    );
    // The first wave in turn, so that it is known which has been idle for longest.
    if (wave === 0) for (const client of opened) await begin(client);
    else await Promise.all(opened.map(begin));
    clients.push(...opened);
  }
  return clients;
}

const isOpen = (client: RawClient | undefined) =>
  client?.socket.readable === true && client.socket.writable;
const getFrom = (to: string, from: string) => exchange(to, ['GET /a HTTP/1.1', HOST], '', from);

test('4,096 idle or silent connections of four networks do not shut out a fifth', async (t) => {
  const own = await startPatient(t, [get('/a', async () => ({ data: 'a' }))]);
  const hold = (count: number, last: number) =>
    holdConnections(own.url, count, `127.0.0.${last}`, async () => {});
  const clients = await holdConnections(own.url, 2, '127.0.0.2');
  clients.push(...(await hold(SHARE - 2, 2)));
  for (const last of [3, 4, 5]) clients.push(...(await hold(SHARE, last)));
  const [first, second, third] = clients;
  // The first connection is no longer the one that has been idle for longest.
  first?.send(GET);
  assert.equal((await first?.answer())?.status, 200);
  const other = await connectTo(own.url, '127.0.0.6');
  await getAnswer(other);
  await second?.closed();
  assert.match(own.metrics(), closed('connections', 1));
  assert.equal(clients.filter(isOpen).length, MAX_CONNECTIONS - 1);
  // The third has not sent a byte.
  assert.equal((await getFrom(own.url, '127.0.0.6')).status, 200);
  await third?.closed();
  assert.equal(clients.filter(isOpen).length, MAX_CONNECTIONS - 2);
  assert.match(own.metrics(), closed('connections', 2));
  for (const client of [...clients, other]) client.leave();
});

test('one network holds a quarter of the connections, and its own longest idle one is closed', async (t) => {
  const own = await startPatient(t, [get('/a', async () => ({ data: 'a' }))]);
  const [other] = await holdConnections(own.url, 1, '127.0.0.3');
  const clients = await holdConnections(own.url, SHARE, '127.0.0.2');
  assert.equal((await getFrom(own.url, '127.0.0.2')).status, 200);
  await clients[0]?.closed();
  assert.deepEqual([clients[1], clients.at(-1), other].map(isOpen), [true, true, true]);
  assert.match(own.metrics(), CLOSED_OF_NETWORK);
  for (const client of [...clients, other]) client?.leave();
  let open = clients.length;
  await until(() => {
    own.server.getConnections((_error, count) => {
      open = count;
    });
    return open === 0;
  }, 'all have left');
  const [again] = await holdConnections(own.url, 1, '127.0.0.2');
  assert.match(own.metrics(), CLOSED_OF_NETWORK);
  again?.leave();
});

test('at a limit, the client that reads a reply for longest is closed, no request in progress is', async (t) => {
  const { opened: released, open: release } = latch();
  // More than the kernel takes for a client that does not read.
  const large = 'x'.repeat(8 * 1024 * 1024);
  const endless = async function* () {
    for (;;)
      yield await new Promise<string[]>((resolve) =>
        setImmediate(resolve, ['x'.repeat(64 * 1024)]),
      );
  };
  const rows = [
    get('/a', async () => ({ data: 'a' })),
    get('/slow', async () => (await released, { data: 'slow' })),
    get('/medium', async () => ({ data: large.slice(0, 256 * 1024) })),
    get('/large', async () => ({ data: large })),
    get('/list', async () => ({ items: endless() })),
  ];
  const own = await startPatient(t, rows);
  // It has sent a reply before.
  const [again] = await holdConnections(own.url, 1, '127.0.0.2', async (client) => {
    client.send(headOf(['GET /medium HTTP/1.1', HOST]));
    await client.answer();
    client.send(headOf(['GET /slow HTTP/1.1', HOST]));
  });
  assert.ok(again);
  const others = await holdConnections(own.url, SHARE - 4, '127.0.0.2', async (client) =>
    client.send(headOf(['GET /slow HTTP/1.1', HOST])),
  );
  /** A client that does not read, once its reply has begun. */
  const begin = async (...requests: readonly string[]) => {
    const client = await connectTo(own.url, '127.0.0.2');
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
  await until(() => own.inFlight() === SHARE + 1, 'all are in progress');
  assert.equal((await getFrom(own.url, '127.0.0.2')).status, 200);
  assert.ok([list, later, again, ...others].every(isOpen));
  first.socket.resume();
  await first.closed();
  assert.match(own.metrics(), CLOSED_OF_NETWORK);
  release();
  for (const other of [again, ...others]) assert.equal((await other.answer()).json, 'slow');
  later.socket.resume();
  assert.equal((await later.answer()).json.length, large.length);
  for (const client of [list, later, again, ...others]) client.leave();
});

test('the share of one network does not apply to a trusted proxy', async (t) => {
  const proxies = new BlockList();
  proxies.addAddress('127.0.0.2');
  const own = await startPatient(t, [get('/a', async () => ({ data: 'a' }))], proxies);
  const clients = await holdConnections(own.url, SHARE + 1, '127.0.0.2');
  assert.equal((await getFrom(own.url, '127.0.0.3')).status, 200);
  assert.ok(clients.every(isOpen));
  for (const client of clients) client.leave();
});

test('pipelined requests are processed one after the other, after the reply to the one before', async (t) => {
  let calls = 0;
  // More than the kernel takes for a client that does not read.
  const large = 'x'.repeat(8 * 1024 * 1024);
  const own = await startPatient(t, [
    get('/a', async () => ({ data: 'a' })),
    get('/large', async () => {
      calls += 1;
      return { data: large };
    }),
  ]);
  const client = await connectTo(own.url);
  client.socket.pause();
  client.send(headOf(['GET /large HTTP/1.1', HOST]).repeat(2), GET);
  await until(() => calls > 0, 'the first is processed');
  for (let other = 0; other < 10; other += 1)
    assert.equal((await getFrom(own.url, '127.0.0.3')).status, 200);
  assert.deepEqual([calls, own.inFlight()], [1, 3], 'the others wait');
  client.socket.resume();
  const answers = [await client.answer(), await client.answer(), await client.answer()];
  assert.deepEqual(
    answers.map(({ json }) => json.length),
    [large.length, large.length, 1],
  );
  client.leave();
});

/** A route whose handler waits until the test ends it, and how often the other one was called. */
async function startSlow(t: TestContext) {
  let calls = 0;
  const { opened: released, open: release } = latch();
  const slow = get('/slow', async () => (await released, { data: 'slow' }));
  const own = await startPatient(t, [
    slow,
    get('/a', async () => {
      calls += 1;
      return { data: 'a' };
    }),
  ]);
  const client = await connectTo(own.url);
  client.send(headOf(['GET /slow HTTP/1.1', HOST]));
  return { ...own, client, release, calls: () => calls };
}

test('64 pipelined requests of a connection may wait, and one more closes it', async (t) => {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error) => warnings.push(message);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const { client, calls, release, metrics, inFlight: running, url: own } = await startSlow(t);
  client.send(GET.repeat(64));
  await until(() => running() === 65, 'all have arrived');
  assert.equal((await getFrom(own, '127.0.0.3')).status, 200);
  const before = calls();
  client.send(GET);
  assert.equal(await client.closed(), '', 'no reply in the place of another');
  release();
  await until(() => running() === 0, 'none waits any more');
  assert.equal(calls(), before, 'none was processed');
  assert.match(metrics(), CLOSED_OF_PIPELINE);
  assert.deepEqual(warnings, []);
});

test('thousands of pipelined requests in one packet close only their connection', async (t) => {
  const { client, calls, release, metrics, inFlight: running, url: own } = await startSlow(t);
  client.send(GET.repeat(2_000));
  assert.equal(await client.closed(), '');
  await until(() => running() === 1, 'none waits any more');
  assert.equal(calls(), 0, 'none was processed');
  assert.match(metrics(), CLOSED_OF_PIPELINE);
  assert.equal((await getFrom(own, '127.0.0.2')).status, 200);
  release();
  await until(() => running() === 0, 'the first one ends');
});

test('of all connections, 256 requests may wait, and one more closes its own', async (t) => {
  const { client, release, metrics, inFlight: running, url: own } = await startSlow(t);
  const slow = headOf(['GET /slow HTTP/1.1', HOST]);
  const others = await Promise.all(
    Array.from({ length: 9 }, (_, n) => connectTo(own, `127.0.0.${2 + (n % 4)}`)),
  );
  const late = others.at(-1);
  const early = others.slice(0, 8);
  for (const other of early) other.send(slow, GET.repeat(other === early[0] ? 31 : 32));
  await until(() => running() === 1 + 8 + 255, '255 requests wait');
  client.send(GET);
  await until(() => running() === 1 + 8 + 256, '256 requests wait');
  late?.send(slow, GET);
  assert.equal(await late?.closed(), '');
  assert.match(metrics(), CLOSED_OF_PIPELINE);
  early[0]?.leave();
  release();
  for (const to of ['slow', 'a']) assert.equal((await client.answer()).json, to);
  await until(() => running() === 0, 'none waits any more');
  client.send(GET.repeat(64));
  for (let n = 0; n < 64; n += 1)
    assert.equal((await client.answer()).json, 'a', 'others may wait again');
  for (const other of [client, ...others]) other.leave();
});

test('of a network, 64 requests may wait; those of other networks wait beside them', async (t) => {
  const { client, release, metrics, inFlight: running, url: own } = await startSlow(t);
  const slow = headOf(['GET /slow HTTP/1.1', HOST]);
  const many = await Promise.all(Array.from({ length: 2 }, () => connectTo(own, '127.0.0.2')));
  for (const one of many) one.send(slow, GET.repeat(32));
  await until(() => running() === 1 + 2 + 64, '64 requests of one network wait');
  const late = await connectTo(own, '127.0.0.2');
  late.send(slow, GET);
  assert.equal(await late.closed(), '');
  assert.match(metrics(), CLOSED_OF_PIPELINE);
  client.send(GET);
  await until(() => running() === 1 + 2 + 65, 'another network waits as well');
  release();
  for (const to of ['slow', 'a']) assert.equal((await client.answer()).json, to);
  await until(() => running() === 0, 'none waits any more');
  for (const one of [client, ...many]) one.leave();
});

test('requests that wait are not processed when their client leaves', async (t) => {
  const own = await startSlow(t);
  own.client.send(GET, GET);
  await until(() => own.inFlight() === 3, 'all have arrived');
  own.client.leave();
  await until(() => own.inFlight() === 1, 'the waiting ones end');
  own.release();
  await until(() => own.inFlight() === 0, 'the first one ends');
  assert.equal(own.calls(), 0);
});
