/**
 * Without a credential, no route reads a body of more than 8 KiB, and 12 KiB more for each
 * password: a large one is refused by its head. `Expect: 100-continue` shows when a body would be
 * read.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import type { Route } from '../../src/platform/http/route/route.ts';
import { createPlainRoutes } from '../../src/webhook/plain.ts';
import { TABLES } from '../../scripts/routes.ts';
import { launch, startGatehouse } from '../support/gatehouse.ts';
import { ORIGIN, PORTAL } from '../support/portal.ts';
import { connectTo, headOf } from '../support/socket.ts';

const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const LIMIT = 8 * 1024;
const { url, databaseUrl } = await launch(SERVICES, {
  ...PORTAL,
  SHARE_PAGES: 'on',
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

type Row = Pick<Route<never>, 'method' | 'pattern' | 'body'>;

/** The first status: 100 if the body would be read. */
async function statusOf(base: string, { method, pattern }: Row, type: string, size: number) {
  const client = await connectTo(base);
  const { host } = new URL(ORIGIN);
  client.send(
    headOf([
      `${method} ${pattern.replace(/\{\w+\}/g, randomUUID())} HTTP/1.1`,
      `Host: ${host}`,
      `Origin: ${ORIGIN}`,
      `Content-Type: ${type}`,
      `X-Link-Key: ${'A'.repeat(43)}`,
      `Content-Length: ${size}`,
      'Expect: 100-continue',
    ]),
  );
  const { status } = await client.answer();
  client.leave();
  return status;
}

/** The rows that read a body of this size without a credential. */
async function readersOf(base: string, rows: readonly Row[], size: number) {
  const found: string[] = [];
  for (const row of rows) {
    if (row.body.schema === null) continue;
    const types = ['application/json', 'application/x-www-form-urlencoded'];
    const statuses = await Promise.all(types.map((type) => statusOf(base, row, type, size)));
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

test('with SHARE_ANYONE, only a new secret may be larger', async () => {
  const rows = TABLES.secrets?.all ?? [];
  assert.deepEqual(await readersOf(open.url.secrets, rows, LIMIT + 1), ['POST /api/store/encrypt']);
});

test('the plain variant without a token reads up to MAX_BODY_BYTES', async () => {
  const rows = createPlainRoutes();
  assert.deepEqual(await readersOf(plain.url.webhook, rows, 65_536), ['POST /webhook']);
  assert.deepEqual(await readersOf(plain.url.webhook, rows, 65_537), []);
});
