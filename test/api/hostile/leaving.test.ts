/**
 * Clients that leave or stop reading: no partial work, and every slot is freed. Slow clients are
 * disconnected, and the others are served meanwhile.
 */
import assert from 'node:assert/strict';
import { describe, type TestContext } from 'node:test';
import type { Reply } from '../../../src/platform/http/route/route.ts';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import {
  get,
  post,
  slowGuard,
  startListener,
  startPatient,
  type TestListener,
} from '../../support/listener.ts';
import {
  connectTo,
  exchange,
  headOf,
  type RawClient,
  serverSockets,
} from '../../support/socket.ts';
import { test, until } from '../../support/until.ts';

const HOST = 'Host: gatehouse.test';
const BODY = '{"name":"posted"}';

/**
 * A listener with POST /a and GET /b, and how often a body has reached the handler of the first.
 */
async function startCounting(t: TestContext, guard?: Parameters<typeof post>[1]) {
  let handled = 0;
  const count = () => {
    handled += 1;
  };
  const own = await startListener(t, [
    post('/a', guard, count),
    get('/b', async () => ({ data: 1 })),
  ]);
  const untilOver = () => until(() => own.inFlight() === 0, 'the end of the exchange');
  return { ...own, untilOver, handled: () => handled };
}
const headWith = (framing: string) => headOf(['POST /a HTTP/1.1', HOST, framing]);
const LENGTH = `Content-Length: ${BODY.length}`;

test('a client that leaves during the check frees its slot; a whole body is handled once', async (t) => {
  for (const [framing, part, calls, logged] of [
    // Not 408, after its slot was held for a while.
    [LENGTH, BODY.slice(0, 3), 0, 0],
    ['Transfer-Encoding: chunked', `3\r\n${BODY.slice(0, 3)}\r\n`, 0, 0],
    [LENGTH, BODY, 1, 200],
  ] as const) {
    const { guard, entered, release } = slowGuard();
    const { url, requests, untilOver, handled } = await startCounting(t, guard);
    const client = await connectTo(url);
    // In one packet, so that all of it has arrived.
    client.send(headWith(framing) + part);
    await entered;
    client.socket.resetAndDestroy();
    await client.closed();
    // After another reply, the server has noticed that the first client left.
    assert.equal((await exchange(url, ['GET /b HTTP/1.1', HOST])).status, 200);
    release();
    await untilOver();
    const statuses = requests().map(({ status }) => status);
    assert.deepEqual([handled(), ...statuses], [calls, 200, logged]);
  }
});

test('a client that leaves before its body is complete reaches no handler', async (t) => {
  const { url, inFlight, requests, untilOver, handled } = await startCounting(t);
  const client = await connectTo(url);
  client.send(headWith(LENGTH), BODY.slice(0, 3));
  await until(() => inFlight() === 1, 'the exchange');
  client.socket.resetAndDestroy();
  await untilOver();
  const logged = requests().map(({ route, status }) => `${route} ${status}`);
  assert.deepEqual([handled(), ...logged], [0, 'POST /a 0']);
});

const ITEM = 'x'.repeat(64 * 1024);

/** A list without end that counts what has been asked of it. */
function endless(): {
  readonly reply: () => Promise<Reply<string[]>>;
  readonly seen: { pulled: number; ended: boolean };
} {
  const seen = { pulled: 0, ended: false };
  async function* items(): AsyncGenerator<string[]> {
    try {
      for (;;) {
        seen.pulled += 1;
        // As from a database: never in the same turn.
        await new Promise((resolve) => setImmediate(resolve));
        yield [ITEM];
      }
    } finally {
      seen.ended = true;
    }
  }
  return { reply: async () => ({ items: items() }), seen };
}

