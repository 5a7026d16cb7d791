/**
 * Bodies that are invalid, too large or incomplete, sent to the real services: the right status,
 * and nothing stored.
 */
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { ask, AUTH_TOKEN, launch, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { connectTo, exchange, headOf } from '../../support/socket.ts';

const MAX_BODY_BYTES = 64 * 1024;
const { url, sql } = await launch(['identity', 'secrets', 'webhook']);

/** Of each service, and of the metrics, which are being asked for. */
async function inFlight(): Promise<string> {
  const { text } = await ask('GET', `${url.metrics}/metrics`);
  const gauges = text.matchAll(/gatehouse_requests_in_flight\{service="(\w+)"\} (\d+)/g);
  return [...gauges]
    .map(([, service, count]) => `${service} ${count}`)
    .sort()
    .join();
}

/** What a test has begun must not go on behind it. */
afterEach(() =>
  untilSql(
    async () => (await inFlight()) === 'identity 0,metrics 1,secrets 0,webhook 0',
    'no request is in flight',
  ),
);

const TYPE = 'Content-Type: application/json';
interface Endpoint {
  readonly url: string;
  readonly head: readonly string[];
  /** A valid body, which white space may follow. */
  readonly good: string;
  readonly success: number;
  /** The largest body in bytes: without a credential, 8 KiB. */
  readonly limit: number;
  /** And the largest that says its length: with 12 KiB for a password. */
  readonly declared?: number;
}
const endpoints: Readonly<Record<string, Endpoint>> = {
  login: {
    url: url.identity,
    head: ['POST /api/auth/login HTTP/1.1', 'Host: a', TYPE],
    good: '{"username":"nobody","password":"wrong"}',
    success: 401,
    limit: 8 * 1024,
    declared: 20 * 1024,
  },
  encrypt: {
    url: url.secrets,
    head: ['POST /api/store/encrypt HTTP/1.1', 'Host: a', `Authorization: Bearer ${AUTH_TOKEN}`],
    good: '{"password":"a"}',
    success: 201,
    limit: MAX_BODY_BYTES,
  },
  webhook: {
    url: url.webhook,
    head: [`POST /webhook?token=${WEBHOOK_TOKEN} HTTP/1.1`, 'Host: a', TYPE],
    good: '{"event":"a","data":{"page_id":"b"}}',
    success: 200,
    limit: MAX_BODY_BYTES,
  },
};
const length = (size: number) => `Content-Length: ${size}`;
const CHUNKED = 'Transfer-Encoding: chunked';
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

async function stored(): Promise<number> {
  const [row] =
    await sql`select (select count(*) from secrets.secrets) + (select count(*) from webhook.events) as n`;
  return Number(row?.n);
}

/** No row is added by the action. */
async function storesNothing(act: () => Promise<void>): Promise<void> {
  const before = await stored();
  await act();
  assert.equal(await stored(), before);
}

for (const [name, endpoint] of Object.entries(endpoints)) {
  test(`${name}: an incomplete body stores nothing, and the service continues`, () =>
    storesNothing(async () => {
      for (const framing of [[length(1_000)], [CHUNKED]]) {
        const part = framing[0] === CHUNKED ? chunk(endpoint.good) : endpoint.good;
        const closing = await connectTo(endpoint.url);
        closing.send(headOf([...endpoint.head, ...framing]), part);
        closing.socket.end();
        const answer = await closing.answer();
        assert.deepEqual([answer.status, answer.json.error.code], [400, 'invalid_request']);
        const resetting = await connectTo(endpoint.url);
        resetting.send(headOf([...endpoint.head, ...framing]), part);
        resetting.socket.resetAndDestroy();
        await resetting.closed();
      }
      assert.equal((await ask('GET', `${endpoint.url}/readyz`)).status, 200);
    }));

  test(`${name}: a Content-Length over the limit gets 413 before the body is read`, () =>
    storesNothing(async () => {
      const most = endpoint.declared ?? endpoint.limit;
      for (const size of [most + 1, 1e9, Number.MAX_SAFE_INTEGER]) {
        const answer = await exchange(endpoint.url, [...endpoint.head, length(size)]);
        assert.deepEqual([answer.status, answer.json.error.code], [413, 'body_too_large']);
        assert.equal(answer.headers.get('connection'), 'close');
      }
    }));

  test(`${name}: a chunked body over the limit gets 413 while it arrives`, () =>
    storesNothing(async () => {
      const client = await connectTo(endpoint.url);
      client.send(headOf([...endpoint.head, CHUNKED]));
      for (let sent = 0; sent <= endpoint.limit; sent += 1_024)
        client.send(chunk(' '.repeat(1_024)));
      const answer = await client.answer();
      assert.deepEqual([answer.status, answer.json.error.code], [413, 'body_too_large']);
      client.leave();
    }));

  test(`${name}: a body of exactly the limit is accepted`, async () => {
    const body = endpoint.good.padEnd(endpoint.limit);
    const most = endpoint.declared ?? endpoint.limit;
    const declared = [...endpoint.head, length(most)];
    assert.equal(
      (await exchange(endpoint.url, declared, body.padEnd(most))).status,
      endpoint.success,
    );
    assert.equal(
      (
        await exchange(
          endpoint.url,
          [...endpoint.head, CHUNKED],
          `${chunk(body.slice(0, 100))}${chunk(body.slice(100))}0\r\n\r\n`,
        )
      ).status,
      endpoint.success,
    );
    assert.equal(
      (
        await exchange(
          endpoint.url,
          [...endpoint.head, CHUNKED],
          `${chunk(body)}${chunk(' ')}0\r\n\r\n`,
        )
      ).status,
      413,
    );
  });
}

const DEEP = `${'['.repeat(30_000)}${']'.repeat(30_000)}`;
const replaced = (good: string, byte: readonly number[]) =>
  Buffer.concat([Buffer.from(good.slice(0, -3)), Buffer.from(byte), Buffer.from(good.slice(-3))]);

/** Other invalid bodies are generated from the schemas, in `test/api/contract`. */
const BAD: ReadonlyArray<readonly [what: string, body: (good: string) => string | Buffer]> = [
  ['white space', () => ' \r\n '],
  ['a surrogate in UTF-8', (good) => replaced(good, [0xed, 0xa0, 0x80])],
  ['a NUL', (good) => replaced(good, [0])],
  ['a byte order mark', (good) => `\ufeff${good}`],
  ['UTF-16', (good) => Buffer.from(`\ufeff${good}`, 'utf16le')],
  ['4,000 arrays in one another', () => '['.repeat(4_000) + ']'.repeat(4_000)],
  ['8,000 arrays, never closed', () => '['.repeat(8_000)],
  ['a member twice in two spellings', (good) => good.replace('{', '{"other":1,"\\u006fther":2,')],
  ['a member under __proto__', (good) => `{"__proto__":${good}}`],
];

for (const [name, endpoint] of Object.entries(endpoints)) {
  test(`${name}: an invalid body gets 400 with fields that do not quote it`, () =>
    storesNothing(async () => {
      for (const [what, body] of BAD) {
        // Some senders begin with it.
        if (name === 'webhook' && what === 'a byte order mark') continue;
        const bytes = Buffer.from(body(endpoint.good));
        const answer = await exchange(
          endpoint.url,
          [...endpoint.head, length(bytes.length)],
          bytes,
        );
        assert.deepEqual([answer.status, answer.json?.error?.code], [400, 'invalid_body'], what);
        assert.ok(answer.json.error.fields.length > 0, what);
        assert.ok(!answer.body.includes('wrong'), what);
      }
    }));
}

test('webhook: an event nested 30,000 levels deep is stored unchanged', async () => {
  const body = `{"event":"deep","data":{"page_id":"b","deep":${DEEP}}}`;
  const answer = await ask('POST', `${url.webhook}/webhook?token=${WEBHOOK_TOKEN}`, { body });
  assert.equal(answer.status, 200);
  const [row] = await sql`select body from webhook.events where id = ${answer.json.id}`;
  assert.equal(String(row?.body), body);
});

test('plain webhook: such an event is not an internal error', async (t) => {
  const plain = await startGatehouse(t, ['webhook'], undefined, { WEBHOOK_VARIANT: 'plain' });
  const body = `{"event":"deep","data":{"page_id":"b","deep":${DEEP}}}`;
  const { status } = await ask('POST', `${plain.url.webhook}/webhook?token=${WEBHOOK_TOKEN}`, {
    body,
  });
  assert.ok(status === 200 || status === 400, `answered ${status}`);
});
