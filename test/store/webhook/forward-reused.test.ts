/**
 * A target may close a kept connection just before the next event arrives. That is no failed
 * attempt: the event is sent once more on a connection of its own.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { after } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { test } from '../../support/until.ts';
import { stateOf, leasedEvent, untilEnded, sendEvent } from '../../support/webhook-store.ts';
import { listenOn } from '../../support/ports.ts';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';
const CLOSED = 'the target closed the connection before it had answered (ECONNRESET)';

/** What a connection does with its first request, its second one, and so on. */
type Script = ReadonlyArray<(socket: Socket) => void>;
const answer = (socket: Socket) => socket.write(OK);
const reset = (socket: Socket) => socket.resetAndDestroy();
const close = (socket: Socket) => socket.end();
const cut = (socket: Socket) => socket.destroy();
const begin = (socket: Socket) => socket.end('HTTP/1.1 2');

async function startTarget(scripts: readonly Script[], listen: Listen = createServer) {
  const sockets: Socket[] = [];
  let requests = 0;
  const server = listen((socket) => {
    const script = scripts[sockets.length] ?? [];
    sockets.push(socket);
    let at = 0;
    let text = '';
    socket
      .on('error', () => {})
      .on('data', (chunk) => {
        text += String(chunk);
        if (!text.endsWith('}')) return;
        text = '';
        requests += 1;
        script[at]?.(socket);
        at += 1;
      });
  });
  const port = await listenOn({ after }, server);
  return { port, requests: () => requests, connections: () => sockets.length };
}
type Listen = (treat: (socket: Socket) => void) => Server;

function forwardTo(url: string) {
  const forward = createForwardTarget({ url: new URL(url), secret: null, allowPrivate: true }, 1);
  after(() => forward.close());
  const event = () => leasedEvent({ body: Buffer.from('{}') });
  return async () => (await forward.deliver(event(), new AbortController().signal)).error;
}

for (const [how, end] of Object.entries({ reset, close, cut })) {
  test(`an event on a connection that the target had ended by ${how} is sent again`, async () => {
    const target = await startTarget([[answer, end], [answer]]);
    const deliver = forwardTo(`http://127.0.0.1:${target.port}/`);
    assert.equal(await deliver(), null);
    assert.equal(await deliver(), null);
    assert.deepEqual([target.requests(), target.connections()], [3, 2]);
  });
}

test('it is sent again once: a target that then closes as well has failed', async () => {
  const target = await startTarget([[answer, reset], [reset], [answer]]);
  const deliver = forwardTo(`http://127.0.0.1:${target.port}/`);
  assert.equal(await deliver(), null);
  assert.equal(await deliver(), CLOSED);
  assert.equal(target.requests(), 3);
  assert.equal(await deliver(), null);
});

test('an event on a new connection, or with the beginning of a reply, is not sent again', async () => {
  const first = await startTarget([[reset], [answer]]);
  assert.equal(await forwardTo(`http://127.0.0.1:${first.port}/`)(), CLOSED);
  assert.equal(first.requests(), 1);
  const begun = await startTarget([[answer, begin], [answer]]);
  const deliver = forwardTo(`http://127.0.0.1:${begun.port}/`);
  assert.equal(await deliver(), null);
  assert.notEqual(await deliver(), null);
  assert.equal(begun.requests(), 2);
});

test('the same with TLS', async (t) => {
  const files = join(import.meta.dirname, '../../unit/vectors/tls');
  const read = (name: string) => readFileSync(join(files, name));
  const listen: Listen = (treat) =>
    createTlsServer({ key: read('server.key'), cert: read('server.crt') }, treat);
  for (const end of [cut, close]) {
    const target = await startTarget([[answer, end], [answer]], listen);
    // Trusted by no authority of this machine, which is not the point here.
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
    t.after(() => delete process.env.NODE_TLS_REJECT_UNAUTHORIZED);
    const deliver = forwardTo(`https://localhost:${target.port}/`);
    assert.equal(await deliver(), null);
    assert.equal(await deliver(), null);
    assert.equal(target.requests(), 3);
  }
});

test('in the service it is no attempt: without retries no event dies of it', async (t) => {
  const scripts = Array.from({ length: 20 }, () => [answer, reset]);
  const target = await startTarget(scripts);
  const { url, sql } = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['webhook'], url, {
    WEBHOOK_FORWARD_URL: `http://127.0.0.1:${target.port}/`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RETRY_SCHEDULE: 'none',
    WEBHOOK_CONCURRENCY: '1',
  });
  const id = await sendEvent(gatehouse.url.webhook);
  await untilEnded(sql, id);
  const next = await sendEvent(gatehouse.url.webhook);
  await untilEnded(sql, next);
  for (const one of [id, next])
    assert.deepEqual(await stateOf(sql, one), { status: 'done', attempts: 1, errors: [] });
});