/** Settles when nothing has been pulled for a while of turns of the event loop. */
async function stalled(seen: { pulled: number }): Promise<void> {
  for (let quiet = 0, last = -1; quiet < 200; quiet = seen.pulled === last ? quiet + 1 : 0) {
    last = seen.pulled;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** A list that a client has begun to read and then does not, once nothing more is produced. */
async function stall(t: TestContext) {
  const { reply, seen } = endless();
  const { url, inFlight } = await startListener(t, [get('/list', reply)]);
  const sockets = serverSockets(t);
  const client = await connectTo(url);
  client.socket.pause();
  client.send(headOf(['GET /list HTTP/1.1', HOST]));
  await until(() => seen.pulled > 1, 'the first items');
  await stalled(seen);
  const untilOver = () => until(() => seen.ended && inFlight() === 0, 'the end of the exchange');
  return { client, socket: sockets[0] ?? assert.fail(), inFlight, untilOver };
}

test('a list is produced as fast as the client reads, and ends when it leaves', async (t) => {
  const { client, socket, inFlight, untilOver } = await stall(t);
  assert.ok(socket.writableLength < 4 * ITEM.length, `${socket.writableLength} bytes wait`);
  assert.equal(inFlight(), 1);
  client.leave();
  await untilOver();
});

test('a client that stops reading is disconnected after the inactivity timeout', async (t) => {
  const { socket, untilOver } = await stall(t);
  assert.ok(socket.timeout && socket.timeout <= 30_000, `the limit is ${socket.timeout}`);
  // The timeout is shortened for the test.
  socket.setTimeout(100);
  await untilOver();
});

for (const [what, size] of [
  ['more than the kernel takes for a client that does not read', 8 * 1024 * 1024],
  // From 16 KiB on, Node asks to wait. Too large for one packet.
  ["less than the limit of Node's buffer", 12 * 1024],
] as const) {
  test(`a reply that a slow client still receives is completed at the shutdown: ${what}`, async (t) => {
    let calls = 0;
    const { url, inFlight, close } = await startPatient(t, [
      get('/reply', async () => {
        calls += 1;
        return { data: 'x'.repeat(size) };
      }),
    ]);
    const sockets = serverSockets(t);
    const client = await connectTo(url);
    client.socket.pause();
    // Until the kernel has no room for another reply.
    for (let sent = 1; (sockets[0]?.writableLength ?? 0) === 0; sent += 1) {
      client.send(headOf(['GET /reply HTTP/1.1', HOST]));
      await until(() => calls === sent, 'the request is processed');
    }
    assert.equal(inFlight(), 1);
    // Neither this time nor a limit of the listener ends the connection before the test fails.
    const closed = close(600_000);
    client.socket.resume();
    for (let reply = 0; reply < calls; reply += 1)
      assert.equal((await client.answer()).json.length, size);
    assert.equal(await client.closed(), '');
    await closed;
  });
}

test('HEAD of a list produces only the first batch', async (t) => {
  const { reply, seen } = endless();
  const { url, inFlight } = await startListener(t, [get('/list', reply)]);
  assert.equal((await exchange(url, ['HEAD /list HTTP/1.1', HOST])).status, 200);
  await until(() => inFlight() === 0, 'the end of the exchange');
  assert.deepEqual([seen.pulled, seen.ended], [1, true]);
});

const failing = (before: number, error: Error) => async (): Promise<Reply<string[]>> => ({
  items: (async function* () {
    for (let n = 0; n < before; n += 1) yield ['item'];
    // Time for what has been written to leave the process.
    await new Promise((resolve) => setImmediate(resolve));
    throw error;
  })(),
});

test('a list that fails before its first item gets an error reply', async (t) => {
  const { url, inFlight } = await startListener(t, [
    get('/away', failing(0, new Unavailable('marked-detail', true))),
    get('/bug', failing(0, new TypeError('marked-detail'))),
  ]);
  for (const [path, status, code] of [
    ['/away', 503, 'unavailable'],
    ['/bug', 500, 'internal'],
  ] as const) {
    const answer = await exchange(url, [`GET ${path} HTTP/1.1`, HOST]);
    assert.deepEqual([answer.status, answer.json.error.code], [status, code]);
    assert.equal(answer.headers.get('content-length'), String(Buffer.byteLength(answer.body)));
    assert.ok(!answer.body.includes('marked-detail'));
  }
  await until(() => inFlight() === 0, 'the end of the exchanges');
});

test('a list that fails later breaks the connection', async (t) => {
  const { url, inFlight } = await startListener(t, [
    get('/away', failing(2, new Unavailable('marked-detail', true))),
  ]);
  const client = await connectTo(url);
  client.send(headOf(['GET /away HTTP/1.1', HOST]));
  const received = await client.closed();
  assert.match(received, /^HTTP\/1\.1 200 /);
  assert.ok(!received.includes('\r\n0\r\n'), 'no last chunk');
  assert.ok(!received.includes('marked-detail') && !received.includes('"error"'));
  await until(() => inFlight() === 0, 'the end of the exchange');
});

// --- Slow clients

const ROWS = [get('/a', async () => ({ data: 'a' })), post('/a')];
const GET = headOf(['GET /a HTTP/1.1', HOST]);

/** Sends the text, then more of it, every 100 ms until the server replies. @returns how much */
async function trickle(client: RawClient, text: string, more: string): Promise<number> {
  let sent = 0;
  client.send(text);
  const timer = setInterval(() => {
    sent += more.length;
    if (client.socket.writable) client.send(more);
  }, 100);
  try {
    const { status, json, headers } = await client.answer();
    assert.deepEqual([status, json.error.code], [408, 'request_timeout']);
    assert.equal(headers.get('connection'), 'close');
    await client.closed();
  } finally {
    clearInterval(timer);
    client.leave();
  }
  return sent;
}

/** Sends the head of a request with a body of 8,000 bytes. */
async function openRequest({ url, inFlight }: TestListener): Promise<RawClient> {
  const client = await connectTo(url);
  client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 8000']));
  await until(() => inFlight() === 1, 'the request');
  return client;
}

/** Shortens the limits for a head and a request, once what must not reach them is sent. */
function shortenLimits({ server }: TestListener): void {
  const { requestTimeout, headersTimeout, timeout, maxRequestsPerSocket } = server;
  assert.ok(requestTimeout > 0 && requestTimeout <= 30_000);
  assert.ok(headersTimeout > 0 && headersTimeout <= 10_000);
  assert.ok(timeout > 0 && timeout <= 30_000);
  assert.ok((maxRequestsPerSocket ?? 0) > 0);
  Object.assign(server, { headersTimeout: 300, requestTimeout: 300 });
}

describe('slow clients', { concurrency: true }, () => {
  test('a client that sends no or slow headers gets 408 and is disconnected', async (t) => {
    const own = await startListener(t, ROWS);
    const open = () => connectTo(own.url);
    const [silent, slow, idle] = await Promise.all([open(), open(), open()]);
    const getA = async () => {
      idle.send(GET);
      assert.equal((await idle.answer()).json, 'a');
    };
    await getA();
    shortenLimits(own);
    const [, answer] = await Promise.all([
      trickle(slow, `GET /a HTTP/1.1\r\n${HOST}\r\nX: `, 'x'),
      silent.answer(),
    ]);
    assert.equal(answer.status, 408);
    // Between two requests is not within one.
    await getA();
    for (const client of [silent, idle]) client.leave();
  });

  test('a body below 1 KiB per second gets 408, and its slot is freed', async (t) => {
    const own = await startListener(t, ROWS);
    // Only the least rate ends it.
    own.server.requestTimeout = 0;
    await trickle(await openRequest(own), '{', 'x');
    await until(() => own.inFlight() === 0, 'the end of the exchange');
  });

  test('a body that takes too long gets 408, even if the client sends on', async (t) => {
    const own = await startListener(t, ROWS);
    const client = await openRequest(own);
    shortenLimits(own);
    client.socket.allowHalfOpen = true;
    // Fast enough for the least rate.
    const sent = await trickle(client, '{', 'x'.repeat(150));
    assert.ok(sent < 8_000, 'before the body is complete');
    await until(() => own.inFlight() === 0, 'the end of the exchange');
  });
});
