/** More bodies and connections than the process accepts. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { get, post, startListener } from '../support/listener.ts';
import { connectTo, exchange, headOf } from '../support/socket.ts';
import { until } from '../support/until.ts';

const HOST = 'Host: gatehouse.test';
const MAX_BODIES = 1_024;
const { url, inFlight } = await startListener({ after }, [get('/a', async () => ({ data: 'a' })), post('/a')]);

test('beyond 1,024 bodies: 503 for another body, 200 for a request without one', async () => {
  const clients = await Promise.all(Array.from({ length: MAX_BODIES }, () => connectTo(url)));
  for (const client of clients) client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 10']));
  await until(() => inFlight() === MAX_BODIES, 'all bodies are being received');
  const refused = await exchange(url, ['POST /a HTTP/1.1', HOST, 'Content-Length: 10']);
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  assert.equal((await exchange(url, ['GET /a HTTP/1.1', HOST])).status, 200);
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'all slots are free');
  const body = '{"name":"posted"}';
  assert.equal((await exchange(url, ['POST /a HTTP/1.1', HOST, `Content-Length: ${body.length}`], body)).status, 200);
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
