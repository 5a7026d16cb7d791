/**
 * Bodies that arrive while the credential of their request is checked: their memory is bounded. And
 * unfinished bodies of one network, or without a credential, leave room for the others.
 */
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { after, afterEach, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { json } from '../../../src/platform/http/route/json-body.ts';
import { type Guard, route, routeDefaults } from '../../../src/platform/http/route/route.ts';
import { object, text } from '../../../src/platform/http/route/schema.ts';
import { holdTimers, stopClock } from '../../support/clock.ts';
import { bearerGuard, post, startPatient } from '../../support/listener.ts';
import { connectTo, exchange, headOf, type RawClient } from '../../support/socket.ts';
import { until } from '../../support/until.ts';

const MIB = 2 ** 20;
const HOST = 'Host: gatehouse.test';
const SIZE = 60_000;
const BODY = '{"name":"x"}'.padEnd(SIZE);
const CLIENTS = 200;
const SHARE = 2 * MIB;
const ATTACKER = '127.0.0.66';
const OTHER = '127.0.0.2';
/** How long the other connections of a full network are not read. */
const MAX_PAUSE_MS = 1_000;

/** The requests with a wrong token that wait for `refuseAll`. */
let waiting: Array<() => void> = [];
function refuseAll() {
  for (const refuse of waiting) refuse();
  waiting = [];
}

const guard: Guard<null, null> = {
  security: ['bearer'],
  errors: ['unauthorized'],
  async check({ headers }) {
    // As long as a question to the database, at least.
    await new Promise(setImmediate);
    if (headers.authorization === 'Bearer good') return null;
    await new Promise<void>((resolve) => waiting.push(resolve));
    return new Failure('unauthorized');
  },
};
const { url, inFlight } = await startPatient({ after }, [post('/a', guard)]);

const head = (token: string, ...more: readonly string[]) =>
  headOf(['POST /a HTTP/1.1', HOST, `Authorization: Bearer ${token}`, ...more]);
const LENGTH = `Content-Length: ${SIZE}`;

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
const budgets = await startPatient({ after }, routes);
const signed = await startPatient({ after }, [...routes, large('/signed', SIGNED)]);

setFlagsFromString('--expose-gc');
const collect: () => void = runInNewContext('gc');
/** The memory of buffers after a garbage collection. */
function buffers() {
  collect();
  collect();
  return process.memoryUsage().arrayBuffers;
}

let clients: RawClient[] = [];
async function connectAll() {
  clients = await Promise.all(Array.from({ length: CLIENTS }, () => connectTo(url, ATTACKER)));
}

/** What a test has begun must not go on behind it. */
afterEach(async () => {
  refuseAll();
  for (const client of clients) client.leave();
  await until(() => inFlight() === 0, 'all requests are over');
});

const isRefused = (client: RawClient) => client.pending().includes(' 503 ');

/** Whether large bodies of another network are accepted. */
async function assertOthersPass() {
  const valid = Array.from({ length: 10 }, () =>
    exchange(url, head('good', LENGTH).trimEnd().split('\r\n'), BODY, OTHER),
  );
  for (const { status } of await Promise.all(valid)) assert.equal(status, 200);
}

for (const [what, framing, body] of [
  ['of a stated length', LENGTH, BODY],
  ['in chunks', 'Transfer-Encoding: chunked', `${SIZE.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`],
] as const) {
  test(`complete bodies ${what} with wrong tokens: one network has its share`, async () => {
    await connectAll();
    const before = buffers();
    for (const client of clients) client.send(head('wrong', framing), body);
    await until(
      () => waiting.length + clients.filter(isRefused).length === CLIENTS,
      'all have arrived',
    );
    assert.ok(waiting.length * SIZE <= SHARE, `${waiting.length} wait`);
    assert.ok(waiting.length * SIZE >= SHARE / 2, `only ${waiting.length} wait`);
    assert.ok(buffers() - before < 2 * SHARE, `${(buffers() - before) / MIB} MiB`);
    assert.match(clients.find(isRefused)?.pending() ?? '', /\r\nRetry-After: \d+\r\n/);
    await assertOthersPass();
  });

  test(`bodies ${what} that follow their first bytes are not read before the check`, async () => {
    await connectAll();
    const before = buffers();
    for (const client of clients) client.send(head('wrong', framing), body.slice(0, 10));
    await until(() => waiting.length === CLIENTS, 'all wait');
    for (const client of clients) client.send(body.slice(10));
    await assertOthersPass();
    assert.ok(buffers() - before < 2 * SHARE, `${(buffers() - before) / MIB} MiB`);
    refuseAll();
    for (const client of clients) assert.equal((await client.answer()).status, 401);
  });
}

for (const [whose, isProxy] of [
  ['one network', false],
  ['one client of a trusted proxy', true],
] as const) {
  test(`complete bodies of ${whose} with valid tokens wait for the checks: none is refused`, async (t) => {
    const proxies = new BlockList();
    if (isProxy) proxies.addAddress(ATTACKER);
    // A slow machine may need longer until one of them has an answer.
    holdTimers(t, MAX_PAUSE_MS);
    const own = await startPatient(t, [post('/a', guard)], proxies);
    const request = head('good', LENGTH, 'X-Forwarded-For: 192.0.2.1') + BODY;
    clients = await Promise.all(
      Array.from({ length: CLIENTS }, () => connectTo(own.url, ATTACKER)),
    );
    for (let round = 0; round < 3; round += 1) {
      for (const client of clients) client.send(request);
      const answers = await Promise.all(clients.map((client) => client.answer()));
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    }
  });
}

test('without room, a request of the same network without a body is answered after a moment', async () => {
  await connectAll();
  for (const client of clients) client.send(head('wrong', LENGTH), BODY);
  await until(() => clients.some(isRefused), 'the share is used up');
  const { status } = await exchange(url, ['GET /none HTTP/1.1', HOST], '', ATTACKER);
  assert.equal(status, 404);
  await until(
    () => waiting.length + clients.filter(isRefused).length === CLIENTS,
    'all have arrived',
  );
});

test('small bodies are never refused for their number', async () => {
  const small = '{"name":"x"}';
  await connectAll();
  const text = head('wrong', `Content-Length: ${small.length}`) + small;
  for (let round = 0; round < 2; round += 1) {
    for (const client of clients) client.send(text);
    await until(() => waiting.length === CLIENTS, 'all wait');
    refuseAll();
    for (const client of clients) assert.equal((await client.answer()).status, 401);
  }
});

test('large bodies: pipelining, 100-continue, and reuse after a refusal', async () => {
  const client = await connectTo(url);
  client.send(head('wrong', LENGTH), BODY);
  await until(() => waiting.length === 1, 'it waits');
  refuseAll();
  assert.equal((await client.answer()).status, 401);
  client.send(head('good', LENGTH), BODY, head('good', LENGTH), BODY, head('good', LENGTH), BODY);
  for (let count = 0; count < 3; count += 1) assert.equal((await client.answer()).status, 200);
  client.send(head('good', LENGTH, 'Expect: 100-continue'));
  assert.equal((await client.answer()).status, 100);
  client.send(BODY);
  assert.equal((await client.answer()).status, 200);
  client.send(head('good', LENGTH), BODY.slice(0, 10));
  await new Promise(setImmediate);
  client.send(BODY.slice(10));
  assert.equal((await client.answer()).status, 200);
  client.leave();
});

// --- Unfinished bodies

/** Clients that send the head of a body of `length` bytes, but only `sent` of them. */
async function holdBodies(
  to: string,
  [count, path, length, sent]: readonly [number, string, number, number],
  from: (n: number) => string,
): Promise<RawClient[]> {
  const begun = headOf([`POST ${path} HTTP/1.1`, HOST, TOKEN, `Content-Length: ${length}`]);
  const held = await Promise.all(Array.from({ length: count }, (_, n) => connectTo(to, from(n))));
  for (const client of held) client.send(begun, ' ');
  // In two pieces, so that the buffers double. After this reply, the first piece has been read.
  await statusOf(to, '/usual', 100, '127.0.0.3');
  for (const client of held) client.send(' '.repeat(sent - 1));
  return held;
}

/** The status of a body that does not arrive with its head. */
async function statusOf(to: string, path: string, size: number, from: string) {
  const body = '{"name":"x"}'.padEnd(size);
  const chunks = `${size.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const lines = [`POST ${path} HTTP/1.1`, HOST, TOKEN, 'Transfer-Encoding: chunked'];
  return (await exchange(to, lines, chunks, from)).status;
}

async function leave(held: readonly RawClient[], running: () => number) {
  for (const client of held) client.leave();
  await until(() => running() === 0, 'all bodies are released');
}

for (const bodies of [
  [126, '/file', FILE, 66_000],
  [256, '/usual', 65_536, 34_000],
] as const) {
  test(`${bodies[0]} unfinished bodies of one network do not block those of another`, async (t) => {
    // No body is too slow.
    stopClock(t);
    const held = await holdBodies(budgets.url, bodies, () => ATTACKER);
    await until(() => held.some(isRefused), 'the share is used up');
    assert.equal(await statusOf(budgets.url, '/file', FILE, ATTACKER), 503, 'its own are refused');
    for (let round = 0; round < 3; round += 1) {
      // For what the refused ones have left.
      const more = await holdBodies(budgets.url, [4, '/usual', 65_536, 30_000], () => ATTACKER);
      held.push(...more);
      for (const [path, size] of [
        ['/usual', 100],
        ['/usual', 30_000],
        ['/usual', 60_000],
        ['/file', 200_000],
        ['/file', FILE],
      ] as const)
        assert.equal(await statusOf(budgets.url, path, size, OTHER), 200, `${size} bytes`);
    }
    await leave(held, budgets.inFlight);
    assert.equal(await statusOf(budgets.url, '/file', FILE, ATTACKER), 200);
  });
}

test('bodies without a credential do not block those with one', async (t) => {
  stopClock(t);
  const bodies = [6, '/visitor', FILE, FILE - 1] as const;
  const held = await holdBodies(budgets.url, bodies, (n) => `127.0.0.${11 + n}`);
  await until(() => held.some(isRefused), 'their memory is used up');
  assert.equal(await statusOf(budgets.url, '/visitor', FILE, '127.0.0.99'), 503);
  assert.equal(await statusOf(budgets.url, '/file', FILE, '127.0.0.99'), 200);
  await leave(held, budgets.inFlight);
  assert.equal(await statusOf(budgets.url, '/visitor', FILE, '127.0.0.99'), 200);
});

test('a network can send the largest body, which leaves room for as much of the others', async (t) => {
  stopClock(t);
  const to = signed.url;
  const [client] = await holdBodies(to, [1, '/signed', SIGNED, SIGNED - 1], () => ATTACKER);
  assert.ok(client);
  await until(() => client.socket.writableLength === 0, 'all but one byte is sent');
  assert.equal(await statusOf(to, '/usual', 60_000, OTHER), 200);
  assert.equal(await statusOf(to, '/signed', SIGNED, OTHER), 200);
  assert.equal(await statusOf(to, '/signed', SIGNED, ATTACKER), 503, 'its own are refused');
  client.send(' ');
  assert.equal((await client.answer()).status, 400, 'it is read to its end');
  client.leave();
  assert.equal(await statusOf(to, '/signed', SIGNED, ATTACKER), 200);
});

test('a body is read correctly from chunks of one byte', async () => {
  const client = await connectTo(budgets.url);
  client.send(headOf(['POST /usual HTTP/1.1', HOST, TOKEN, 'Transfer-Encoding: chunked']));
  for (const byte of [...'{"name":"posted"}'].map((letter) => `1\r\n${letter}\r\n`).join('')) {
    client.send(byte);
    await new Promise(setImmediate);
  }
  client.send('0\r\n\r\n');
  assert.equal((await client.answer()).json, 'posted');
  client.leave();
});
