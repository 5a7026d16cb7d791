import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createRawServer, type Socket } from 'node:net';
import { after } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { test, until } from '../../support/until.ts';
import { deliverOnce, stateOf, leasedEvent, untilEnded } from '../../support/webhook-store.ts';
import { listenOn } from '../../support/ports.ts';
import { listenOnTcp } from '../../support/socket.ts';

interface Got {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

interface Target {
  readonly url: string;
  readonly got: Got[];
  connections(): number;
}

/** Closed after the file's tests. */
const closing: Array<() => Promise<void>> = [];
after(async () => {
  for (const close of closing) await close();
});
const owner = {
  after(close: () => Promise<void>) {
    closing.push(close);
  },
};

async function startTarget(
  answer: (response: ServerResponse, got: Got) => void,
  host = '127.0.0.1',
): Promise<Target> {
  const got: Got[] = [];
  let connections = 0;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request
      .on('data', (chunk: Buffer) => chunks.push(chunk))
      .on('end', () => {
        const one = {
          path: request.url ?? '',
          headers: request.headers,
          body: Buffer.concat(chunks),
        };
        got.push(one);
        answer(response, one);
      });
  });
  server.on('connection', () => {
    connections += 1;
  });
  const port = await listenOn(owner, server, host);
  return {
    url: `http://127.0.0.1:${port}/hook?a=b`,
    got,
    connections: () => connections,
  };
}

/** A target of raw sockets. */
async function startRawTarget(treat: (socket: Socket) => void): Promise<string> {
  return `http://127.0.0.1:${await listenOnTcp(owner, treat)}/`;
}

const forwardTo = (url: string, concurrency = 10) => {
  const forward = createForwardTarget(
    { url: new URL(url), secret: null, allowPrivate: true },
    concurrency,
  );
  owner.after(() => forward.close());
  return forward;
};
const never = new AbortController().signal;
const outcomeOf = (url: string, timeoutMs?: number) =>
  deliverOnce(forwardTo(url), leasedEvent(), timeoutMs);

const file = await createDatabase();
const SECRET = `whsec_${randomBytes(32).toString('base64')}`;
let answerNow: (response: ServerResponse, got: Got) => void = (response) => response.end();
const target = await startTarget((response, got) => answerNow(response, got));
const gatehouse = await startGatehouse({ after }, ['webhook'], file.url, {
  WEBHOOK_FORWARD_URL: target.url,
  WEBHOOK_FORWARD_SECRET: SECRET,
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  WEBHOOK_RETRY_SCHEDULE: '1ms,2ms',
});

