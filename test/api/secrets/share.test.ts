/**
 * Share pages over HTTP: the state of a link, the receipt for its sender, and deletion by either of
 * them.
 */
import assert from 'node:assert/strict';
import { randomUUID, randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { keepExpired } from '../../support/expired.ts';
import {
  ask,
  SERVER_SECRET,
  startGatehouse,
  AUTH_TOKEN,
  assertStatus,
} from '../../support/gatehouse.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';

const { url: databaseUrl, sql } = await createDatabase();
const SETTINGS = { SHARE_PAGES: 'on', LOG_LEVEL: 'debug', TRUSTED_PROXIES: '127.0.0.1' };
const gatehouse = await startGatehouse({ after }, ['secrets'], databaseUrl, SETTINGS);
const base = gatehouse.url.secrets;
const { encrypt, keep, decrypt, remove } = secretsClient(base);

type Conditions = { max_reads?: number; passphrase?: string };
async function store(
  conditions: Conditions = {},
): Promise<{ id: string; secret: string; receipt: string; expires_at: string }> {
  const { status, json } = await encrypt({ password: 'marked-text', ...conditions });
  assert.equal(status, 201);
  return json;
}
const send = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  ask('POST', base + path, { body, headers });
const stateOf = (id: string, secret: string) => send(`/s/${id}/status`, { secret });
const open = (id: string, secret: string) => send(`/s/${id}`, { secret });
const refused = (
  answer: { status: number; json: { error: { code: string } } },
  status: number,
  code: string,
) => assert.deepEqual([answer.status, answer.json.error?.code], [status, code]);

test('the state of a link says how often it can be opened, and changes nothing', async () => {
  const { id, secret, expires_at } = await store({ max_reads: 3, passphrase: 'said by phone' });
  await store();
  const before = await storedSecret(sql, id);
  const expected = {
    status: 'stored',
    passphrase: true,
    reads: 0,
    max_reads: 3,
    expires_at,
    ended_at: null,
  };
  for (let i = 0; i < 3; i += 1) assert.deepEqual((await stateOf(id, secret)).json, expected);
  assert.deepEqual(await storedSecret(sql, id), before);
  const plain = await store();
  assert.equal((await stateOf(plain.id, plain.secret)).json.passphrase, false);
});

test('only holders of its key learn how a secret ended', async () => {
  const read = await store({ max_reads: 1 });
  const deleted = await store();
  const expired = await keepExpired(sql);
  assert.equal((await open(read.id, read.secret)).status, 200);
  assert.equal((await remove(deleted.id)).status, 200);
  for (const [{ id, secret }, status] of [
    [read, 'read'],
    [deleted, 'deleted'],
    [expired, 'expired'],
  ] as const) {
    const { json } = await stateOf(id, secret);
    assert.equal(json.status, status);
    assert.ok(Date.parse(json.ended_at) <= Date.now());
    refused(await stateOf(id, wrongKey()), 404, 'not_found');
    refused(await open(id, secret), 404, 'not_found');
  }
  const answers = [
    await stateOf(randomUUID(), read.secret),
    await stateOf(read.id, wrongKey()),
    await stateOf(read.id, 'x'),
    await stateOf(read.id, 'AAAA'),
  ];
  assert.equal(new Set(answers.map(({ json }) => json.error.message)).size, 1);
});

test('after a read, the reply says what is left, and allows to delete it', async () => {
  const { id, secret, expires_at } = await store({ max_reads: 3 });
  const { json } = await open(id, secret);
  assert.deepEqual(
    { ...json, delete_key: '' },
    { password: 'marked-text', reads_left: 2, expires_at, delete_key: '' },
  );
  refused(await send(`/r/${id}`, { key: json.delete_key }), 404, 'not_found');
  assert.deepEqual((await send(`/s/${id}/delete`, { key: json.delete_key })).json, {
    id,
    status: 'deleted',
  });
  refused(await open(id, secret), 404, 'not_found');
  const unlimited = await store();
  assert.equal((await open(unlimited.id, unlimited.secret)).json.reads_left, null);
});

test('the receipt key shows the receipt and deletes the secret, and nothing else', async () => {
  const { id, secret, receipt } = await store({ max_reads: 2 });
  assert.match(receipt, /^[A-Za-z0-9_-]{43}$/);
  const before = await send(`/r/${id}`, { key: receipt });
  assert.deepEqual([before.status, before.json.status, before.json.reads], [200, 'stored', 0]);
  assert.equal((await open(id, secret)).status, 200);
  assert.deepEqual((await send(`/r/${id}`, { key: receipt })).json.reads, 1);
  refused(await open(id, receipt), 404, 'not_found');
  refused(await stateOf(id, receipt), 404, 'not_found');
  assert.equal((await send(`/s/${id}/delete`, { key: receipt })).status, 200);
  const { json } = await send(`/r/${id}`, { key: receipt });
  assert.deepEqual([json.status, json.reads], ['deleted', 1]);
  assert.ok(!JSON.stringify(json).includes('marked-text'));
});

test("a wrong key, another secret's key and the link's key open no receipt and delete nothing", async () => {
  const one = await store();
  const other = await store();
  for (const key of [wrongKey(), other.receipt, one.secret, '', 'x'.repeat(43)].slice(0, 3)) {
    for (const path of [`/r/${one.id}`, `/s/${one.id}/delete`])
      refused(await send(path, { key }), 404, 'not_found');
  }
  assert.equal((await stateOf(one.id, one.secret)).json.status, 'stored');
});

test('wrong keys count as failed links of their network, and do not lock right ones out', async () => {
  const { id, secret, receipt } = await store({ max_reads: 1 });
  const from = { 'x-forwarded-for': '203.0.113.77' };
  for (let i = 0; i < 60; i += 1) {
    const path = [`/r/${id}`, `/s/${id}/delete`][i % 2] ?? '';
    refused(await send(path, { key: wrongKey() }, from), 404, 'not_found');
  }
  const key = wrongKey();
  for (const path of [`/r/${id}`, `/s/${id}/delete`])
    refused(await send(path, { key }, from), 429, 'too_many_requests');
  for (const path of [`/s/${id}/status`, `/s/${id}`])
    refused(await send(path, { secret: key }, from), 429, 'too_many_requests');
  assert.equal((await send(`/r/${id}`, { key: receipt }, from)).json.status, 'stored');
  assert.equal((await send(`/s/${id}/status`, { secret }, from)).json.status, 'stored');
  assert.equal((await send(`/s/${id}`, { secret }, from)).json.password, 'marked-text');
  // Who was second has the right key, too.
  refused(await send(`/s/${id}`, { secret }, from), 404, 'not_found');
  refused(await send(`/s/${id}/delete`, { key: receipt }, from), 404, 'not_found');
});

test('wrong keys count also for an altered secret, but not if the server secret is missing', async () => {
  const sealedElsewhere = await store();
  const altered = await store();
  await sql`update secrets.secrets set key_id = 'unknown' where id = ${sealedElsewhere.id}`;
  await sql`update secrets.secrets set tag = '\\x00' where id = ${altered.id}`;
  const from = { 'x-forwarded-for': '203.0.113.78' };
  const guess = (id: string) => send(`/s/${id}`, { secret: wrongKey() }, from);
  for (let i = 0; i < 60; i += 1) {
    refused(await guess(sealedElsewhere.id), 503, 'key_unknown');
    refused(await guess(altered.id), 500, 'secret_damaged');
  }
  refused(await guess(altered.id), 429, 'too_many_requests');
  refused(await guess(sealedElsewhere.id), 503, 'key_unknown');
});

test('receipts and links outlive a replaced server secret', async (t) => {
  const { id, secret, receipt } = await store({ max_reads: 1 });
  const next = {
    ...SETTINGS,
    SERVER_SECRET: 'another-server-secret-0123456789-abcdef',
    SERVER_SECRET_PREVIOUS: SERVER_SECRET,
  };
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl, next);
  const later = (path: string, body: unknown) => ask('POST', url.secrets + path, { body });
  assert.equal((await later(`/r/${id}`, { key: receipt })).status, 200);
  assert.equal((await later(`/s/${id}/status`, { secret })).json.status, 'stored');
  assert.equal((await later(`/s/${id}/delete`, { key: receipt })).status, 200);
});

