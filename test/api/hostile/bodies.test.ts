/**
 * Bodies that are too large or incomplete, sent to the real services: the right status, and nothing
 * stored. Without a credential, no route reads a body of more than 8 KiB, and 12 KiB more for each
 * password: a large one is refused by its head. Invalid ones are generated from the schemas, in
 * `test/api/contract`.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, afterEach, test } from 'node:test';
import { TABLES } from '../../../scripts/routes.ts';
import type { Route } from '../../../src/platform/http/route/route.ts';
import { createPlainRoutes } from '../../../src/webhook/plain.ts';
import { untilSql } from '../../support/connections.ts';
import { ask, AUTH_TOKEN, launch, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { ORIGIN, PORTAL } from '../../support/portal.ts';
import { connectTo, exchange, headOf } from '../../support/socket.ts';

const MAX_BODY_BYTES = 64 * 1024;
const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const { url, sql, databaseUrl } = await launch(SERVICES, {
  ...PORTAL,
  SHARE_PAGES: 'on',
  SECRETS_MAX_BODY_BYTES: String(MAX_BODY_BYTES),
  INBOX_PAGE: 'on',
});

const open = await startGatehouse({ after }, ['secrets'], databaseUrl, {
  SHARE_PAGES: 'on',
  SHARE_ANYONE: 'on',
});
const plain = await startGatehouse({ after }, ['webhook'], undefined, {
  WEBHOOK_VARIANT: 'plain',
  WEBHOOK_TOKEN: undefined,
});

/** What a test has begun must not go on behind it. */
afterEach(() =>
  untilSql(async () => {
    const { text } = await ask('GET', `${url.metrics}/metrics`);
    return SERVICES.every((name) => text.includes(`requests_in_flight{service="${name}"} 0\n`));
  }, 'no request is in flight'),
);

const TYPE = 'Content-Type: application/json';
const CHUNKED = 'Transfer-Encoding: chunked';
const length = (size: number) => `Content-Length: ${size}`;
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

/**
 * `good`: a valid body, which white space may follow. `limit`: the largest body in bytes: without a
 * credential, 8 KiB. `declared`: the largest that says its length: with 12 KiB for a password.
 */
const ENDPOINTS = [
  {
    to: url.identity,
    head: ['POST /api/auth/login HTTP/1.1', 'Host: a', TYPE],
    good: '{"username":"nobody","password":"wrong"}',
    success: 401,
    limit: 8 * 1024,
    declared: 20 * 1024,
  },
  {
    to: url.secrets,
    head: ['POST /api/store/encrypt HTTP/1.1', 'Host: a', `Authorization: Bearer ${AUTH_TOKEN}`],
    good: '{"password":"a"}',
    success: 201,
    limit: MAX_BODY_BYTES,
    declared: MAX_BODY_BYTES,
  },
  {
    to: url.webhook,
    head: [`POST /webhook?token=${WEBHOOK_TOKEN} HTTP/1.1`, 'Host: a', TYPE],
    good: '{"event":"a","data":{"page_id":"b"}}',
    success: 200,
    limit: MAX_BODY_BYTES,
    declared: MAX_BODY_BYTES,
  },
];

/** No row is added by the action. */
async function storesNothing(act: () => Promise<void>): Promise<void> {
  const count = async () => [
    (await sql`select from secrets.secrets`).length,
    (await sql`select from webhook.events`).length,
  ];
  const before = await count();
  await act();
  assert.deepEqual(await count(), before);
}

for (const { to, head, good, success, limit, declared } of ENDPOINTS) {
  const name = head[0]?.split('?')[0];
  test(`${name}: an incomplete body stores nothing, and the service continues`, () =>
    storesNothing(async () => {
      for (const framing of [length(1_000), CHUNKED]) {
        const part = framing === CHUNKED ? chunk(good) : good;
        const closing = await connectTo(to);
        closing.send(headOf([...head, framing]), part);
        closing.socket.end();
        const { status, json } = await closing.answer();
        assert.deepEqual([status, json.error.code], [400, 'invalid_request']);
        const resetting = await connectTo(to);
        resetting.send(headOf([...head, framing]), part);
        resetting.socket.resetAndDestroy();
        await resetting.closed();
      }
      assert.equal((await ask('GET', `${to}/readyz`)).status, 200);
    }));

  test(`${name}: a body over the limit gets 413 before or while it arrives`, () =>
    storesNothing(async () => {
      for (const size of [declared + 1, 1e9, Number.MAX_SAFE_INTEGER]) {
        const { status, json, headers } = await exchange(to, [...head, length(size)]);
        assert.deepEqual([status, json.error.code], [413, 'body_too_large']);
        assert.equal(headers.get('connection'), 'close');
      }
      const endless = Array.from({ length: limit / 1_024 + 1 }, () => chunk(' '.repeat(1_024)));
      const { status, json } = await exchange(to, [...head, CHUNKED], endless.join(''));
      assert.deepEqual([status, json.error.code], [413, 'body_too_large']);
    }));

  test(`${name}: a body of exactly the limit is accepted`, async () => {
    const body = good.padEnd(limit);
    const parts = chunk(body.slice(0, 100)) + chunk(body.slice(100));
    for (const [status, framing, sent] of [
      [success, length(declared), good.padEnd(declared)],
      [success, CHUNKED, `${parts}0\r\n\r\n`],
      [413, CHUNKED, `${parts}${chunk(' ')}0\r\n\r\n`],
    ] as const)
      assert.equal((await exchange(to, [...head, framing], sent)).status, status, framing);
  });
}

