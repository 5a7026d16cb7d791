import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { type ErrorCode, ERRORS, Failure } from '../../../src/platform/http/route/errors.ts';
import {
  type RenderedReply,
  renderFailure,
  renderRaw,
  renderSuccess,
  writeReply,
} from '../../../src/platform/http/wire/reply.ts';
import { REQUEST } from '../../support/request-info.ts';
import { listenOn } from '../../support/ports.ts';

const COMMON = {
  'Content-Type': 'application/json; charset=utf-8',
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
};
const codes = Object.keys(ERRORS).map((code) => code as ErrorCode);

test('every error has the same schema, its status from the table, and a sentence', () => {
  for (const code of codes) {
    const { status, headers, body }: RenderedReply = renderFailure(new Failure(code), 'id-1');
    assert.equal(status, ERRORS[code][0]);
    assert.deepEqual(JSON.parse(String(body)), {
      data: null,
      error: { code, message: ERRORS[code][1] },
      _meta: { request_id: 'id-1' },
    });
    assert.match(ERRORS[code][1], /^[A-Z].*\.$/, code);
    for (const [name, value] of Object.entries(COMMON))
      assert.equal(headers[name], value, `${code}: ${name}`);
  }
});

test('only a 401 names the scheme, and only a 503 has a default Retry-After', () => {
  for (const code of codes) {
    const { status, headers } = renderFailure(new Failure(code), 'id-1');
    assert.equal(headers['WWW-Authenticate'], status === 401 ? 'Bearer' : undefined, code);
    assert.equal(headers['Retry-After'], status === 503 ? '2' : undefined, code);
  }
});

test('details of a failure replace the message of the table and add fields and headers', () => {
  const fields = [{ path: '/a', message: 'is required' }];
  const { headers, body }: RenderedReply = renderFailure(
    new Failure('overloaded', {
      message: 'Later.',
      fields,
      retryAfterSeconds: 1.2,
      headers: { Allow: 'GET' },
    }),
    'id-1',
  );
  assert.deepEqual(JSON.parse(String(body)).error, {
    code: 'overloaded',
    message: 'Later.',
    fields,
  });
  assert.equal(headers['Retry-After'], '2', 'whole seconds, rounded up');
  assert.equal(headers.Allow, 'GET');
});

test('Retry-After is at least 1', () => {
  for (const retryAfterSeconds of [0, -5, 0.001]) {
    assert.equal(
      renderFailure(new Failure('overloaded', { retryAfterSeconds }), 'id-1').headers[
        'Retry-After'
      ],
      '1',
    );
  }
});

test('a success is wrapped as its service does', () => {
  const body = (wrapping: 'data' | 'bare', data: unknown) =>
    String(renderSuccess({ data }, 200, wrapping, 'id-1').body);
  assert.equal(body('data', null), '{"data":null,"_meta":{"request_id":"id-1"}}');
  assert.equal(body('data', [1]), '{"data":[1],"_meta":{"request_id":"id-1"}}');
  assert.equal(body('bare', { a: 1 }), '{"a":1}');
});

test('pagination and links are beside the data', () => {
  const pagination = { page: 1, limit: 10, total: 0, total_pages: 0 };
  const { body } = renderSuccess(
    { data: [], pagination, links: { first: '/x' } },
    200,
    'data',
    'id-1',
  );
  assert.deepEqual(JSON.parse(String(body)), {
    data: [],
    _meta: { request_id: 'id-1', pagination },
    _links: { first: '/x' },
  });
});

test('text has its own content type, and every success the common headers', () => {
  const { headers } = renderSuccess(
    { text: 'a 1', contentType: 'text/plain' },
    200,
    'bare',
    'id-1',
  );
  assert.deepEqual(headers, { ...COMMON, 'Content-Type': 'text/plain' });
  assert.deepEqual(renderSuccess({ data: 1 }, 201, 'bare', 'id-1').headers, COMMON);
  assert.deepEqual(renderSuccess({ items: batches() }, 200, 'bare', 'id-1').headers, COMMON);
});

test('a success may have headers besides the common ones', () => {
  const { headers } = renderSuccess(
    { data: null, headers: { 'X-Auth-Username': 'ada' } },
    200,
    'data',
    'id-1',
  );
  assert.deepEqual(headers, { ...COMMON, 'X-Auth-Username': 'ada' });
});

async function* batches(...all: unknown[][]): AsyncGenerator<unknown[]> {
  yield* all;
}

/** The pieces in which a list is written. */
async function piecesOf(wrapping: 'data' | 'bare', ...all: unknown[][]): Promise<string[]> {
  const { body } = renderSuccess({ items: batches(...all) }, 200, wrapping, 'id-1');
  assert.ok(typeof body !== 'string' && !(body instanceof Uint8Array));
  const pieces: string[] = [];
  for await (const piece of body) pieces.push(piece);
  return pieces;
}

const LISTS: ReadonlyArray<readonly [batches: unknown[][], ...items: unknown[]]> = [
  [[]],
  [[[]]],
  [[[], []]],
  [[['one']], 'one'],
  [[['one', 'two'], [{ three: 3 }]], 'one', 'two', { three: 3 }],
  [[[], ['one'], [], [], ['two'], []], 'one', 'two'],
  [
    [
      ['"],"', '\n'],
      [null, [], {}],
    ],
    '"],"',
    '\n',
    null,
    [],
    {},
  ],
];

test('a list in any number of batches is one JSON array in the wrapping', async () => {
  for (const [given, ...items] of LISTS) {
    assert.deepEqual(JSON.parse((await piecesOf('bare', ...given)).join('')), items);
    const text = (await piecesOf('data', ...given)).join('');
    assert.equal(
      text,
      JSON.stringify({ data: items, _meta: { request_id: 'id-1' } }),
      'as if it had been written in one piece',
    );
  }
});

test('a list is written batch by batch', async () => {
  assert.deepEqual(await piecesOf('bare', [1, 2], [3]), ['[1,2', ',3', ']']);
});

test('a raw reply is a complete HTTP response with its length in bytes', () => {
  for (const failure of [
    new Failure('invalid_request'),
    new Failure('headers_too_large', { message: 'Zu groß – €.' }),
  ]) {
    const [head = '', body = '', ...more] = renderRaw(renderFailure(failure, 'id-1'), 'id-1').split(
      '\r\n\r\n',
    );
    const [statusLine, ...lines] = head.split('\r\n');
    assert.equal(more.length, 0);
    assert.match(statusLine ?? '', new RegExp(`^HTTP/1\\.1 ${ERRORS[failure.code][0]} [a-z ]+$`));
    const headers = new Map(lines.map((line) => line.split(': ') as [string, string]));
    assert.equal(headers.get('Content-Length'), String(Buffer.byteLength(body)));
    assert.equal(headers.get('Connection'), 'close');
    assert.equal(headers.get('X-Request-Id'), 'id-1');
    for (const [name, value] of Object.entries(COMMON)) assert.equal(headers.get(name), value);
    assert.equal(JSON.parse(body).error.code, failure.code);
  }
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
