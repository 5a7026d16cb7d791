/** Replies that are sent before the body is read, and what all replies have in common. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { bearerGuard, get, MAX_BODY_BYTES, post, startListener } from '../../support/listener.ts';
import { connectTo, exchange, headOf, type RawAnswer } from '../../support/socket.ts';
import { until } from '../../support/until.ts';

const { url, inFlight } = await startListener({ after }, [
  get('/a', async () => ({ data: 'a' })),
  get('/list', async () => ({
    items: (async function* () {
      yield ['a'];
      yield ['b'];
    })(),
  })),
  get('/text', async () => ({ text: 'a 1\n', contentType: 'text/plain; charset=utf-8' })),
  get('/bug', async () => {
    throw new TypeError('marked-detail');
  }),
  get('/away', async () => {
    throw new Unavailable('marked-detail', true);
  }),
  post('/a', bearerGuard),
]);

const HOST = 'Host: gatehouse.test';
const GOOD = 'Authorization: Bearer good';
const BODY = '{"name":"posted"}';
const length = (size: number) => `Content-Length: ${size}`;
const FIVE_MB = 5_000_000;

const EARLY: ReadonlyArray<readonly [status: number, request: readonly string[]]> = [
  [401, ['POST /a HTTP/1.1', HOST]],
  [404, ['POST /none HTTP/1.1', HOST, GOOD]],
  [405, ['PUT /a HTTP/1.1', HOST, GOOD]],
  [413, ['POST /a HTTP/1.1', HOST, GOOD]],
  [415, ['POST /a HTTP/1.1', HOST, GOOD, 'Content-Encoding: gzip']],
  [400, ['POST //a HTTP/1.1', HOST, GOOD]],
  [204, ['OPTIONS /a HTTP/1.1', HOST]],
  [200, ['GET /a HTTP/1.1', HOST]],
  [200, ['GET /list HTTP/1.1', HOST]],
];

for (const [status, request] of EARLY) {
  for (const framing of ['announced', 'chunked'] as const) {
    test(`${request[0]}, ${status}: the reply arrives while 5 MB are being sent (${framing})`, async () => {
      const client = await connectTo(url);
      client.send(
        headOf([
          ...request,
          framing === 'announced' ? length(FIVE_MB) : 'Transfer-Encoding: chunked',
        ]),
      );
      const piece = Buffer.alloc(50_000, ' ');
      for (let sent = 0; sent < FIVE_MB; sent += piece.length) {
        if (framing === 'chunked') client.send('c350\r\n', piece, '\r\n');
        else client.send(piece);
      }
      const answer = await client.answer();
      assert.equal(answer.status, status);
      assert.equal(answer.headers.get('connection'), 'close', 'the rest is no request');
      client.leave();
    });
  }
}

for (const [status, request] of EARLY) {
  test(`${request[0]}, ${status}: the reply reaches a client that reads after sending 800 kB`, async () => {
    const client = await connectTo(url);
    client.socket.pause();
    for (const part of [
      headOf([...request, length(800_000)]),
      ...Array.from({ length: 16 }, () => ' '.repeat(50_000)),
    ]) {
      // Each part is on its way before the next: a connection that is reset meanwhile fails here.
      await new Promise<void>((resolve, reject) =>
        client.socket.write(part, (error) => (error ? reject(error) : setImmediate(resolve))),
      );
    }
    client.socket.resume();
    assert.equal((await client.answer()).status, status);
    client.leave();
  });
}

test('an early reply does not wait for the body', async () => {
  const late = [];
  for (const [, request] of EARLY) {
    const client = await connectTo(url);
    client.send(headOf([...request, length(MAX_BODY_BYTES + 1)]));
    // Two requests that come later are answered; by then the earlier one has been, too.
    for (let n = 0; n < 2; n += 1)
      assert.equal((await exchange(url, ['GET /a HTTP/1.1', HOST])).status, 200);
    if (client.pending() === '') late.push(request[0]);
    client.leave();
  }
  assert.deepEqual(late, []);
});

test('the connection stays usable after an early reply to a small body', async () => {
  const client = await connectTo(url);
  for (let round = 0; round < 3; round += 1) {
    client.send(headOf(['POST /a HTTP/1.1', HOST, length(BODY.length)]) + BODY);
    const refused = await client.answer();
    assert.equal(refused.status, 401);
    assert.notEqual(refused.headers.get('connection'), 'close');
    client.send(headOf(['POST /a HTTP/1.1', HOST, GOOD, length(BODY.length)]) + BODY);
    assert.equal((await client.answer()).json, 'posted');
  }
  client.leave();
});

const EXPECTING = 'Expect: 100-continue';

const UNINVITED: ReadonlyArray<readonly [status: number, request: readonly string[]]> = [
  [401, ['POST /a HTTP/1.1', HOST, 'Authorization: Bearer bad', length(BODY.length)]],
  [404, ['POST /none HTTP/1.1', HOST, GOOD, length(BODY.length)]],
  [405, ['PUT /a HTTP/1.1', HOST, GOOD, length(BODY.length)]],
  [413, ['POST /a HTTP/1.1', HOST, GOOD, length(MAX_BODY_BYTES + 1)]],
  [415, ['POST /a HTTP/1.1', HOST, GOOD, 'Content-Encoding: gzip', length(BODY.length)]],
];

test('100 Continue is not sent for a request that is rejected', async () => {
  for (const [status, request] of UNINVITED) {
    const answer = await exchange(url, [...request, EXPECTING]);
    assert.equal(answer.status, status, 'the first answer is the last');
  }
});

test('100 Continue is sent before an accepted body is read', async () => {
  for (const [body, status] of [
    [BODY, 200],
    ['{"name":1}', 400],
    ['{', 400],
  ] as const) {
    const client = await connectTo(url);
    client.send(headOf(['POST /a HTTP/1.1', HOST, GOOD, length(body.length), EXPECTING]));
    assert.equal((await client.answer()).status, 100);
    client.send(body);
    assert.equal((await client.answer()).status, status);
    client.leave();
  }
});

const SHARED = [
  ['cache-control', 'no-store'],
  ['x-content-type-options', 'nosniff'],
] as const;

function assertCommonHeaders(answer: RawAnswer, what: string): void {
  for (const [name, value] of SHARED)
    assert.equal(answer.headers.get(name), value, `${what}: ${name}`);
  assert.ok(answer.headers.get('x-request-id'), `${what}: x-request-id`);
  for (const name of ['server', 'x-powered-by'])
    assert.ok(!answer.headers.has(name), `${what}: ${name}`);
  if (answer.status === 204) return;
  assert.equal(
    answer.headers.get('content-security-policy'),
    "default-src 'none'; frame-ancestors 'none'",
    what,
  );
}

test('every reply has the common headers', async () => {
  const requests = [
    ...EARLY.map(([, request]) => request),
    ...['/text', '/bug', '/away'].map((path) => [`GET ${path} HTTP/1.1`, HOST]),
  ];
  for (const request of requests) {
    const answer = await exchange(url, request);
    assertCommonHeaders(answer, request.join(' '));
    if (answer.status !== 204 && request[0] !== 'GET /text HTTP/1.1')
      assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8');
  }
  assertCommonHeaders(await exchange(url, ['garbage']), 'garbage');
});

test('an internal error is reported by its code only', async () => {
  for (const [path, status, code] of [
    ['/bug', 500, 'internal'],
    ['/away', 503, 'unavailable'],
  ] as const) {
    const answer = await exchange(url, [`GET ${path} HTTP/1.1`, HOST]);
    assert.deepEqual([answer.status, answer.json.error.code], [status, code]);
    assert.ok(!answer.body.includes('marked-detail'));
    assert.equal(answer.headers.has('retry-after'), status === 503);
  }
});

test('HEAD has the headers of GET and no body', async () => {
  for (const path of ['/a', '/text', '/none', '/bug', '/list']) {
    const client = await connectTo(url);
    client.send(headOf([`HEAD ${path} HTTP/1.1`, HOST, 'X-Request-Id: one']));
    const head = await client.answer('HEAD');
    // Were there a body, the next answer would not begin where it should.
    client.send(headOf([`GET ${path} HTTP/1.1`, HOST, 'X-Request-Id: one', 'Connection: close']));
    const full = await client.answer();
    const comparable = ({ headers, status }: RawAnswer) =>
      [...headers, ['status', String(status)]].filter(
        ([name = '']) => !['date', 'connection', 'keep-alive', 'transfer-encoding'].includes(name),
      );
    assert.deepEqual(comparable(head), comparable(full), path);
  }
});

test('OPTIONS * returns the methods of the server', async () => {
  const { status, headers, body } = await exchange(url, ['OPTIONS * HTTP/1.1', HOST]);
  const allowed = 'DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT';
  assert.deepEqual([status, headers.get('allow'), body], [204, allowed, '']);
  assert.equal((await exchange(url, ['OPTIONS * HTTP/1.1'])).status, 400, 'without Host');
});

const KEPT = ['a', 'A.b_c-9', 'x'.repeat(128)];
const REPLACED = ['', 'x'.repeat(129), 'a b', 'a/b', '<script>', 'ä', 'a,b', '{"a":1}', '%41'];

test('a valid X-Request-Id is kept, any other is replaced by a UUID', async () => {
  const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
  for (const given of [...KEPT, ...REPLACED]) {
    const answer = await exchange(url, ['GET /none HTTP/1.1', HOST, `X-Request-Id: ${given}`]);
    const id = answer.headers.get('x-request-id') ?? '';
    if (KEPT.includes(given)) assert.equal(id, given);
    else assert.match(id, uuid, `for ${given}`);
    assert.equal(answer.json._meta.request_id, id);
  }
  const twice = await exchange(url, [
    'GET /none HTTP/1.1',
    HOST,
    'X-Request-Id: a',
    'X-Request-Id: b',
  ]);
  assert.match(twice.headers.get('x-request-id') ?? '', uuid);
});

test('HTTP/1.0 gets a reply, and the connection is closed', async () => {
  const client = await connectTo(url);
  client.send(headOf(['GET /a HTTP/1.0']));
  assert.equal((await client.answer()).json, 'a');
  assert.equal(await client.closed(), '');
});

test('200 concurrent connections all get a reply', async () => {
  const clients = await Promise.all(Array.from({ length: 200 }, () => connectTo(url)));
  for (const client of clients)
    client.send(headOf(['POST /a HTTP/1.1', HOST, GOOD, length(BODY.length)]), BODY);
  const answers = await Promise.all(clients.map((client) => client.answer()));
  assert.deepEqual(
    new Set(answers.map(({ status, json }) => `${status} ${json}`)),
    new Set(['200 posted']),
  );
  assert.equal(new Set(answers.map(({ headers }) => headers.get('x-request-id'))).size, 200);
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'the end of every exchange');
});
