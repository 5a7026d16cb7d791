/**
 * A target that fails does so with a reason. A reply that never ends, or that is none, blocks
 * nothing. A kept connection that the target had closed is no failure: the event is sent once more,
 * on a connection of its own.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { after } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { describeFailure } from '../../../src/webhook/failures.ts';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { freePorts, listenOn } from '../../support/ports.ts';
import { test, until } from '../../support/until.ts';
import { leasedEvent } from '../../support/webhook-store.ts';

type Treat = (socket: Socket) => unknown;
type Listen = (treat: Treat) => Server;

const read = (name: string) =>
  readFileSync(join(import.meta.dirname, '../../unit/vectors/tls', name));
const ofTls: Listen = (treat) =>
  createTlsServer({ key: read('server.key'), cert: read('server.crt') }, treat);

const portOf = (treat: Treat, listen: Listen = createServer) =>
  listenOn(
    { after },
    listen(treat).on('connection', (socket: Socket) => socket.on('error', () => {})),
  );
const urlOf = async (treat: Treat) => `http://127.0.0.1:${await portOf(treat)}/`;

/** One connection at a time, so that one that is blocked would block the next event. */
function forwardTo(url: string) {
  const target = createForwardTarget({ url: new URL(url), secret: null, allowPrivate: true }, 1);
  after(() => target.close());
  return async ({ body = Buffer.from('{}'), signal = AbortSignal.timeout(60_000) } = {}) =>
    (await target.deliver(leasedEvent({ body }), signal)).error;
}
const failureOf = async (url: string) => (await forwardTo(url)()) ?? '';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';
const CLOSED = 'the target closed the connection before it had answered (ECONNRESET)';
const replying =
  (reply: string): Treat =>
  (socket) =>
    socket.once('data', () => socket.end(reply));

