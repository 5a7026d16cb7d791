/** Targets that answer 101 or only 1xx fail the attempt and never block. */
import assert from 'node:assert/strict';
import { type Socket } from 'node:net';
import { after } from 'node:test';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { test } from '../../support/until.ts';
import { deliverOnce, stateOf, leasedEvent } from '../../support/webhook-store.ts';
import { listenOnTcp } from '../../support/socket.ts';

const SWITCH =
  'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n';
const SWITCHED = 'the target answered 101; it changed the protocol in place of an answer';
const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';

/** Answers each request with raw bytes, and leaves the connection open. */
const target = { answer: (_socket: Socket): void => {}, requests: 0 };
const port = await listenOnTcp({ after }, (socket) => {
  socket.on('data', () => {
    target.requests += 1;
    target.answer(socket);
  });
});
const url = `http://127.0.0.1:${port}/`;
const forward = createForwardTarget({ url: new URL(url), secret: null, allowPrivate: true }, 1);
after(() => forward.close());
const never = new AbortController().signal;

test('a 101 reply fails the attempt at once, and its connection is not reused', async () => {
  const cases = [
    [SWITCH, SWITCHED],
    ['HTTP/1.1 101 X\r\n\r\n', SWITCHED],
    [`HTTP/1.1 103 Early Hints\r\n\r\n${SWITCH}`, SWITCHED],
    [`${SWITCH}${OK}`, SWITCHED],
  ] as const;
  for (const [answer, error] of cases) {
    target.answer = (socket) => {
      socket.write(answer);
    };
    assert.equal((await forward.deliver(leasedEvent(), never))?.error, error, answer);
    target.answer = (socket) => {
      socket.write(OK);
    };
    assert.equal(await deliverOnce(forward, leasedEvent()), null, 'the next event');
  }
});

test('1xx replies are ignored: the final reply decides', async () => {
  for (const interim of ['100 Continue', '102 Processing', '103 Early Hints', '199 X']) {
    target.answer = (socket) => {
      socket.write(`HTTP/1.1 ${interim}\r\n\r\nHTTP/1.1 ${interim}\r\n\r\n${OK}`);
    };
    assert.equal(await deliverOnce(forward, leasedEvent()), null, interim);
    target.answer = (socket) => {
      socket.write(`HTTP/1.1 ${interim}\r\n\r\nHTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n`);
    };
    assert.deepEqual(
      await forward.deliver(leasedEvent(), never),
      { error: 'the target answered 503', answer_status: 503, answer: '', retryAfter: null },
      interim,
    );
  }
});

test('endless 1xx replies meet the time limit, and the next event is delivered', async () => {
  target.answer = (socket) => {
    const promise = () => {
      if (socket.destroyed) return;
      socket.write('HTTP/1.1 103 Early Hints\r\n\r\n', () => setImmediate(promise));
    };
    promise();
  };
  assert.notEqual(await deliverOnce(forward, leasedEvent(), 300), null);
  target.answer = (socket) => {
    socket.write(OK);
  };
  assert.equal(await deliverOnce(forward, leasedEvent()), null);
});

test('in the service each 101 reply is one failed attempt, and later events are delivered', async (t) => {
  const database = await createDatabase(t);
  // One slot, and a time limit longer than the test.
  const gatehouse = await startGatehouse(t, ['webhook'], database.url, {
    WEBHOOK_FORWARD_URL: url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_CONCURRENCY: '1',
    WEBHOOK_RETRY_SCHEDULE: '1ms,2ms',
    WEBHOOK_TIMEOUT: '300',
  });
  const post = async (): Promise<string> =>
    (
      await ask('POST', `${gatehouse.url.webhook}/webhook`, {
        bearer: WEBHOOK_TOKEN,
        body: { event: 'e', data: { page_id: 'p' } },
      })
    ).json.id;
  const ended = (id: string) =>
    untilSql(
      async () => (await stateOf(database.sql, id)).status !== 'waiting',
      'the event has ended',
    );
  target.requests = 0;
  target.answer = (socket) => {
    socket.write(SWITCH);
  };
  const dead = await post();
  await ended(dead);
  assert.deepEqual(await stateOf(database.sql, dead), {
    status: 'dead',
    attempts: 3,
    errors: [SWITCHED, SWITCHED, SWITCHED],
  });
  assert.equal(target.requests, 3);
  target.answer = (socket) => {
    socket.write(OK);
  };
  const done = await post();
  await ended(done);
  assert.deepEqual(await stateOf(database.sql, done), {
    status: 'done',
    attempts: 1,
    errors: [],
  });
});
