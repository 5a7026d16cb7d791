/** Share links: opening a secret with `POST /s/{id}`. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { keepExpired } from '../../support/expired.ts';
import { ask, AUTH_TOKEN, launch, assertStatus } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret } from '../../support/secrets.ts';

const gatehouse = await launch(['secrets'], {
  SHARE_PAGES: 'on',
  LOG_LEVEL: 'debug',
  TRUSTED_PROXIES: '127.0.0.1',
});
const { sql } = gatehouse;
const base = gatehouse.url.secrets;
const { encrypt, keep, decrypt } = secretsClient(base);

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
