/** Slow clients are disconnected, and the others are served meanwhile. */
import assert from 'node:assert/strict';
import { after, afterEach, describe, type TestContext } from 'node:test';
import { get, post, startListener, type TestListener } from '../../support/listener.ts';
import { connectTo, exchange, headOf, type RawClient } from '../../support/socket.ts';
import { test, until } from '../../support/until.ts';

const HOST = 'Host: gatehouse.test';
const rows = [get('/a', async () => ({ data: 'a' })), post('/a')];
const { url, inFlight } = await startListener({ after }, rows);

/** What a test has begun must not go on behind it. */
afterEach(() => until(() => inFlight() === 0, 'no request is in flight'));

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

/** Sends the head of a request with a body of 8,000 bytes. */
async function openRequest({ url: to, inFlight: running }: TestListener): Promise<RawClient> {
  const client = await connectTo(to);
  client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 8000']));
  await until(() => running() === 1, 'the request');
  return client;
}

/** Shortens the limits for a head and a request, once what must not reach them is sent. */
function shortenLimits({ server }: TestListener): void {
  assert.ok(server.requestTimeout > 0 && server.requestTimeout <= 30_000);
  assert.ok(server.headersTimeout > 0 && server.headersTimeout <= 10_000);
  assert.ok(server.timeout > 0 && server.timeout <= 30_000);
  assert.ok((server.maxRequestsPerSocket ?? 0) > 0);
  Object.assign(server, { headersTimeout: 300, requestTimeout: 300 });
}

async function testSlowHead(t: TestContext): Promise<void> {
  const own = await startListener(t, rows);
  const open = () => connectTo(own.url);
  const [silent, slow, idle] = await Promise.all([open(), open(), open()]);
  idle.send(headOf(['GET /a HTTP/1.1', HOST]));
  assert.equal((await idle.answer()).json, 'a');
  shortenLimits(own);
  await Promise.all([
    trickle(slow, `GET /a HTTP/1.1\r\n${HOST}\r\nX: `),
    silent.answer().then(({ status }) => assert.equal(status, 408)),
  ]);
  // Between two requests is not within one.
  idle.send(headOf(['GET /a HTTP/1.1', HOST]));
  assert.equal((await idle.answer()).json, 'a');
  for (const client of [silent, idle]) client.leave();
}

async function testManySlow(): Promise<void> {
  const slow = await Promise.all(Array.from({ length: 100 }, () => connectTo(url)));
  for (const client of slow) client.send('POST /a HTTP/1.1\r\nHost: a\r\n');
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => exchange(url, ['GET /a HTTP/1.1', HOST])),
  );
  assert.ok(answers.every(({ status }) => status === 200));
  for (const client of slow) client.leave();
}

async function testSlowBody(t: TestContext): Promise<void> {
  const own = await startListener(t, rows);
  // Only the least rate ends it.
  own.server.requestTimeout = 0;
  await trickle(await openRequest(own), '{');
}

async function testFreedSlot(t: TestContext): Promise<void> {
  const own = await startListener(t, rows);
  const client = await openRequest(own);
  shortenLimits(own);
  await trickle(client, '{');
  await until(() => own.inFlight() === 0, 'the end of the exchange');
}

/** Fast enough for the least rate, and it does not close its side. */
async function testPersistentBody(t: TestContext): Promise<void> {
  const own = await startListener(t, rows);
  const client = await openRequest(own);
  shortenLimits(own);
  client.socket.allowHalfOpen = true;
  let sent = 0;
  const timer = setInterval(() => {
    client.send('x'.repeat(150));
    sent += 150;
  }, 100);
  t.after(() => {
    clearInterval(timer);
    client.leave();
  });
  assert.equal((await client.answer()).status, 408);
  await client.closed();
  assert.ok(sent < 8_000, 'before the body is complete');
  await until(() => own.inFlight() === 0, 'the end of the exchange');
}

describe('slow clients', { concurrency: true }, () => {
  test('a client that sends no or slow headers gets 408 and is disconnected', testSlowHead);
  test('100 slow clients do not delay others', testManySlow);
  test('a body below 1 KiB per second gets 408 and is disconnected', testSlowBody);
  test('a slow body gets 408, and its slot is freed', testFreedSlot);
  test('after 408 the connection is closed, even if the client sends on', testPersistentBody);
});