test('a target that is down, hangs up or sends no HTTP fails with its reason', async () => {
  const [port] = await freePorts(1);
  const cases: ReadonlyArray<readonly [url: string, error: RegExp]> = [
    [
      'http://no-such-host.invalid/',
      /^the name of the target (has no address in DNS \(ENOTFOUND\)|could not be looked up)/,
    ],
    [`http://127.0.0.1:${port}/`, /nothing listens at its port \(ECONNREFUSED\)$/],
    [await urlOf((socket) => socket.destroy()), /before it had answered \(ECONNRESET\)$/],
    [await urlOf(replying('')), /before it had answered \(ECONNRESET\)$/],
    [await urlOf(replying('HTTP/1.1 200 OK\r\nx: ')), /before it had answered \(ECONNRESET\)$/],
    [await urlOf(replying('220 ESMTP\r\n')), /not valid HTTP: its URL may begin with https \(HPE_/],
    [await urlOf(replying(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(100_000)}`)), /HEADER_OVERFLOW\)$/],
    [`https://localhost:${await portOf(() => {}, ofTls)}/`, /\(UNABLE_TO_VERIFY_LEAF_SIGNATURE\)$/],
    [
      (await urlOf(replying('HTTP/1.1 400 Bad\r\n\r\n'))).replace('http', 'https'),
      /^the target uses another version of TLS, or none/,
    ],
  ];
  for (const [url, error] of cases) assert.match(await failureOf(url), error);
  assert.equal(describeFailure(new Error('foreign')), 'the request to the target failed');
});

test('an attempt that is aborted says for what it waited', async () => {
  const controllerOf =
    (scheme: string, treat: (socket: Socket, abort: () => void) => unknown) =>
    async (body = Buffer.from('{}')) => {
      const controller = new AbortController();
      const abort = () => controller.abort();
      const port = await portOf((socket) => treat(socket, abort));
      return forwardTo(`${scheme}://127.0.0.1:${port}/`)({ body, signal: controller.signal });
    };
  const begun = new AbortController();
  const early = forwardTo('http://127.0.0.1:9/')({ signal: begun.signal });
  begun.abort();
  assert.equal(await early, 'there was no connection to the target');
  const silent = (socket: Socket, abort: () => void) => socket.once('data', abort);
  const deaf = (socket: Socket, abort: () => void) => {
    socket.pause();
    // By then, the other end knows of its connection, too.
    setImmediate(() => setImmediate(abort));
  };
  const half = (socket: Socket, abort: () => void) =>
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\n', abort));
  assert.equal(await controllerOf('http', silent)(), 'the target did not answer');
  assert.equal(await controllerOf('http', half)(), 'the target did not answer');
  const secure = controllerOf('https', silent);
  assert.equal(await secure(), 'the target did not complete the TLS handshake');
  const unread = await controllerOf('http', deaf)(Buffer.alloc(30_000_000));
  assert.equal(unread, 'the target did not read the event');
});

test('an endless, broken or invalid body after a 2xx is a success and frees its connection', async () => {
  let poured = 0;
  let isOver = false;
  const flood = forwardTo(
    await urlOf((socket) => {
      const chunk = Buffer.alloc(65_536);
      const pour = () => {
        let hasRoom = !socket.destroyed;
        while (hasRoom) {
          poured += chunk.length;
          hasRoom = socket.write(chunk);
        }
      };
      socket.on('drain', pour).on('close', () => {
        isOver = true;
      });
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\n\r\n', pour));
    }),
  );
  assert.equal(await flood(), null);
  await until(() => isOver, 'the flood is cut off');
  assert.ok(poured < 32_000_000, `${poured} bytes, more than what fits between two sockets`);
  for (const body of [
    'content-length: 100\r\n\r\nhalf',
    'transfer-encoding: chunked\r\n\r\nnonsense\r\n',
    'transfer-encoding: chunked\r\n\r\n1\r\n.\r\n',
  ]) {
    let closed = 0;
    const deliver = forwardTo(
      await urlOf((socket) =>
        socket
          .on('close', () => {
            closed += 1;
          })
          .once('data', () => socket.write(`HTTP/1.1 200 OK\r\n${body}`)),
      ),
    );
    assert.deepEqual([await deliver(), await deliver()], [null, null], body);
    await until(() => closed === 2, 'the connections have ended');
  }
});

test('a 101 reply fails the attempt and its connection; of 1xx replies, the final one decides', async () => {
  let reply = '';
  const deliver = forwardTo(await urlOf((socket) => socket.on('data', () => socket.write(reply))));
  const answered = (text: string) => {
    reply = text;
    return deliver();
  };
  const SWITCH = 'HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n';
  const HINT = 'HTTP/1.1 103 Early Hints\r\n\r\n';
  for (const text of [SWITCH, 'HTTP/1.1 101 X\r\n\r\n', HINT + SWITCH, SWITCH + OK]) {
    const error = 'the target answered 101; it changed the protocol in place of an answer';
    assert.equal(await answered(text), error, text);
    assert.equal(await answered(OK), null, 'the next event');
  }
  for (const interim of ['100 Continue', '102 Processing', '103 Early Hints', '199 X']) {
    const twice = `HTTP/1.1 ${interim}\r\n\r\n`.repeat(2);
    assert.equal(await answered(twice + OK), null, interim);
    const failed = `${twice}HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n`;
    assert.equal(await answered(failed), 'the target answered 503', interim);
  }
});

test('endless 1xx replies end with the attempt, and the next event is delivered', async () => {
  const controller = new AbortController();
  let hints = 0;
  const deliver = forwardTo(
    await urlOf((socket) => {
      const promise = () => {
        hints += 1;
        if (hints === 100) controller.abort();
        if (socket.destroyed) return;
        socket.write('HTTP/1.1 103 Early Hints\r\n\r\n', () => setImmediate(promise));
      };
      socket.once('data', () => (hints === 0 ? promise() : socket.end(OK)));
    }),
  );
  assert.equal(await deliver({ signal: controller.signal }), 'the target did not answer');
  assert.equal(await deliver(), null);
});

const answer = (socket: Socket) => socket.write(OK);
const reset = (socket: Socket) => socket.resetAndDestroy();
const close = (socket: Socket) => socket.end();
const cut = (socket: Socket) => socket.destroy();
const begin = (socket: Socket) => socket.end('HTTP/1.1 2');

/** @param scripts what each connection does with its first request, its second one, and so on */
async function scripted(scripts: ReadonlyArray<readonly Treat[]>, listen?: Listen) {
  let connections = 0;
  let requests = 0;
  const port = await portOf((socket) => {
    const steps = [...(scripts[connections] ?? [])];
    connections += 1;
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += String(chunk);
      if (!text.endsWith('}')) return;
      text = '';
      requests += 1;
      steps.shift()?.(socket);
    });
  }, listen);
  const deliver = forwardTo(`${listen ? 'https' : 'http'}://localhost:${port}/`);
  return { deliver, counts: () => [requests, connections] };
}

for (const [how, end, listen] of [
  ['reset', reset],
  ['close', close],
  ['cut', cut],
  ['close with TLS', close, ofTls],
  ['cut with TLS', cut, ofTls],
] as const)
  test(`an event on a kept connection that the target had ended by ${how} is sent again`, async (t) => {
    // Trusted by no authority of this machine, which is not the point here.
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
    t.after(() => delete process.env.NODE_TLS_REJECT_UNAUTHORIZED);
    const { deliver, counts } = await scripted([[answer, end], [answer]], listen);
    assert.deepEqual([await deliver(), await deliver(), ...counts()], [null, null, 3, 2]);
  });

test('it is sent again once, and not from a new connection or after the beginning of a reply', async () => {
  const again = await scripted([[answer, reset], [reset], [answer]]);
  const outcomes = [await again.deliver(), await again.deliver(), await again.deliver()];
  assert.deepEqual([...outcomes, ...again.counts()], [null, CLOSED, null, 4, 3]);
  const fresh = await scripted([[reset], [answer]]);
  assert.deepEqual([await fresh.deliver(), ...fresh.counts()], [CLOSED, 1, 1]);
  const begun = await scripted([[answer, begin], [answer]]);
  assert.equal(await begun.deliver(), null);
  assert.deepEqual([await begun.deliver(), ...begun.counts()], [CLOSED, 2, 1]);
});
