/** Bodies that arrive while the credential of their request is checked: their memory is bounded. */
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { after, afterEach, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import type { Guard } from '../../../src/platform/http/route/route.ts';
import { holdTimers } from '../../support/clock.ts';
import { post, startPatient } from '../../support/listener.ts';
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