const DEEP = `${'['.repeat(30_000)}${']'.repeat(30_000)}`;
const DEEP_EVENT = `{"event":"deep","data":{"page_id":"b","deep":${DEEP}}}`;

test('an event nested 30,000 levels deep is stored unchanged', async () => {
  const to = `${url.webhook}/webhook`;
  const { json } = await ask('POST', to, { bearer: WEBHOOK_TOKEN, body: DEEP_EVENT });
  const [row] = await sql`select body from webhook.events where id = ${json.id}`;
  assert.equal(String(row?.body), DEEP_EVENT);
});

test('in the plain variant, such an event is not an internal error', async () => {
  const { status } = await ask('POST', `${plain.url.webhook}/webhook`, { body: DEEP_EVENT });
  assert.ok(status === 200 || status === 400, `answered ${status}`);
});

// --- Bodies without a credential

/** `Expect: 100-continue` shows when a body would be read. */
const LIMIT = 8 * 1024;
type Row = Pick<Route<never>, 'method' | 'pattern' | 'body'>;

/** The first status: 100 if the body would be read. */
async function statusOf(
  base: string,
  { method, pattern }: Row,
  type: string,
  size: number,
  bearer: string,
) {
  const client = await connectTo(base);
  const { host } = new URL(ORIGIN);
  client.send(
    headOf([
      `${method} ${pattern.replace(/\{\w+\}/g, randomUUID())} HTTP/1.1`,
      `Host: ${host}`,
      `Origin: ${ORIGIN}`,
      `Content-Type: ${type}`,
      ...(bearer === '' ? [] : [`Authorization: Bearer ${bearer}`]),
      `X-Link-Key: ${'A'.repeat(43)}`,
      `Content-Length: ${size}`,
      'Expect: 100-continue',
    ]),
  );
  const { status } = await client.answer();
  client.leave();
  return status;
}

/** The rows that read a body of this size, by default without a credential. */
async function readersOf(base: string, rows: readonly Row[], size: number, bearer = '') {
  const found: string[] = [];
  for (const row of rows) {
    if (row.body.schema === null) continue;
    const types = ['application/json', 'application/x-www-form-urlencoded'];
    const statuses = await Promise.all(
      types.map((type) => statusOf(base, row, type, size, bearer)),
    );
    if (statuses.includes(100)) found.push(`${row.method} ${row.pattern}`);
  }
  return found;
}

for (const service of SERVICES) {
  test(`${service}: without a credential, a body above 8 KiB is not read`, async () => {
    const rows = TABLES[service]?.all ?? [];
    const without = rows.filter(({ body }) => !body.leastBytes);
    assert.deepEqual(await readersOf(url[service], without, LIMIT + 1), []);
    const small = await readersOf(url[service], rows, LIMIT);
    assert.equal(small.length > 0, service !== 'webhook', 'a small body is read');
  });
}

test('with passwords, a body may be larger by 12 KiB for each', async () => {
  const rows = TABLES.identity?.all ?? [];
  const ONE = LIMIT + 12 * 1024;
  assert.deepEqual((await readersOf(url.identity, rows, ONE)).sort(), [
    'POST /api/auth/login',
    'POST /login',
    'POST /login/password',
  ]);
  const two = await readersOf(url.identity, rows, ONE + 12 * 1024);
  assert.deepEqual(two, ['POST /login/password']);
  assert.deepEqual(await readersOf(url.identity, rows, ONE + 12 * 1024 + 1), []);
});

test('with SHARE_ANYONE, only a new secret may be larger, and more with a token', async () => {
  const rows = TABLES.secrets?.all ?? [];
  assert.deepEqual(await readersOf(open.url.secrets, rows, LIMIT + 1), ['POST /api/store/encrypt']);
  assert.deepEqual(await readersOf(open.url.secrets, rows, LIMIT + 1, AUTH_TOKEN), [
    'POST /api/store/encrypt',
    'POST /api/store/decrypt',
    'POST /api/store/request',
  ]);
});

test('the plain variant without a token reads up to MAX_BODY_BYTES', async () => {
  const rows = createPlainRoutes();
  assert.deepEqual(await readersOf(plain.url.webhook, rows, 65_536), ['POST /webhook']);
  assert.deepEqual(await readersOf(plain.url.webhook, rows, 65_537), []);
});
