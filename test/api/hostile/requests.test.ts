/**
 * Input that is not a request, or that could be read as two. CONNECT asks for a tunnel and TRACE
 * for an echo: no service offers them, and neither must affect other clients. Nor must a connection
 * that cannot be accepted.
 */
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { after, afterEach } from 'node:test';
import { get, post, slowGuard, startListener } from '../../support/listener.ts';
import { connectTo, exchange, headOf, type RawAnswer } from '../../support/socket.ts';
import { latch, test, until } from '../../support/until.ts';
import { wordsOf } from '../../support/words.ts';

let created = 0;
const { opened: held, open: release } = latch();
const { url, inFlight } = await startListener({ after }, [
  get('/a/{id}', async ({ request }) => ({ data: request.parameters.id })),
  get('/query', async ({ request }) => ({ data: Object.fromEntries(request.query) })),
  get('/slow', async () => {
    await new Promise((resolve) => setImmediate(resolve));
    return { data: 'slow' };
  }),
  get('/held', async () => ({
    items: (async function* () {
      yield ['one'];
      await held;
      yield ['two'];
    })(),
  })),
  post('/a', undefined, () => {
    created += 1;
  }),
]);

/** What a test has begun must not go on behind it. */
afterEach(() => until(() => inFlight() === 0, 'no request is in flight'));

const HOST = 'Host: gatehouse.test';

/** The common error schema, whichever code found the error. */
function assertError(answer: RawAnswer, status: number, code: string, what: string): void {
  assert.equal(answer.status, status, what);
  assert.deepEqual(Object.keys(answer.json), ['data', 'error', '_meta'], what);
  assert.equal(answer.json.data, null, what);
  assert.equal(answer.json.error.code, code, what);
  assert.equal(answer.headers.get('x-request-id'), answer.json._meta.request_id, what);
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8', what);
  assert.equal(answer.headers.get('cache-control'), 'no-store', what);
  assert.equal(answer.headers.get('x-content-type-options'), 'nosniff', what);
  assert.ok(!answer.headers.has('server') && !answer.headers.has('x-powered-by'), what);
}

const BIG = 'x'.repeat(100 * 1024);
const MANY = Array.from({ length: 1_000 }, (_, n) => `X-${n}: ${'x'.repeat(100)}`);
const request = (line: string, ...headers: readonly string[]) => headOf([line, HOST, ...headers]);