test('without SHARE_PAGES there is no receipt key', async (t) => {
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl);
  assert.deepEqual(Object.keys(await secretsClient(url.secrets).keep('x')), [
    'id',
    'secret',
    'expires_at',
  ]);
});

test('no key of a receipt or a deletion is logged or stored', async () => {
  const { id, secret, receipt } = await store({ max_reads: 2 });
  const { delete_key: key } = (await open(id, secret)).json;
  await send(`/r/${id}`, { key: receipt });
  await send(`/s/${id}/delete`, { key });
  for (const one of [receipt, key]) {
    assert.ok(!gatehouse.stdout().includes(one));
    const bytes = Buffer.from(one, 'base64url').toString('hex');
    const [row] = await sql`select s::text as text from secrets.secrets s where id = ${id}`;
    assert.equal(row?.text.includes(bytes), false);
  }
  const [stored] = await keep('x').then(
    () =>
      sql`select count(*)::int as n from secrets.throttles where key = ${Buffer.from(receipt, 'base64url')}`,
  );
  assert.equal(stored?.n, 0);
});

const reveal = (id: string, body: unknown, headers: Record<string, string> = {}) =>
  ask('POST', `${base}/s/${id}`, { body, headers });

/** A whole row as text. */
const readsOf = async (id: string) => {
  const [row] =
    await sql`select reads::int, failed_reads::int as failed, ending from secrets.secrets where id = ${id}`;
  return { ...row };
};

