/** Slow clients are disconnected, and the others are served meanwhile. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { after, describe, test } from 'node:test';
import { get, post, startListener } from '../support/listener.ts';
import { connectTo, exchange, headOf, type RawClient } from '../support/socket.ts';
import { until } from '../support/until.ts';

const HOST = 'Host: gatehouse.test';
const rows = [get('/a', async () => ({ data: 'a' })), post('/a')];
const { url, inFlight } = await startListener({ after }, rows);

/** Sends one byte every 100 ms until the server replies. */
async function trickle(client: RawClient, text: string): Promise<void> {
  const letters = [...text, ...'x'.repeat(10_000)];
  const timer = setInterval(
    () => client.socket.writable && client.send(letters.shift() ?? 'x'),
    100,
  );
  try {
    const answer = await client.answer();
    assert.deepEqual([answer.status, answer.json.error.code], [408, 'request_timeout']);
    assert.equal(answer.headers.get('connection'), 'close');
  } finally {
    clearInterval(timer);
    client.leave();
  }
}

describe('slow clients', { concurrency: true }, () => {
  // The limit itself is waited for, once: 10 s for the head, looked at every second.
  test(
    'a client that sends no or slow headers gets 408 and is disconnected',
    { timeout: 20_000 },
    async () => {
      const [silent, slow, idle] = await Promise.all([
        connectTo(url),
        connectTo(url),
        connectTo(url),
      ]);
      idle.send(headOf(['GET /a HTTP/1.1', HOST]));
      assert.equal((await idle.answer()).json, 'a');
      await Promise.all([
        trickle(slow, `GET /a HTTP/1.1\r\n${HOST}\r\nX: `),
        silent.answer().then(({ status }) => assert.equal(status, 408)),
      ]);
      // Between two requests is not within one.
      idle.send(headOf(['GET /a HTTP/1.1', HOST]));
      assert.equal((await idle.answer()).json, 'a');
      for (const client of [silent, idle]) client.leave();
    },
  );

  test('100 slow clients do not delay others', async () => {
    const slow = await Promise.all(Array.from({ length: 100 }, () => connectTo(url)));
    for (const client of slow) client.send('POST /a HTTP/1.1\r\nHost: a\r\n');
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => exchange(url, ['GET /a HTTP/1.1', HOST])),
    );
    assert.ok(answers.every(({ status }) => status === 200));
    for (const client of slow) client.leave();
  });

  test(
    'a body below 1 KiB per second gets 408 and is disconnected',
    { timeout: 20_000 },
    async () => {
      const client = await connectTo(url);
      client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 8000']));
      const startedAt = performance.now();
      await trickle(client, '{');
      assert.ok(performance.now() - startedAt < 9_000, 'long before the limit of a whole request');
    },
  );

  test('a slow body gets 408, and its slot is freed', async (t) => {
    const own = await startListener(t, rows);
    const servers = new Set<Server>();
    const note = (message: unknown) => {
      const { server, socket } = message as { server: Server; socket: { localPort?: number } };
      if (String(socket.localPort) === new URL(own.url).port) servers.add(server);
    };
    subscribe('http.server.request.start', note);
    t.after(() => void unsubscribe('http.server.request.start', note));
    const client = await connectTo(own.url);
    client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 8000']));
    await until(() => servers.size === 1, 'the request');
    const [server] = servers;
    assert.ok(server && server.requestTimeout > 0 && server.requestTimeout <= 30_000);
    assert.ok(server.headersTimeout > 0 && server.headersTimeout <= 10_000);
    assert.ok(server.timeout > 0 && server.timeout <= 30_000);
    assert.ok((server.maxRequestsPerSocket ?? 0) > 0);
    // The timeout is shortened for the test.
    server.headersTimeout = 300;
    server.requestTimeout = 300;
    await trickle(client, '{');
    await until(() => own.inFlight() === 0, 'the end of the exchange');
  });
});

test('finally, no request is in flight', () => {
  assert.equal(inFlight(), 0);
});