const NOT_REQUESTS: ReadonlyArray<readonly [what: string, bytes: string | Buffer]> = [
  ['words', 'what is this\r\n\r\n'],
  ['another protocol', Buffer.from('16030100a5010000a10303', 'hex')],
  ['HTTP/2 without upgrade', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
  ['an unknown version', request('GET /a/1 HTTP/9.9')],
  ['an unknown method', request('BREW /a/1 HTTP/1.1')],
  ['a method named __proto__', request('__proto__ /a/1 HTTP/1.1')],
  ['a NUL in the path', request('GET /a/\0 HTTP/1.1')],
  ['a space in the path', request('GET /a/1 2 HTTP/1.1')],
  ['a NUL in a header', request('GET /a/1 HTTP/1.1', 'X: a\0b')],
  ['a space before a colon', request('POST /a HTTP/1.1', 'Content-Length : 3')],
];
const TOO_LARGE: ReadonlyArray<readonly [what: string, bytes: string]> = [
  ['100 kB in a header', request('GET /a/1 HTTP/1.1', `X: ${BIG}`)],
  ['100 kB in many headers', request('GET /a/1 HTTP/1.1', ...MANY)],
  ['100 kB in the request line', request(`GET /a/${BIG} HTTP/1.1`)],
];

const SMUGGLED = 'GET /a/smuggled HTTP/1.1\r\nHost: gatehouse.test\r\n\r\n';

/**
 * Where two readers might disagree about the length of the body, neither reading is taken (RFC
 * 9112, section 6.3).
 */
const AMBIGUOUS: ReadonlyArray<readonly string[]> = [
  ['Content-Length: 5', 'Transfer-Encoding: chunked'],
  ['Transfer-Encoding: chunked', 'Content-Length: 5'],
  ['Content-Length: 5', 'Content-Length: 6'],
  ['Content-Length: 5', 'Content-Length: 5'],
  ['Content-Length: 5, 5'],
  ['Content-Length: +5'],
  ['Content-Length: -5'],
  ['Content-Length: 0x5'],
  ['Content-Length: 99999999999999999999999'],
  ['Transfer-Encoding: chunked, gzip'],
  ['Transfer-Encoding: gzip, chunked'],
  ['Transfer-Encoding: chunked, chunked'],
  ['Transfer-Encoding: xchunked'],
  ['Transfer-Encoding:\x0bchunked'],
];

/** One error reply, and nothing behind it. */
async function assertRefused(bytes: string | Buffer, status: number, code: string, what: string) {
  const client = await connectTo(url);
  client.send(bytes);
  const answer = await client.answer();
  assertError(answer, status, code, what);
  assert.equal(answer.headers.get('connection'), 'close', what);
  client.socket.end();
  assert.equal(await client.closed(), '', what);
}

test('what is no request gets one JSON error, and the connection ends', async () => {
  for (const [what, bytes] of NOT_REQUESTS)
    await assertRefused(bytes, 400, 'invalid_request', what);
  for (const [what, bytes] of TOO_LARGE) await assertRefused(bytes, 431, 'headers_too_large', what);
});

test('with an ambiguous length, nothing behind the head is read as a request', async () => {
  for (const headers of AMBIGUOUS) {
    const bytes = `${request('POST /a HTTP/1.1', ...headers)}0\r\n\r\n${SMUGGLED}`;
    await assertRefused(bytes, 400, 'invalid_request', headers.join(' and '));
  }
  assert.equal(created, 0);
});

test('an absolute target is accepted, whatever the Host header names', async () => {
  for (const target of [
    'http://evil.example/a/1',
    'https://gatehouse.test:8443/a/1?',
    'HTTP://[::1]:80/a/1',
  ]) {
    assert.equal((await exchange(url, [`GET ${target} HTTP/1.1`, HOST])).json, '1', target);
  }
});

const INVALID_HOSTS = [
  ...[[], [HOST, HOST], [HOST, 'Host: evil.example'], [HOST, 'hOST: gatehouse.test']],
  ...['a b', 'a/b', 'a, b', 'user@gatehouse.test', 'a:b', 'a:123456'].map((one) => [
    `Host: ${one}`,
  ]),
  ...['[::1', '::1', 'a%zz', 'ä', 'http://a'].map((one) => [`Host: ${one}`]),
];

test('no, two or a malformed Host gets 400', async () => {
  const wrong = INVALID_HOSTS.flatMap((hosts) => [
    ['GET /a/1 HTTP/1.1', ...hosts],
    ['GET http://gatehouse.test/a/1 HTTP/1.1', ...hosts],
  ]);
  const userInTarget = ['GET http://user@gatehouse.test/a/1 HTTP/1.1', HOST];
  for (const lines of [...wrong, userInTarget, ['GET /a/1 HTTP/1.0', HOST, HOST]]) {
    const answer = await exchange(url, lines);
    assertError(answer, 400, 'invalid_request', lines.join());
    assert.match(answer.json.error.message, /Host header/);
  }
});

test('a name, an address or a port is a valid Host', async () => {
  for (const host of wordsOf('A.Example:8080 127.0.0.1:3000 [2001:db8::1] [::1]:3000 a: a_b.c'))
    assert.equal((await exchange(url, ['GET /a/1 HTTP/1.1', `Host: ${host}`])).json, '1', host);
  assert.equal((await exchange(url, ['GET /a/1 HTTP/1.1', 'Host: '])).json, '1', 'none');
});

test('an unknown expectation and an upgrade are ignored', async () => {
  // RFC 9110, 10.1.1 and 7.8.
  for (const headers of [['Expect: a-miracle'], ['Connection: Upgrade', 'Upgrade: h2c']])
    assert.equal((await exchange(url, ['GET /a/1 HTTP/1.1', HOST, ...headers])).json, '1');
});

test("the client's address is found after any number of headers", async (t) => {
  const proxies = new BlockList();
  proxies.addAddress('127.0.0.1');
  const own = await startListener(
    t,
    [get('/a', async ({ request }) => ({ data: request.address }))],
    proxies,
  );
  const many = Array.from({ length: 1_100 }, () => 'A:');
  const address = 'X-Forwarded-For: 198.51.100.7';
  const request = ['GET /a HTTP/1.1', 'Host: a', ...many, address];
  assert.equal((await exchange(own.url, request)).json, '198.51.100.7');
  const tooMany = Array.from({ length: 5_000 }, () => 'A:bcdefgh');
  const refused = await exchange(own.url, ['GET /a HTTP/1.1', 'Host: a', ...tooMany, address]);
  assert.equal(refused.status, 431);
});

test('garbage after a request does not end up inside its reply', async () => {
  const client = await connectTo(url);
  client.send(headOf(['GET /held HTTP/1.1', HOST]));
  while (!client.pending().includes('"one"'))
    await new Promise((resolve) => client.socket.once('data', resolve));
  client.send('garbage\r\n\r\n');
  // By the time that another connection has been served, the garbage has been read.
  assert.equal((await exchange(url, ['GET /a/1 HTTP/1.1', HOST])).status, 200);
  release();
  client.socket.end();
  // The reply may be complete or break off, but nothing else may be in it.
  assert.doesNotMatch(await client.closed(), /HTTP\/1\.1 4/);
});

test('a wrong chunk after an early reply causes no second reply', async () => {
  const client = await connectTo(url);
  client.send(headOf(['POST /none HTTP/1.1', HOST, 'Transfer-Encoding: chunked']));
  assert.equal((await client.answer()).status, 404);
  client.send('not a chunk\r\n');
  client.socket.end();
  assert.equal(await client.closed(), '');
});

const REQUEST = headOf(['GET /slow HTTP/1.1', HOST]);
const BROKEN = `${request('POST /a HTTP/1.1', 'Transfer-Encoding: chunked')}zz\r\n`;
const LAST = headOf(['GET /slow HTTP/1.1', HOST, 'Connection: close']);

for (const [what, text, replies] of [
  ['a NUL behind a request', `${REQUEST}\0`, 1],
  ['garbage behind two requests', `${REQUEST}${REQUEST}\0\0garbage`, 2],
  ['a broken chunk behind a request', `${REQUEST}${BROKEN}`, 0],
  ['a space behind the last request', `${LAST} `, 1],
  ['a request behind the last request', `${LAST}${REQUEST}`, 1],
] as const) {
  test(`${what}: replies: ${replies}, then the end`, async () => {
    const client = await connectTo(url);
    client.send(text);
    for (let count = 0; count < replies; count += 1) {
      const { status, json } = await client.answer();
      assert.deepEqual([status, json], [200, 'slow']);
    }
    assert.equal(await client.closed(), '');
  });
}

// --- CONNECT, TRACE, and connections that cannot be accepted

const CONNECT = 'CONNECT gatehouse.test:1 HTTP/1.1\r\nHost: gatehouse.test\r\n\r\n';
const rows = [get('/a', async () => ({ data: 'a' }))];
const getA = (to: string) => exchange(to, ['GET /a HTTP/1.1', HOST]);

test('CONNECT followed by a reset does not harm the process', async (t) => {
  const { url } = await startListener(t, rows);
  for (let turns = 0; turns < 30; turns += 1) {
    const { socket } = await connectTo(url);
    await new Promise((resolve) => socket.write(CONNECT, resolve));
    for (let left = turns; left > 0; left -= 1) await new Promise(setImmediate);
    socket.resetAndDestroy();
    assert.equal((await getA(url)).status, 200);
  }
});

test('CONNECT gets 400, and a half-open connection does not delay the shutdown', async (t) => {
  const { url, requests, close } = await startListener(t, rows);
  const client = await connectTo(url);
  client.socket.allowHalfOpen = true;
  client.send(CONNECT);
  assert.equal((await client.answer()).status, 400);
  assert.deepEqual(
    requests().map(({ route, status }) => [route, status]),
    [['(unreadable)', 400]],
  );
  // With no grace at all: it would wait for this client for ever.
  await close(0);
  client.leave();
});

test('CONNECT behind a request without a reply is not answered in its place', async (t) => {
  const { guard, entered, release } = slowGuard();
  const { url } = await startListener(t, [post('/slow', guard)]);
  const client = await connectTo(url);
  client.send('POST /slow HTTP/1.1\r\nHost: gatehouse.test\r\nContent-Length: 2\r\n\r\n{}');
  await entered;
  client.send(CONNECT);
  assert.equal(await client.closed(), '');
  release();
});

test('TRACE gets 405 and no echo of its headers (ASVS 13.4.4)', async (t) => {
  const { url } = await startListener(t, rows);
  const { status, body } = await exchange(url, ['TRACE /a HTTP/1.1', HOST, 'X-Secret: 4b1d']);
  assert.equal(status, 405);
  assert.doesNotMatch(body, /4b1d/);
});

test('a connection that cannot be accepted is logged, and the next one is served', async (t) => {
  const { server, url, lines } = await startListener(t, rows);
  // As Node reports it if no file is left, which depends on the limits of the machine.
  server.emit('error', Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' }));
  assert.equal((await getA(url)).status, 200);
  const [line] = lines().filter(({ level }) => level === 'error');
  assert.deepEqual([line?.message, line?.code], ['a connection was not accepted', 'EMFILE']);
});
