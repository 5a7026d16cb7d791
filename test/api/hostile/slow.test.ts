/** Slow clients are disconnected, and the others are served meanwhile. */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { get, post, startListener, type TestListener } from '../../support/listener.ts';
import { connectTo, headOf, type RawClient } from '../../support/socket.ts';
import { test, until } from '../../support/until.ts';

const HOST = 'Host: gatehouse.test';
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
