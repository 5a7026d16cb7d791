/** More bodies and connections than the process accepts. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { bearerGuard, get, post, startListener } from '../support/listener.ts';
import { connectTo, exchange, headOf, type RawClient } from '../support/socket.ts';
import { until } from '../support/until.ts';

const HOST = 'Host: gatehouse.test';
const MAX_BODIES = 1_024;
const { url, inFlight } = await startListener({ after }, [get('/a', async () => ({ data: 'a' })), post('/a'), post('/large', bearerGuard)]);

const BODY = '{"name":"posted"}';
const postFrom = (from: string) => exchange(url, ['POST /a HTTP/1.1', HOST, `Content-Length: ${BODY.length}`], BODY, from);

/** Clients that each send one byte of a body and wait. */
async function holdBodies(count: number, from: (n: number) => string): Promise<RawClient[]> {
  const clients = await Promise.all(Array.from({ length: count }, (_, n) => connectTo(url, from(n))));
  for (const client of clients) client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 10']), 'x');
  return clients;
}

test('one network that holds 1,024 slow bodies does not block the bodies of another', async () => {
  const clients = await holdBodies(MAX_BODIES, () => '127.0.0.2');
  await until(() => inFlight() === MAX_BODIES / 4, 'its share is used up and the rest is refused');
  const [own, other] = [await postFrom('127.0.0.2'), await postFrom('127.0.0.3')];
  assert.deepEqual([own.status, own.json.error.code, other.status], [503, 'overloaded', 200]);
  assert.match(own.json.error.message, /of your network/);
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'all slots are free');
});

test('beyond 1,024 bodies: 503 for another body, 200 for a request without one', async () => {
  const clients = await holdBodies(MAX_BODIES, (n) => `127.0.0.${2 + (n % 4)}`);
  await until(() => inFlight() === MAX_BODIES, 'all bodies are being received');
  const refused = await postFrom('127.0.0.9');
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  assert.equal((await exchange(url, ['GET /a HTTP/1.1', HOST])).status, 200);
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'all slots are free');
  assert.equal((await postFrom('127.0.0.9')).status, 200);
});

test('the bytes of all bodies together are bounded, and are free again afterwards', async () => {
  const large = 60_000;
  const head = headOf(['POST /large HTTP/1.1', HOST, 'Authorization: Bearer good', `Content-Length: ${large}`]);
  const clients = await Promise.all(Array.from({ length: 400 }, (_, n) => connectTo(url, `127.0.0.${2 + (n % 4)}`)));
  for (const client of clients) client.send(head, ' '.repeat(large - 1));
  await until(() => inFlight() > 0 && clients.some((client) => client.pending().includes(' 503 ')), 'some are refused');
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'all bytes are free');
  const body = BODY.padEnd(large);
  const fits = await exchange(url, ['POST /large HTTP/1.1', HOST, 'Authorization: Bearer good', `Content-Length: ${large}`], body);
  assert.equal(fits.status, 200);
});

test('a body is read correctly from chunks of one byte', async () => {
  const chunks = [...BODY].map((letter) => `1\r\n${letter}\r\n`).join('');
  const client = await connectTo(url);
  client.send(headOf(['POST /a HTTP/1.1', HOST, 'Transfer-Encoding: chunked']));
  for (const byte of chunks) {
    client.send(byte);
    await new Promise(setImmediate);
  }
  client.send('0\r\n\r\n');
  assert.equal((await client.answer()).json, 'posted');
  client.leave();
});

test('beyond 4,096 connections a new one is closed, and the others go on', { timeout: 60_000 }, async (t) => {
  const own = await startListener(t, [get('/a', async () => ({ data: 'a' }))]);
  const clients = [];
  // In waves, because the kernel's accept queue is limited.
  for (let wave = 0; wave < 32; wave += 1) clients.push(...(await Promise.all(Array.from({ length: 128 }, () => connectTo(own.url)))));
  const [first, second] = clients;
  assert.ok(first && second);
  first.send(headOf(['GET /a HTTP/1.1', HOST]));
  assert.equal((await first.answer()).status, 200);
  await (await connectTo(own.url)).closed();
  second.send(headOf(['GET /a HTTP/1.1', HOST]));
  assert.equal((await second.answer()).status, 200);
  for (const client of clients) client.leave();
});
