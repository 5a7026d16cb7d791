/** Replies that are sent before the body is read, and what all replies have in common. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { stopClock } from '../../support/clock.ts';
import { bearerGuard, get, MAX_BODY_BYTES, post, startListener } from '../../support/listener.ts';
import { connectTo, exchange, headOf } from '../../support/socket.ts';

const { url } = await startListener({ after }, [
  get('/a', async () => ({ data: 'a' })),
  get('/list', async () => ({
    items: (async function* () {
      yield ['a'];
      yield ['b'];
    })(),
  })),
  post('/a', bearerGuard),
]);

const HOST = 'Host: gatehouse.test';
const GOOD = 'Authorization: Bearer good';
const BODY = '{"name":"posted"}';
const EXPECTING = 'Expect: 100-continue';
const CHUNKED = 'Transfer-Encoding: chunked';
const length = (size: number) => `Content-Length: ${size}`;

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

for (const framing of [length(800_000), CHUNKED]) {
  test(`an early reply reaches a client that reads after sending 800 kB (${framing})`, async () => {
    const spaces = ' '.repeat(50_000);
    const piece = framing === CHUNKED ? `c350\r\n${spaces}\r\n` : spaces;
    for (const [status, request] of EARLY) {
      const client = await connectTo(url);
      client.socket.pause();
      const pieces = Array.from({ length: 16 }, () => piece);
      for (const part of [headOf([...request, framing]), ...pieces]) {
        // Each part is on its way before the next: a connection that is reset meanwhile fails here.
        await new Promise<void>((resolve, reject) =>
          client.socket.write(part, (error) => (error ? reject(error) : setImmediate(resolve))),
        );
      }
      client.socket.resume();
      const answer = await client.answer();
      const connection = answer.headers.get('connection');
      // The rest is no request.
      assert.deepEqual([answer.status, connection], [status, 'close'], request.join());
      client.leave();
    }
  });
}

test('after 100 Continue, a caller whose rights end while a slow body arrives is refused', async (t) => {
  const pass = stopClock(t);
  const rights = { held: true };
  const check = async () => (rights.held ? null : new Failure('unauthorized'));
  const guard = { security: ['bearer'], errors: ['unauthorized'], check } as const;
  const own = await startListener(t, [post('/a', guard)]);
  const head = ['POST /a HTTP/1.1', HOST, length(BODY.length), EXPECTING];
  for (const [held, expected] of [
    [true, 200],
    [false, 401],
  ] as const) {
    rights.held = true;
    const client = await connectTo(own.url);
    client.send(headOf(head));
    assert.equal((await client.answer()).status, 100, 'the caller was checked');
    rights.held = held;
    // Longer than a check is relied on.
    pass(0.6);
    client.send(BODY);
    assert.equal((await client.answer()).status, expected);
    client.leave();
  }
});

test('an early reply does not wait for the body', async () => {
  const late = [];
  for (const [, request] of EARLY) {
    const client = await connectTo(url);
    client.send(headOf([...request, length(MAX_BODY_BYTES + 1)]));
    // Two requests that come later are answered; by then the earlier one has been, too.
    for (let n = 0; n < 2; n += 1) await exchange(url, ['GET /a HTTP/1.1', HOST]);
    if (client.pending() === '') late.push(request[0]);
    client.leave();
  }
  assert.deepEqual(late, []);
});

test('the connection stays usable after an early reply to a small body', async () => {
  const client = await connectTo(url);
  const send = (...headers: readonly string[]) =>
    client.send(headOf(['POST /a HTTP/1.1', HOST, length(BODY.length), ...headers]) + BODY);
  for (let round = 0; round < 3; round += 1) {
    send();
    const { status, headers } = await client.answer();
    assert.deepEqual([status, headers.get('connection')], [401, 'keep-alive']);
    send(GOOD);
    assert.equal((await client.answer()).json, 'posted');
  }
  client.leave();
});

test('100 Continue is not sent for a request that is rejected', async () => {
  // Without a body, the others are no early replies, and that of 413 is too large.
  for (const [status, request] of EARLY.slice(0, 5)) {
    const size = length(status === 413 ? MAX_BODY_BYTES + 1 : BODY.length);
    const answer = await exchange(url, [...request, size, EXPECTING]);
    assert.equal(answer.status, status, 'the first answer is the last');
  }
});

test('OPTIONS * returns the methods of the server', async () => {
  const { status, headers, body } = await exchange(url, ['OPTIONS * HTTP/1.1', HOST]);
  const allowed = 'DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT';
  assert.deepEqual([status, headers.get('allow'), body], [204, allowed, '']);
  assert.equal((await exchange(url, ['OPTIONS * HTTP/1.1'])).status, 400, 'without Host');
});

test('a valid X-Request-Id is kept, any other is replaced by a UUID', async () => {
  const idOf = async (...given: readonly string[]) => {
    const lines = given.map((id) => `X-Request-Id: ${id}`);
    const { headers, json } = await exchange(url, ['GET /none HTTP/1.1', HOST, ...lines]);
    assert.equal(headers.get('x-request-id'), json._meta.request_id);
    return String(json._meta.request_id);
  };
  for (const id of ['a', 'A.b_c-9', 'x'.repeat(128)]) assert.equal(await idOf(id), id);
  const wrong = ['', 'x'.repeat(129), 'a b', 'a/b', '<script>', 'ä', 'a,b', '%41'];
  for (const given of [...wrong.map((id) => [id]), ['a', 'b']])
    assert.match(await idOf(...given), /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, given.join());
});

test('HTTP/1.0 gets a reply, and the connection is closed', async () => {
  const client = await connectTo(url);
  client.send(headOf(['GET /a HTTP/1.0']));
  assert.equal((await client.answer()).json, 'a');
  assert.equal(await client.closed(), '');
});
