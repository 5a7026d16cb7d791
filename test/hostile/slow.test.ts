/** Clients that take their time: each is cut off, and meanwhile the others are served. */
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

/** Sends one byte every now and then until the other side has had enough. */
async function trickle(client: RawClient, text: string): Promise<void> {
  const letters = [...text, ...'x'.repeat(10_000)];
  const timer = setInterval(() => client.socket.writable && client.send(letters.shift() ?? 'x'), 100);
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
  test('a client that says nothing, or its headers letter by letter, is told so and cut off', { timeout: 20_000 }, async () => {
    const [silent, slow, idle] = await Promise.all([connectTo(url), connectTo(url), connectTo(url)]);
    idle.send(headOf(['GET /a HTTP/1.1', HOST]));
    assert.equal((await idle.answer()).json, 'a');
    await Promise.all([trickle(slow, `GET /a HTTP/1.1\r\n${HOST}\r\nX: `), silent.answer().then(({ status }) => assert.equal(status, 408))]);
    // Between two requests is not within one.
    idle.send(headOf(['GET /a HTTP/1.1', HOST]));
    assert.equal((await idle.answer()).json, 'a');
    for (const client of [silent, idle]) client.leave();
  });

  test('while 100 of them hang about, everybody else is served', async () => {
    const slow = await Promise.all(Array.from({ length: 100 }, () => connectTo(url)));
    for (const client of slow) client.send('POST /a HTTP/1.1\r\nHost: a\r\n');
    const answers = await Promise.all(Array.from({ length: 20 }, () => exchange(url, ['GET /a HTTP/1.1', HOST])));
    assert.ok(answers.every(({ status }) => status === 200));
    for (const client of slow) client.leave();
  });

  test('a body that comes letter by letter is cut off, and its place given back', async (t) => {
    const own = await startListener(t, rows);
    const servers = new Set<Server>();
    const note = (message: unknown) => {
      const { server, socket } = message as { server: Server; socket: { localPort?: number } };
      if (String(socket.localPort) === new URL(own.url).port) servers.add(server);
    };
    subscribe('http.server.request.start', note);
    t.after(() => void unsubscribe('http.server.request.start', note));
    const client = await connectTo(own.url);
    client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 20000']));
    await until(() => servers.size === 1, 'the request');
    const [server] = servers;
    assert.ok(server && server.requestTimeout > 0 && server.requestTimeout <= 30_000);
    assert.ok(server.headersTimeout > 0 && server.headersTimeout <= 10_000);
    assert.ok(server.timeout > 0 && server.timeout <= 30_000);
    assert.ok((server.maxRequestsPerSocket ?? 0) > 0);
    // The limit holds; it is only brought nearer.
    server.headersTimeout = 300;
    server.requestTimeout = 300;
    await trickle(client, '{');
    await until(() => own.inFlight() === 0, 'the end of the visit');
  });
});

test('after all of this nothing is in flight', () => {
  assert.equal(inFlight(), 0);
});
