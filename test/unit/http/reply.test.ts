import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, IncomingMessage } from 'node:http';
import { connect, Socket } from 'node:net';
import { Readable } from 'node:stream';
import { type ErrorCode, ERRORS, Failure } from '../../../src/platform/http/route/errors.ts';
import { createBodyReader } from '../../../src/platform/http/wire/body-reader.ts';
import { createHeldBodies } from '../../../src/platform/http/wire/held-bodies.ts';
import {
  renderFailure,
  renderRaw,
  renderSuccess,
  writeReply,
} from '../../../src/platform/http/wire/reply.ts';
import { REQUEST } from '../../support/request-info.ts';
import { listenOn } from '../../support/ports.ts';
import { test, until } from '../../support/until.ts';

const COMMON = {
  'Content-Type': 'application/json; charset=utf-8',
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
};

test('every error has the same schema, its status from the table, and a sentence', () => {
  for (const [name, [status, message]] of Object.entries(ERRORS)) {
    const code = name as ErrorCode;
    const rendered = renderFailure(new Failure(code), 'id-1');
    assert.deepEqual(JSON.parse(String(rendered.body)), {
      data: null,
      error: { code, message },
      _meta: { request_id: 'id-1' },
    });
    assert.equal(rendered.status, status);
    assert.deepEqual(rendered.headers, {
      ...COMMON,
      ...(status === 401 && { 'WWW-Authenticate': 'Bearer' }),
      ...(status === 503 && { 'Retry-After': '2' }),
    });
    assert.match(message, /^[A-Z].*\.$/, code);
  }
});

test('details of a failure replace the message of the table and add fields and headers', () => {
  const details = { message: 'Later.', fields: [{ path: '/a', message: 'is required' }] };
  const given = { ...details, retryAfterSeconds: 1.2, headers: { Allow: 'GET' } };
  const { headers, body } = renderFailure(new Failure('overloaded', given), 'id-1');
  assert.deepEqual(JSON.parse(String(body)).error, { code: 'overloaded', ...details });
  assert.deepEqual(headers, { ...COMMON, Allow: 'GET', 'Retry-After': '2' });
  for (const retryAfterSeconds of [0, -5, 0.001]) {
    const failure = new Failure('overloaded', { retryAfterSeconds });
    assert.equal(renderFailure(failure, 'id-1').headers['Retry-After'], '1');
  }
});

test('a success is wrapped as its service does, with pagination and links beside the data', () => {
  const pagination = { page: 1, limit: 10, total: 0, total_pages: 0 };
  const links = { first: '/x' };
  for (const [reply, wrapping, expected] of [
    [{ data: null }, 'data', { data: null, _meta: { request_id: 'id-1' } }],
    [{ data: { a: 1 } }, 'bare', { a: 1 }],
    [
      { data: [1], pagination, links },
      'data',
      { data: [1], _meta: { request_id: 'id-1', pagination }, _links: links },
    ],
  ] as const)
    assert.equal(renderSuccess(reply, 200, wrapping, 'id-1').body, JSON.stringify(expected));
});

test('every success has the common headers, and its own', () => {
  for (const [reply, own] of [
    [{ data: 1 }, {}],
    [{ items: batches() }, {}],
    [{ text: 'a 1', contentType: 'text/plain' }, { 'Content-Type': 'text/plain' }],
    [{ data: null, headers: { 'X-Auth-Username': 'ada' } }, { 'X-Auth-Username': 'ada' }],
  ] as const)
    assert.deepEqual(renderSuccess(reply, 200, 'data', 'id-1').headers, { ...COMMON, ...own });
});

async function* batches(...all: unknown[][]): AsyncGenerator<unknown[]> {
  yield* all;
}