test('loading a link changes neither row, receipt nor throttle', async () => {
  const { id, secret } = await keep('not by loading', { max_reads: 1 });
  const attempts = async () =>
    (await sql`select coalesce(sum(attempts), 0)::int as sum from secrets.throttles`)[0]?.sum;
  const before = [await storedSecret(sql, id), await attempts()];
  for (let i = 0; i < 100; i += 1) {
    // Also with the key in the query, as a scanner might send it.
    await ask(i % 2 === 0 ? 'GET' : 'HEAD', `${base}/s/${id}?${secret}`, {
      headers: {
        'user-agent': 'a link scanner',
        purpose: 'prefetch',
        'sec-purpose': 'prefetch;prerender',
      },
    });
    await ask(i % 2 === 0 ? 'OPTIONS' : 'PUT', `${base}/s/${id}`);
  }
  assert.deepEqual([await storedSecret(sql, id), await attempts()], before);
  assert.equal((await reveal(id, { secret })).json.password, 'not by loading');
});

test('a link opens without a bearer token, as often as allowed', async () => {
  for (const path of [
    (id: string) => id,
    (id: string) => id.toUpperCase(),
    (id: string) => `${id}/`,
  ]) {
    const { id, secret, expires_at } = await keep('read \0once\r\n ', { max_reads: 1 });
    const answer = await reveal(path(id), { secret });
    assert.deepEqual(
      [answer.status, answer.text],
      [
        200,
        JSON.stringify({
          password: 'read \0once\r\n ',
          reads_left: 0,
          expires_at,
          delete_key: null,
        }),
      ],
    );
    assert.equal(answer.headers.get('cache-control'), 'no-store');
    const again = await reveal(id, { secret });
    assert.deepEqual([again.status, again.json.error.code], [404, 'not_found']);
    assert.deepEqual(await readsOf(id), { reads: 1, failed: 1, ending: 'read' });
  }
});

test('a link opens the same with a correct or wrong bearer token', async () => {
  for (const bearer of [AUTH_TOKEN, 'wrong']) {
    const { id, secret } = await keep('x', { max_reads: 2 });
    assert.equal((await ask('POST', `${base}/s/${id}`, { bearer, body: { secret } })).status, 200);
    const wrong = randomBytes(32).toString('base64url');
    assertStatus(await ask('POST', `${base}/s/${id}`, { bearer, body: { secret: wrong } }), 404);
  }
});

test('a link: one 404 for a wrong key, an unknown id, a deleted and an expired secret', async () => {
  const headers = { 'x-request-id': 'test' };
  const kept = await keep('x', { max_reads: 1 });
  const deleted = await keep('x');
  const expired = await keepExpired(sql);
  await ask('DELETE', `${base}/api/store/${deleted.id}`, { bearer: AUTH_TOKEN });
  const wrong = [
    [kept.id, deleted.secret],
    [randomUUID(), kept.secret],
    [deleted.id, deleted.secret],
    [expired.id, expired.secret],
  ] as const;
  const answers = await Promise.all(wrong.map(([id, secret]) => reveal(id, { secret }, headers)));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([404]));
  assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
  assert.deepEqual(await readsOf(kept.id), { reads: 0, failed: 1, ending: null });
  assert.equal((await reveal(kept.id, { secret: kept.secret })).status, 200);
});

test('a link: a missing or wrong passphrase uses nothing up', async () => {
  const { id, secret } = (
    await encrypt({ password: 'locked', max_reads: 1, passphrase: 'sent by phone' })
  ).json;
  const codes = [];
  for (const passphrase of [undefined, 'sent by mail', '']) {
    const { status, json } = await reveal(id, { secret, passphrase });
    codes.push([status, json.error.code]);
  }
  assert.deepEqual(codes, [
    [403, 'passphrase_needed'],
    [403, 'wrong_passphrase'],
    [400, 'invalid_body'],
  ]);
  assert.deepEqual(await readsOf(id), { reads: 0, failed: 1, ending: null });
  assert.equal((await reveal(id, { secret, passphrase: 'sent by phone' })).json.password, 'locked');
});

test('after 60 wrong links from one network the next is 429; others are not affected', async () => {
  const { id, secret } = await keep('x');
  const from = (address: string, key: string) =>
    reveal(id, { secret: key }, { 'x-forwarded-for': address });
  const wrong = randomBytes(32).toString('base64url');
  for (let i = 0; i < 20; i += 1) {
    assert.equal((await from('192.0.2.1', secret)).status, 200, 'right ones do not count');
  }
  for (let i = 0; i < 60; i += 1) assert.equal((await from('192.0.2.1', wrong)).status, 404);
  const refused = await from('192.0.2.1', wrong);
  assert.deepEqual([refused.status, refused.json.error.code], [429, 'too_many_requests']);
  const wait = Number(refused.headers.get('retry-after'));
  assert.ok(wait > 0 && wait <= 600, `${wait} seconds`);
  assert.equal((await from('192.0.2.2', wrong)).status, 404);
  assert.equal((await from('192.0.2.1', secret)).status, 200, 'others there are not locked out');
  assert.equal((await decrypt(id, secret)).status, 200);
});
