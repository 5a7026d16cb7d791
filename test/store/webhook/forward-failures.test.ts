/**
 * Every way in which a target can fail has a sentence, and the code for a search behind it. Targets
 * that answer 101 or only 1xx fail the attempt and never block.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { after } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { describeFailure } from '../../../src/webhook/failures.ts';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { holdTimers } from '../../support/clock.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { test } from '../../support/until.ts';
import {
  leasedEvent,
  stateOf,
  deliverOnce,
  untilStatus,
  sendEvent,
} from '../../support/webhook-store.ts';
import { listenOn } from '../../support/ports.ts';
import { listenOnTcp } from '../../support/socket.ts';

const portOf = (server: Server): Promise<number> =>
  listenOn(
    { after },
    server.on('connection', (socket) => socket.on('error', () => {})),
  );

async function failureOf(url: string, more: { body?: Buffer; signal?: AbortSignal } = {}) {
  const target = createForwardTarget({ url: new URL(url), secret: null, allowPrivate: true }, 1);
  after(() => target.close());
  const { signal = AbortSignal.timeout(20_000), ...given } = more;
  return (await target.deliver(leasedEvent(given), signal)).error;
}

const files = join(import.meta.dirname, '../../unit/vectors/tls');
const read = (name: string) => readFileSync(join(files, name));

/** Answers each request with raw bytes, and leaves the connection open. */
const target = { answer: (_socket: Socket): void => {}, requests: 0 };
const port = await listenOnTcp({ after }, (socket) => {
  socket.on('data', () => {
    target.requests += 1;
    target.answer(socket);
  });
});

test('a name without an address says so', async () => {
  assert.match(
    (await failureOf('http://no-such-host.invalid/')) ?? '',
    /^the name of the target (has no address in DNS \(ENOTFOUND\)|could not be looked up: DNS did not answer \(EAI_AGAIN\))$/,
  );
});

test('a certificate of an unknown authority, and TLS where there is none, say so', async () => {
  const options = { key: read('server.key'), cert: read('server.crt') };
  const port = await portOf(createTlsServer(options, () => {}));
  assert.equal(
    await failureOf(`https://localhost:${port}/`),
    "the target's certificate is of an unknown authority, or an intermediate certificate is missing; NODE_EXTRA_CA_CERTS names certificates to trust (UNABLE_TO_VERIFY_LEAF_SIGNATURE)",
  );
  assert.match(
    (await failureOf(`http://localhost:${port}/`)) ?? '',
    /^the target('s answer is not valid HTTP: its URL may begin with https \(HPE_\w+\)| closed the connection before it had answered \(ECONNRESET\))$/,
  );
  const plain = await portOf(
    createServer((socket) => socket.once('data', () => socket.end('HTTP/1.1 400 Bad\r\n\r\n'))),
  );
  assert.match(
    (await failureOf(`https://localhost:${plain}/`)) ?? '',
    /^the target uses another version of TLS, or none: then its URL begins with http \(\w+\)$/,
  );
});

type Treat = (socket: Socket, abort: () => void) => void;

test('an attempt that was aborted says for what it waited', async () => {
  const failureBy = async (scheme: string, treat: Treat, more: { body?: Buffer } = {}) => {
    const { signal, abort } = abortable();
    const port = await portOf(createServer((socket) => treat(socket, abort)));
    return failureOf(`${scheme}://127.0.0.1:${port}/`, { ...more, signal });
  };
  const silent: Treat = (socket, abort) => socket.once('data', abort);
  const deaf: Treat = (socket, abort) => {
    socket.pause();
    // By then, the other end knows of its connection, too.
    setImmediate(() => setImmediate(abort));
  };
  assert.equal(await failureBy('http', silent), 'the target did not answer');
  assert.equal(await failureBy('https', silent), 'the target did not complete the TLS handshake');
  assert.equal(
    await failureBy('http', deaf, { body: Buffer.alloc(30_000_000) }),
    'the target did not read the event',
  );
});

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}

test('each known code has a sentence of its own, and others have one, too', () => {
  const codes = [
    ...['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT'],
    ...['EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'EACCES', 'EPERM', 'EMFILE', 'EADDRNOTAVAIL'],
    ...['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID', 'CERT_REVOKED', 'CERT_REJECTED', 'EPROTO'],
    ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'HOSTNAME_MISMATCH'],
    ...['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'UNABLE_TO_DECRYPT_CERT_SIGNATURE', 'INVALID_CA'],
    ...[
      'ERR_TLS_CERT_ALTNAME_INVALID',
      'ERR_SSL_WRONG_VERSION_NUMBER',
      'ERR_TLS_HANDSHAKE_TIMEOUT',
    ],
    ...['ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', 'ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE'],
    ...['HPE_HEADER_OVERFLOW', 'HPE_INVALID_CONSTANT', 'ENEW', 'ERR_INVALID_CHAR'],
  ];
  for (const code of codes) {
    const text = describeFailure(Object.assign(new Error(), { code }));
    assert.match(text, new RegExp(`^(the|this|there|a) [a-z].{20,} \\(${code}\\)$`));
  }
  const texts = [
    ['CERT_HAS_EXPIRED', "the target's certificate has expired"],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', "the target's certificate is self-signed;"],
    ['ERR_TLS_CERT_ALTNAME_INVALID', "the target's certificate is for another name"],
    ['ETIMEDOUT', 'the target did not accept the connection'],
    ['EHOSTUNREACH', 'there is no route to the network of the target'],
  ] as const;
  for (const [code, start] of texts) {
    const text = describeFailure(Object.assign(new Error(), { code }));
    assert.ok(text.startsWith(start), text);
  }
  assert.equal(describeFailure(new Unavailable('ours')), 'ours');
  assert.equal(describeFailure(new Error('foreign')), 'the request to the target failed');
});

test('log, store, event show and what the inbox page reads have the same sentence', async (t) => {
  // No other timer has this length.
  const seconds = 77;
  const endAttempt = holdTimers(t, seconds * 1_000);
  const silent = await portOf(createServer((socket) => socket.once('data', endAttempt)));
  const { url, sql } = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['webhook'], url, {
    WEBHOOK_FORWARD_URL: `http://127.0.0.1:${silent}/`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RETRY_SCHEDULE: 'none',
    WEBHOOK_TIMEOUT: String(seconds),
  });
  const id = await sendEvent(gatehouse.url.webhook);
  await untilStatus(sql, id, 'dead');
  const error = `no result within ${seconds} s: the target did not answer`;
  assert.deepEqual((await stateOf(sql, id)).errors, [error]);
  assert.ok(gatehouse.stdout().includes(`"error":"${error}"`), gatehouse.stdout());
  const shown = await runCommand(['event', 'show', id], { DATABASE_URL: url });
  assert.ok(shown.stdout.includes(error), shown.stdout + shown.stderr);
  const operator = await runCommand(['token', 'create', '--role', 'operator'], {
    DATABASE_URL: url,
  });
  const read = (path: string) =>
    ask('GET', `${gatehouse.url.webhook}${path}`, { bearer: operator.stdout.trim() });
  const [event] = (await read('/events')).json;
  assert.equal(event.last_error, error);
  const [attempt] = (await read(`/events/${id}`)).json.attempts;
  assert.equal(attempt.error, error);
});

const SWITCH =
  'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n';

const SWITCHED = 'the target answered 101; it changed the protocol in place of an answer';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';

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
