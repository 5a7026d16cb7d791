/** More bodies under way than the process takes: the rest is told so, and whoever needs no body notices nothing. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { get, post, startListener } from '../support/listener.ts';
import { connectTo, exchange, headOf } from '../support/socket.ts';
import { until } from '../support/until.ts';

const HOST = 'Host: gatehouse.test';
const MOST = 1_024;
const { url, inFlight } = await startListener({ after }, [get('/a', async () => ({ data: 'a' })), post('/a')]);

test('with every place for a body taken, a further body is refused and a request without one is answered', async () => {
  const clients = await Promise.all(Array.from({ length: MOST }, () => connectTo(url)));
  for (const client of clients) client.send(headOf(['POST /a HTTP/1.1', HOST, 'Content-Length: 10']));
  await until(() => inFlight() === MOST, 'everybody is inside');
  const refused = await exchange(url, ['POST /a HTTP/1.1', HOST, 'Content-Length: 10']);
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  assert.equal((await exchange(url, ['GET /a HTTP/1.1', HOST])).status, 200);
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'the places are free again');
  const body = '{"name":"posted"}';
  assert.equal((await exchange(url, ['POST /a HTTP/1.1', HOST, `Content-Length: ${body.length}`], body)).status, 200);
});

test('beyond 4,096 connections a further one is closed, and those that are there go on', { timeout: 60_000 }, async (t) => {
  const own = await startListener(t, [get('/a', async () => ({ data: 'a' }))]);
  const clients = [];
  // Some at a time: a kernel keeps no more waiting at a door.
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
