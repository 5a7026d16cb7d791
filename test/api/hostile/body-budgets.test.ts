/** Unfinished bodies of one network, or without a credential, leave room for the others. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { json } from '../../../src/platform/http/route/json-body.ts';
import { route, routeDefaults } from '../../../src/platform/http/route/route.ts';
import { object, text } from '../../../src/platform/http/route/schema.ts';
import { stopClock } from '../../support/clock.ts';
import { bearerGuard, post, startPatient } from '../../support/listener.ts';
import { connectTo, exchange, headOf, type RawClient } from '../../support/socket.ts';
import { until } from '../../support/until.ts';

const HOST = 'Host: gatehouse.test';
const TOKEN = 'Authorization: Bearer good';
const FILE = 1_600_000;
const SIGNED = 25 * 1024 * 1024;

const visitorGuard = { ...bearerGuard, isAnonymous: () => true };
const large = (pattern: string, limit: number, guard = bearerGuard) =>
  route({
    ...routeDefaults,
    method: 'POST',
    pattern,
    summary: 'for a test',
    guard,
    body: json(object({ name: text() })),
    maxBodyBytes: () => limit,
    reply: null,
    handle: async ({ body }) => ({ data: body.name.length }),
  });
const routes = [
  post('/usual', bearerGuard),
  large('/file', FILE),
  large('/visitor', FILE, visitorGuard),
];
const { url, inFlight } = await startPatient({ after }, routes);
const signed = await startPatient({ after }, [...routes, large('/signed', SIGNED)]);

/** Clients that send the head of a body of `length` bytes, but only `sent` of them. */
async function holdBodies(
  to: string,
  [count, path, length, sent]: readonly [number, string, number, number],
  from: (n: number) => string,
): Promise<RawClient[]> {
  const head = headOf([`POST ${path} HTTP/1.1`, HOST, TOKEN, `Content-Length: ${length}`]);
  const clients = await Promise.all(
    Array.from({ length: count }, (_, n) => connectTo(to, from(n))),
  );
  for (const client of clients) client.send(head, ' ');
  // In two pieces, so that the buffers double. After this reply, the first piece has been read.
  await statusOf(to, '/usual', 100, '127.0.0.3');
  for (const client of clients) client.send(' '.repeat(sent - 1));
  return clients;
}

const isRefused = (client: RawClient) => client.pending().includes(' 503 ');

/** The status of a body that does not arrive with its head. */
async function statusOf(to: string, path: string, size: number, from: string) {
  const body = '{"name":"x"}'.padEnd(size);
  const chunks = `${size.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const head = [`POST ${path} HTTP/1.1`, HOST, TOKEN, 'Transfer-Encoding: chunked'];
  return (await exchange(to, head, chunks, from)).status;
}

async function leave(clients: readonly RawClient[], running: () => number) {
  for (const client of clients) client.leave();
  await until(() => running() === 0, 'all bodies are released');
}

for (const held of [
  [126, '/file', FILE, 66_000],
  [256, '/usual', 65_536, 34_000],
] as const) {
  test(`${held[0]} unfinished bodies of one network do not block those of another`, async (t) => {
    // No body is too slow.
    stopClock(t);
    const clients = await holdBodies(url, held, () => '127.0.0.66');
    await until(() => clients.some(isRefused), 'the share is used up');
    assert.equal(await statusOf(url, '/file', FILE, '127.0.0.66'), 503, 'its own are refused');
    for (let round = 0; round < 3; round += 1) {
      // For what the refused ones have left.
      const more = await holdBodies(url, [4, '/usual', 65_536, 30_000], () => '127.0.0.66');
      clients.push(...more);
      for (const [path, size] of [
        ['/usual', 100],
        ['/usual', 30_000],
        ['/usual', 60_000],
        ['/file', 200_000],
        ['/file', FILE],
      ] as const)
        assert.equal(await statusOf(url, path, size, '127.0.0.2'), 200, `${size} bytes`);
    }
    await leave(clients, inFlight);
    assert.equal(await statusOf(url, '/file', FILE, '127.0.0.66'), 200);
  });
}

test('bodies without a credential do not block those with one', async (t) => {
  stopClock(t);
  const held = [6, '/visitor', FILE, FILE - 1] as const;
  const clients = await holdBodies(url, held, (n) => `127.0.0.${11 + n}`);
  await until(() => clients.some(isRefused), 'their memory is used up');
  assert.equal(await statusOf(url, '/visitor', FILE, '127.0.0.99'), 503);
  assert.equal(await statusOf(url, '/file', FILE, '127.0.0.99'), 200);
  await leave(clients, inFlight);
  assert.equal(await statusOf(url, '/visitor', FILE, '127.0.0.99'), 200);
});

test('a network can send the largest body, which leaves room for as much of the others', async (t) => {
  stopClock(t);
  const to = signed.url;
  const [client] = await holdBodies(to, [1, '/signed', SIGNED, SIGNED - 1], () => '127.0.0.66');
  assert.ok(client);
  await until(() => client.socket.writableLength === 0, 'all but one byte is sent');
  assert.equal(await statusOf(to, '/usual', 60_000, '127.0.0.2'), 200);
  assert.equal(await statusOf(to, '/signed', SIGNED, '127.0.0.2'), 200);
  assert.equal(await statusOf(to, '/signed', SIGNED, '127.0.0.66'), 503, 'its own are refused');
  client.send(' ');
  assert.equal((await client.answer()).status, 400, 'it is read to its end');
  client.leave();
  assert.equal(await statusOf(to, '/signed', SIGNED, '127.0.0.66'), 200);
});

test('a body is read correctly from chunks of one byte', async () => {
  const client = await connectTo(url);
  client.send(headOf(['POST /usual HTTP/1.1', HOST, TOKEN, 'Transfer-Encoding: chunked']));
  for (const byte of [...'{"name":"posted"}'].map((letter) => `1\r\n${letter}\r\n`).join('')) {
    client.send(byte);
    await new Promise(setImmediate);
  }
  client.send('0\r\n\r\n');
  assert.equal((await client.answer()).json, 'posted');
  client.leave();
});