async function post(
  body: unknown = { event: 'page.updated', data: { page_id: 'p1' } },
  headers: Record<string, string> = {},
): Promise<string> {
  const answer = await ask('POST', `${gatehouse.url.webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body,
    headers,
  });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.id;
}
const ended = (id: string) => untilEnded(file.sql, id);
const gotOf = (id: string) => target.got.filter(({ headers }) => headers['webhook-id'] === id);

test('an event is POSTed byte for byte, with its headers and a Standard Webhooks signature', async () => {
  answerNow = (response) => response.end('thanks');
  const raw = Buffer.from(
    '\r\n{ "event" :"seite.geändert\\n",\t"data": {"page_id":"\\u0041é\u2028", "n": 12345678901234567890.000 } }\n',
  );
  const id = await post(raw, {
    'content-type': 'application/json; charset=utf-8',
    authorization: `Bearer ${WEBHOOK_TOKEN}`,
    cookie: 'session=secret',
  });
  await ended(id);
  assert.deepEqual(await stateOf(file.sql, id), { status: 'done', attempts: 1, errors: [] });
  const [got, ...more] = gotOf(id);
  assert.ok(got);
  assert.deepEqual(more, []);
  assert.deepEqual(got.body, raw);
  assert.equal(got.path, '/hook?a=b');
  const {
    'webhook-timestamp': time = '',
    'webhook-signature': signature,
    host,
    connection,
    'x-request-id': requestId,
    ...headers
  } = got.headers;
  assert.match(String(requestId), /^[0-9a-f-]{36}$/);
  assert.deepEqual(
    headers,
    {
      'content-type': 'application/json; charset=utf-8',
      'content-length': String(raw.length),
      'user-agent': 'tests',
      'webhook-id': id,
      'gatehouse-event': encodeURIComponent('seite.geändert\n'),
      'gatehouse-attempt': '1',
    },
    'no credential of the sender is forwarded',
  );
  assert.ok(Math.abs(Number(time) - Date.now() / 1000) < 300);
  // As specified: an HMAC of `id.timestamp.body` with the bytes of the secret.
  const key = Buffer.from(SECRET.slice('whsec_'.length), 'base64');
  assert.equal(
    signature,
    `v1,${createHmac('sha256', key)
      .update(Buffer.concat([Buffer.from(`${id}.${String(time)}.`), raw]))
      .digest('base64')}`,
  );
});

test('without WEBHOOK_FORWARD_SECRET nothing is signed; empty and binary bodies are unchanged', async () => {
  const other = await startTarget((response) => response.end());
  for (const body of [Buffer.alloc(0), randomBytes(200_000)]) {
    assert.equal(await deliverOnce(forwardTo(other.url), leasedEvent({ body })), null);
    assert.deepEqual(other.got.at(-1)?.body, body);
    assert.equal(other.got.at(-1)?.headers['webhook-signature'], undefined);
  }
});

test('a long name of an event is cut at 1,024 encoded bytes, between characters', async () => {
  const other = await startTarget((response) => response.end());
  const name = `${'x'.repeat(1_019)}漢字`;
  assert.equal(await deliverOnce(forwardTo(other.url), leasedEvent({ event: name })), null);
  assert.equal(other.got.at(-1)?.headers['gatehouse-event'], 'x'.repeat(1_019));
  const wide = '漢'.repeat(1_000);
  assert.equal(await deliverOnce(forwardTo(other.url), leasedEvent({ event: wide })), null);
  const sent = String(other.got.at(-1)?.headers['gatehouse-event']);
  assert.equal(decodeURIComponent(sent), '漢'.repeat(113));
});

test('2xx is success; redirects, which are not followed, 4xx and 5xx are failures', async () => {
  const other = await startTarget((response, { headers }) =>
    response.writeHead(Number(headers['gatehouse-event']), { location: '/elsewhere' }).end(),
  );
  const forward = forwardTo(other.url);
  const outcome = async (status: number) =>
    (await forward.deliver(leasedEvent({ event: String(status) }), never))?.error ?? null;
  for (const status of [200, 201, 202, 204, 226, 299])
    assert.equal(await outcome(status), null, String(status));
  for (const status of [300, 301, 302, 303, 307, 308])
    assert.equal(
      await outcome(status),
      `the target answered ${status}; redirects are not followed`,
    );
  assert.equal(await outcome(304), 'the target answered 304; it must answer with 2xx');
  assert.equal(await outcome(413), 'the target answered 413; the event is too large for it');
  for (const status of [400, 401, 404, 409, 410, 422, 429, 500, 502, 503, 599])
    assert.equal(await outcome(status), `the target answered ${status}`);
  assert.deepEqual([...new Set(other.got.map(({ path }) => path))], ['/hook?a=b']);
});

const ENCODINGS: Readonly<Record<string, (text: string) => Buffer>> = {
  gzip: gzipSync,
  'X-GZIP': gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
};

test('of an encoded answer, the text is kept', async () => {
  // Of the second, the first bytes must do.
  const texts = ['x'.repeat(300_000), `Zoë ${randomBytes(60_000).toString('base64')}`];
  const answerTo = async (coding: string, body: Buffer | string) => {
    const head = { 'content-encoding': coding };
    const other = await startTarget((response) => response.writeHead(422, head).end(body));
    return (await forwardTo(other.url).deliver(leasedEvent(), never)).answer ?? '';
  };
  for (const [coding, encode] of Object.entries(ENCODINGS)) {
    for (const text of texts) {
      const answer = await answerTo(coding, encode(text));
      assert.ok(text.startsWith(answer) && answer.length > 500, `${coding}: ${answer}`);
    }
    const unread = `The answer is in the encoding ${coding}, which cannot be read.`;
    assert.equal(await answerTo(coding, 'not so encoded'), unread);
    assert.equal(await answerTo(coding, ''), '');
  }
});

test('an event that always gets 4xx or 5xx is retried under the same id and ends as dead', async () => {
  for (const status of [404, 500]) {
    answerNow = (response) => response.writeHead(status).end();
    const id = await post();
    await ended(id);
    const error = `the target answered ${status}`;
    assert.deepEqual(await stateOf(file.sql, id), {
      status: 'dead',
      attempts: 3,
      errors: [error, error, error],
    });
    assert.deepEqual(
      gotOf(id).map(({ headers }) => headers['gatehouse-attempt']),
      ['1', '2', '3'],
    );
  }
});

/** The delay after the first failure, and when the event is due. */
async function delayed(retryAfter: string): Promise<{ seconds: number; dueAt: Date }> {
  answerNow = (response) => response.writeHead(503, { 'retry-after': retryAfter }).end();
  const id = await post();
  const rows = () => file.sql<Array<{ seconds: number; due_at: Date }>>`
    select extract(epoch from due_at - failed_at)::float8 as seconds, due_at from webhook.work
      join webhook.failures using (event_id) where event_id = ${id} and lease is null`;
  await untilSql(async () => (await rows()).length === 1, 'the event was given back');
  const [row] = await rows();
  assert.ok(row);
  return { seconds: row.seconds, dueAt: row.due_at };
}

test('Retry-After is honored, as seconds and as a date, up to a day', async () => {
  assert.equal((await delayed('120')).seconds, 120);
  for (const long of ['172800', '1999999999999', '9'.repeat(400), '00000000000000000099999'])
    assert.equal((await delayed(long)).seconds, 86_400, long);
  assert.equal((await delayed('Fri, 31 Dec 9999 23:59:59 GMT')).seconds, 86_400);
  const date = new Date(Math.ceil(Date.now() / 1000) * 1000 + 300_000);
  const { seconds, dueAt } = await delayed(date.toUTCString());
  assert.ok(
    seconds <= 301 && dueAt.getTime() >= date.getTime() - 5,
    `${seconds} s, until ${dueAt.toISOString()}`,
  );
});

test('a past or invalid Retry-After is ignored', async () => {
  for (const retryAfter of ['0', '-5', 'soon', '1e3', 'Wed, 21 Oct 2015 07:28:00 GMT', '']) {
    answerNow = (response, { headers }) =>
      response
        .writeHead(headers['gatehouse-attempt'] === '1' ? 503 : 200, { 'retry-after': retryAfter })
        .end();
    const id = await post();
    await ended(id);
    assert.equal((await stateOf(file.sql, id)).attempts, 2, retryAfter);
  }
});

const CLOSED = 'the target closed the connection before it had answered (ECONNRESET)';
const afterRequest = (answer: string, ends = true) =>
  startRawTarget((socket) =>
    socket.once('data', () => (ends ? socket.end(answer) : socket.write(answer))),
  );

test('a target that is down, hangs up, sends no HTTP or does not answer fails with its reason', async () => {
  const gone = createRawServer().listen(0, '127.0.0.1');
  await once(gone, 'listening');
  const bound = gone.address();
  await new Promise((resolve) => gone.close(resolve));
  assert.equal(
    await outcomeOf(`http://127.0.0.1:${typeof bound === 'object' ? bound?.port : ''}/`),
    'the target refused the connection: nothing listens at its port (ECONNREFUSED)',
  );
  assert.equal(await outcomeOf(await startRawTarget((socket) => socket.destroy())), CLOSED);
  assert.equal(await outcomeOf(await afterRequest('')), CLOSED);
  assert.equal(await outcomeOf(await afterRequest('HTTP/1.1 200 OK\r\nx: ')), CLOSED);
  assert.match(
    (await outcomeOf(await afterRequest('220 mail.example.org ESMTP\r\n'))) ?? '',
    /^the target's answer is not valid HTTP: its URL may begin with https \(HPE_/,
  );
  assert.match(
    (await outcomeOf(await afterRequest(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(100_000)}`))) ?? '',
    /^the header of the target's answer is larger than 16 KiB \(HPE_HEADER_OVERFLOW\)$/,
  );
  assert.notEqual(await outcomeOf(await startRawTarget(() => {}), 300), null);
  assert.notEqual(
    await outcomeOf(await afterRequest('HTTP/1.1 200 OK\r\n', false), 300),
    null,
    'half an answer',
  );
});

test('an endless, broken or invalid body after a 2xx is still a success and frees its connection', async () => {
  const endings = { flood: 0, drip: 0, poured: 0 };
  const flood = await startTarget((response) => {
    const chunk = Buffer.alloc(65_536);
    const pour = () => {
      let hasRoom = true;
      while (!response.destroyed && hasRoom) {
        endings.poured += chunk.length;
        hasRoom = response.write(chunk);
      }
    };
    response.on('drain', pour).on('close', () => {
      endings.flood += 1;
    });
    pour();
  });
  assert.equal(await outcomeOf(flood.url), null);
  await until(() => endings.flood === 1, 'the flood is cut off');
  assert.ok(
    endings.poured < 32_000_000,
    `${endings.poured} bytes, which is more than what fits between two sockets`,
  );
  const drip = await startTarget((response) => {
    response
      .on('close', () => {
        endings.drip += 1;
      })
      .write('.');
  });
  // As many as the concurrency, so that a blocked connection would block the next event.
  const narrow = forwardTo(drip.url, 1);
  for (const turn of [1, 2])
    assert.equal(await deliverOnce(narrow, leasedEvent()), null, String(turn));
  await until(() => endings.drip === 2, 'their connections end');
  for (const rest of [
    'content-length: 100\r\n\r\nhalf',
    'transfer-encoding: chunked\r\n\r\nnonsense\r\n',
  ]) {
    let closed = false;
    const url = await startRawTarget((socket) =>
      socket
        .on('close', () => {
          closed = true;
        })
        .once('data', () => socket.end(`HTTP/1.1 200 OK\r\n${rest}`)),
    );
    assert.equal(await outcomeOf(url), null);
    await until(() => closed, 'the connection has ended');
  }
});

test('a shutdown aborts a forward in progress', async () => {
  const stop = new AbortController();
  const url = await startRawTarget((socket) => socket.once('data', () => stop.abort()));
  assert.ok((await forwardTo(url).deliver(leasedEvent(), stop.signal))?.error);
});

test('one connection is reused for many events', async () => {
  const other = await startTarget((response) => response.end('ok'));
  const forward = forwardTo(other.url);
  for (let turn = 0; turn < 5; turn += 1)
    assert.equal(await deliverOnce(forward, leasedEvent()), null);
  assert.equal(other.got.length, 5);
  assert.equal(other.connections(), 1);
});