test('a list is written batch by batch, as one JSON array in the wrapping', async () => {
  const piecesOf = async (wrapping: 'data' | 'bare', all: unknown[][]): Promise<string[]> => {
    const { body } = renderSuccess({ items: batches(...all) }, 200, wrapping, 'id-1');
    assert.ok(typeof body !== 'string' && !(body instanceof Uint8Array));
    return Readable.from(body).toArray();
  };
  assert.deepEqual(await piecesOf('bare', [[1, 2], [3]]), ['[1,2', ',3', ']']);
  for (const all of [[], [[]], [[], []], [[1]], [[], ['"],"', '\n'], [], [null, [], {}], []]]) {
    const data = all.flat(1);
    assert.equal((await piecesOf('bare', all)).join(''), JSON.stringify(data));
    const wrapped = (await piecesOf('data', all)).join('');
    assert.equal(wrapped, JSON.stringify({ data, _meta: { request_id: 'id-1' } }));
  }
});

test('a raw reply is a complete HTTP response with its length in bytes', () => {
  const failure = renderFailure(new Failure('headers_too_large', { message: 'Zu groß.' }), 'id-1');
  const [head = '', body = '', ...more] = renderRaw(failure, 'id-1').split('\r\n\r\n');
  const [statusLine, ...lines] = head.split('\r\n');
  assert.deepEqual([statusLine, more], ['HTTP/1.1 431 headers too large', []]);
  assert.deepEqual(Object.fromEntries(lines.map((line) => line.split(': '))), {
    ...COMMON,
    'Content-Length': String(Buffer.byteLength(body)),
    Connection: 'close',
    'X-Request-Id': 'id-1',
  });
  assert.equal(JSON.parse(body).error.message, 'Zu groß.');
});

test('of two replies to a request whose body is unread, only the first is sent and logged', async (t) => {
  const sent = { status: 200, headers: {}, body: 'first' };
  const info = { ...REQUEST, progress: { route: 'GET /' } };
  const ends: string[] = [];
  const server = createServer((_request, response) => {
    const late = { ...sent, status: 201, body: 'second' };
    const replies = [sent, late].map((reply) => writeReply(response, info, reply, false, () => {}));
    void Promise.allSettled(replies).then((settled) => {
      ends.push(...settled.map(({ status }) => status));
    });
  });
  const socket = connect(await listenOn(t, server), '127.0.0.1');
  let received = '';
  socket.on('data', (text) => {
    received += String(text);
  });
  // The body comes a moment after the head, so that both replies wait for it.
  socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n');
  await once(server, 'request');
  socket.end('body');
  await once(socket, 'close');
  assert.match(received, /\r\n\r\nfirst$/);
  assert.deepEqual(ends, ['fulfilled', 'fulfilled']);
  assert.deepEqual(info.progress, { route: 'GET /', reply: sent });
});

test('connections of proxies stay paused until each client network has room again', async () => {
  const { addIdle, hold } = createHeldBodies(createBodyReader().held);
  const open = (network: string | null) => {
    const socket = new Socket();
    addIdle({ socket, network });
    return socket;
  };
  /** With the bodies of 40 requests, of which the last ones do not fit into the share. */
  const fill = async (network: string) => {
    const requests = Array.from({ length: 40 }, () => {
      const request = new IncomingMessage(new Socket());
      request.push(Buffer.alloc(60_000));
      request.headers = { 'transfer-encoding': 'chunked' };
      request.complete = true;
      return hold(request, network, null);
    });
    const held = await Promise.all(requests);
    return () => held.forEach(({ release }) => release());
  };
  const before = open(null);
  const client = open('192.0.2.1');
  const emptyOne = await fill('192.0.2.1');
  const after = open(null);
  const emptyOther = await fill('192.0.2.2');
  await until(() => after.isPaused(), 'a new connection is paused');
  assert.deepEqual([before.isPaused(), client.isPaused()], [true, false]);

  emptyOne();
  await new Promise(setImmediate);
  assert.deepEqual([before.isPaused(), after.isPaused()], [true, true]);

  emptyOther();
  await until(() => !before.isPaused() && !after.isPaused(), 'both are read again');
  assert.equal(client.isPaused(), false);
});
