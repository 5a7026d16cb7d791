/** Input that is not a request, or that could be read as two. */
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { after, afterEach, test } from 'node:test';
import { get, post, startListener } from '../../support/listener.ts';
import { connectTo, exchange, headOf, type RawAnswer } from '../../support/socket.ts';
import { latch, until } from '../../support/until.ts';
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

const NOT_REQUESTS: ReadonlyArray<
  readonly [what: string, bytes: string | Buffer, status: 400 | 431]
> = [
  ['words', 'what is this\r\n\r\n', 400],
  ['another protocol', Buffer.from('16030100a5010000a10303', 'hex'), 400],
  ['HTTP/2 without upgrade', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
  ['an unknown version', headOf(['GET /a/1 HTTP/9.9', HOST]), 400],
  ['an unknown method', headOf(['BREW /a/1 HTTP/1.1', HOST]), 400],
  ['a method named __proto__', headOf(['__proto__ /a/1 HTTP/1.1', HOST]), 400],
  ['a NUL in the path', headOf(['GET /a/\0 HTTP/1.1', HOST]), 400],
  ['a space in the path', headOf(['GET /a/1 2 HTTP/1.1', HOST]), 400],
  ['a NUL in a header', headOf(['GET /a/1 HTTP/1.1', HOST, 'X: a\0b']), 400],
  ['a space before a colon', headOf(['POST /a HTTP/1.1', HOST, 'Content-Length : 3']), 400],
  ['100 kB in a header', headOf(['GET /a/1 HTTP/1.1', HOST, `X: ${BIG}`]), 431],
  [
    '100 kB in a header of many',
    headOf([
      'GET /a/1 HTTP/1.1',
      HOST,
      ...Array.from({ length: 1_000 }, (_, n) => `X-${n}: ${'x'.repeat(100)}`),
    ]),
    431,
  ],
  ['100 kB in the request line', headOf([`GET /a/${BIG} HTTP/1.1`, HOST]), 431],
  [
    '100 kB in a credential',
    headOf(['GET /a/1 HTTP/1.1', HOST, `Authorization: Bearer ${BIG}`]),
    431,
  ],
];

const SMUGGLED = 'GET /a/smuggled HTTP/1.1\r\nHost: gatehouse.test\r\n\r\n';

/**
 * Where two readers might disagree about the length of the body, neither reading is taken (RFC
 * 9112, section 6.3).
 */
const AMBIGUOUS: ReadonlyArray<readonly [what: string, headers: readonly string[]]> = [
  ['Content-Length and Transfer-Encoding', ['Content-Length: 5', 'Transfer-Encoding: chunked']],
  ['Transfer-Encoding and Content-Length', ['Transfer-Encoding: chunked', 'Content-Length: 5']],
  ['two lengths', ['Content-Length: 5', 'Content-Length: 6']],
  ['the same length twice', ['Content-Length: 5', 'Content-Length: 5']],
  ['a list of lengths', ['Content-Length: 5, 5']],
  ['a length with a sign', ['Content-Length: +5']],
  ['a negative length', ['Content-Length: -5']],
  ['a hexadecimal length', ['Content-Length: 0x5']],
  ['a length beyond counting', ['Content-Length: 99999999999999999999999']],
  ['chunked, then something else', ['Transfer-Encoding: chunked, gzip']],
  ['something else, then chunked', ['Transfer-Encoding: gzip, chunked']],
  ['chunked twice', ['Transfer-Encoding: chunked, chunked']],
  ['a misspelt encoding', ['Transfer-Encoding: xchunked']],
  ['chunked in a strange place', ['Transfer-Encoding:\x0bchunked']],
];

for (const [what, bytes, status] of NOT_REQUESTS) {
  test(`not a request, ${what}: ${status} as a JSON error, and the connection ends`, async () => {
    const client = await connectTo(url);
    client.send(bytes);
    const answer = await client.answer();
    assertError(answer, status, status === 431 ? 'headers_too_large' : 'invalid_request', what);
    assert.equal(answer.headers.get('connection'), 'close');
    client.socket.end();
    assert.equal(await client.closed(), '', 'nothing follows');
  });
}

for (const [what, headers] of AMBIGUOUS) {
  test(`ambiguous length, ${what}: 400, and nothing after it is read as a request`, async () => {
    const before = created;
    const client = await connectTo(url);
    client.send(headOf(['POST /a HTTP/1.1', HOST, ...headers]), `0\r\n\r\n${SMUGGLED}`);
    assertError(await client.answer(), 400, 'invalid_request', what);
    client.socket.end();
    assert.equal(await client.closed(), '');
    assert.equal(created, before);
  });
}

const TARGETS = wordsOf(`
  //evil.example/a/1 http:// http:///a/1 * a/1 /a/% /a/%zz /a/%ff /a/%c0%af /a/1?b=% /a/1?%ff
`);

test('a target that is not a path gets a JSON error', async () => {
  for (const target of TARGETS) {
    assertError(
      await exchange(url, [`GET ${target} HTTP/1.1`, HOST]),
      400,
      target === 'a/1' ? 'invalid_request' : 'invalid_target',
      target,
    );
  }
});

test('non-ASCII bytes in the path or query do no harm', async () => {
  for (const bytes of [Buffer.from([0xff, 0xfe]), Buffer.from('é')]) {
    for (const before of ['GET /', 'GET /query?a=']) {
      const client = await connectTo(url);
      client.send(before, bytes, ` HTTP/1.1\r\n${HOST}\r\n\r\n`);
      assert.ok([200, 400, 404].includes((await client.answer()).status));
      client.leave();
    }
  }
});

test('an encoded NUL, slash or dot in a path is an ordinary value', async () => {
  for (const [segment, value] of [
    ['%00', '\0'],
    ['a%2Fb', 'a/b'],
    ['%2e%2e', '..'],
    ['__proto__', '__proto__'],
  ] as const) {
    assert.equal((await exchange(url, [`GET /a/${segment} HTTP/1.1`, HOST])).json, value);
  }
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
  [],
  [HOST, HOST],
  [HOST, 'Host: evil.example'],
  [HOST, 'hOST: gatehouse.test'],
  ['Host: a b'],
  ['Host: a/b'],
  ['Host: a, b'],
  ['Host: user@gatehouse.test'],
  ['Host: a:b'],
  ['Host: a:123456'],
  ['Host: [::1'],
  ['Host: ::1'],
  ['Host: a%zz'],
  ['Host: ä'],
  ['Host: http://a'],
];

test('no, two or a malformed Host gets 400', async () => {
  for (const hosts of INVALID_HOSTS) {
    const answer = await exchange(url, ['GET /a/1 HTTP/1.1', ...hosts]);
    assertError(answer, 400, 'invalid_request', hosts.join(' and '));
    assert.match(answer.json.error.message, /Host header/);
    assertError(
      await exchange(url, ['GET http://gatehouse.test/a/1 HTTP/1.1', ...hosts]),
      400,
      'invalid_request',
      'absolute',
    );
  }
  assertError(
    await exchange(url, ['GET http://user@gatehouse.test/a/1 HTTP/1.1', HOST]),
    400,
    'invalid_request',
    'a user in the target',
  );
  assertError(
    await exchange(url, ['GET /a/1 HTTP/1.0', HOST, HOST]),
    400,
    'invalid_request',
    'two in HTTP/1.0',
  );
});

test('a name, an address or a port is a valid Host', async () => {
  for (const host of [
    'a',
    'A.Example:8080',
    '127.0.0.1:3000',
    '[2001:db8::1]',
    '[::1]:3000',
    'a:',
    'a_b.example',
    'xn--a.example',
    '',
  ]) {
    assert.equal((await exchange(url, ['GET /a/1 HTTP/1.1', `Host: ${host}`])).json, '1', host);
  }
});

test('an unknown expectation is ignored', async () => {
  assert.equal(
    (await exchange(url, ['GET /a/1 HTTP/1.1', HOST, 'Expect: a-miracle'])).json,
    '1',
    'RFC 9110, 10.1.1: may be ignored',
  );
});

test('an Upgrade header is ignored', async () => {
  const answer = await exchange(url, [
    'GET /a/1 HTTP/1.1',
    HOST,
    'Connection: Upgrade',
    'Upgrade: h2c',
  ]);
  assert.deepEqual([answer.status, answer.json], [200, '1']);
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

test('pipelined requests are answered in order', async () => {
  const client = await connectTo(url);
  const body = '{"name":"posted"}';
  client.send(
    headOf(['GET /slow HTTP/1.1', HOST]),
    headOf(['GET /a/1 HTTP/1.1', HOST]),
    headOf(['POST /a HTTP/1.1', HOST, `Content-Length: ${body.length}`]) + body,
    headOf(['HEAD /a/22 HTTP/1.1', HOST]),
    headOf(['GET /none HTTP/1.1', HOST]),
    headOf(['GET /a/3 HTTP/1.1', HOST, 'Connection: close']),
  );
  const seen = [];
  for (const to of ['GET', 'GET', 'GET', 'HEAD', 'GET', 'GET'] as const) {
    const { status, json } = await client.answer(to);
    seen.push(status === 200 ? json : status);
  }
  assert.deepEqual(seen, ['slow', '1', 'posted', undefined, 404, '3']);
  assert.equal(await client.closed(), '');
});

test('garbage after a request does not replace its reply', async () => {
  const client = await connectTo(url);
  client.send(headOf(['GET /slow HTTP/1.1', HOST]), 'garbage\r\n\r\n');
  client.socket.end();
  const [first] = await Promise.allSettled([client.answer()]);
  // The connection may break, but no other reply may come first.
  if (first.status === 'fulfilled')
    assert.deepEqual([first.value.status, first.value.json], [200, 'slow']);
});

test('a broken chunk after a running request does not replace its reply', async () => {
  const client = await connectTo(url);
  client.send(
    headOf(['GET /slow HTTP/1.1', HOST]),
    headOf(['POST /a HTTP/1.1', HOST, 'Transfer-Encoding: chunked']),
    'zz\r\n',
  );
  const [first] = await Promise.allSettled([client.answer()]);
  if (first.status === 'fulfilled')
    assert.deepEqual([first.value.status, first.value.json], [200, 'slow']);
  client.leave();
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
const LAST = headOf(['GET /slow HTTP/1.1', HOST, 'Connection: close']);

for (const [what, text, replies] of [
  ['a NUL behind a request', `${REQUEST}\0`, 1],
  ['garbage behind two requests', `${REQUEST}${REQUEST}\0\0garbage`, 2],
  ['a space behind the last request', `${LAST} `, 1],
  ['a request behind the last request', `${LAST}${REQUEST}`, 1],
] as const) {
  test(`${what}: ${replies} replies, then the end`, async () => {
    const client = await connectTo(url);
    client.send(text);
    for (let count = 0; count < replies; count += 1) {
      const { status, json } = await client.answer();
      assert.deepEqual([status, json], [200, 'slow']);
    }
    assert.equal(await client.closed(), '');
  });
}
