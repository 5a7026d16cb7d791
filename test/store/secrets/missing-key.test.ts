/**
 * Links whose server secret this replica lacks: the service says so, and counts no wrong link. A
 * secret that has ended needs no server secret.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { ask, AUTH_TOKEN, launch, SERVER_SECRET, startGatehouse } from '../../support/gatehouse.ts';
import { expireRequest, requestsClient } from '../../support/secret-requests.ts';

const { sql, databaseUrl, secrets: before } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const start = (previous = '') =>
  startGatehouse({ after }, ['secrets'], databaseUrl, {
    SHARE_PAGES: 'on',
    SERVER_SECRET: 'new-server-secret-0123456789abcdefghijklmn',
    SERVER_SECRET_PREVIOUS: previous,
  });
const without = await start();
const both = await start(SERVER_SECRET);
const base = without.url.secrets;
const post = (path: string, body: unknown, at = base) =>
  ask('POST', `${at}${path}`, { bearer: AUTH_TOKEN, body });
const make = async (path: string, body: unknown, at = before) => (await post(path, body, at)).json;
const { request } = requestsClient(before);
const WRONG = 'A'.repeat(43);
const KEY_ID = createServerKey(SERVER_SECRET).id;
const counted = async () => (await sql`select from secrets.throttles`).length;

test('a missing server secret: 503 for every key of a link, and no wrong link is counted', async () => {
  const kept = await make('/api/store/encrypt', { password: 'x', max_reads: 1 });
  const asked = await request();
  const attempts = [
    [`/s/${kept.id}`, { secret: kept.secret }],
    [`/s/${kept.id}/status`, { secret: kept.secret }],
    [`/r/${kept.id}`, { key: kept.receipt }],
    [`/s/${kept.id}/delete`, { key: kept.receipt }],
    [`/request/${asked.id}`, { key: asked.digest }],
    [`/request/${asked.id}`, { key: asked.receipt }],
    [`/r/${asked.id}`, { key: asked.receipt }],
    [`/s/${asked.id}/delete`, { key: asked.receipt }],
    [`/api/store/decrypt?id=${kept.id}`, { secret: kept.secret }],
    [`/s/${kept.id}`, { secret: WRONG }],
  ] as const;
  for (const [path, body] of attempts) {
    const { status, json } = await post(path, body);
    assert.deepEqual([status, json.error.code], [503, 'key_unknown'], path);
  }
  const logged = without.log().filter(({ key_id, secret_id }) => key_id === KEY_ID && secret_id);
  assert.deepEqual(new Set(logged.map(({ secret_id }) => secret_id)), new Set([kept.id, asked.id]));
  for (const line of logged) assert.match(String(line.message), /a server secret is missing/);
  assert.equal(await counted(), 0);
  for (const [path, body] of attempts.slice(1, 7))
    assert.equal((await post(path, body, both.url.secrets)).status, 200, path);
});

test('an altered row of an earlier server secret is reported', async () => {
  const { id, secret } = await make('/api/store/encrypt', { password: 'x', max_reads: 1 });
  await sql`update secrets.secrets set max_reads = 2 where id = ${id}`;
  const { status, json } = await post(`/s/${id}/status`, { secret }, both.url.secrets);
  assert.deepEqual([status, json.error.code], [500, 'secret_damaged']);
});

test('what has ended is not found without its server secret, without an error or a count', async () => {
  const kept = await make('/api/store/encrypt', { password: 'x' });
  await ask('DELETE', `${base}/api/store/${kept.id}`, { bearer: AUTH_TOKEN });
  const asked = await request();
  await expireRequest(sql, asked.id);
  const errors = without.log().filter(({ level }) => level === 'error').length;
  for (const [path, body] of [
    [`/s/${kept.id}/status`, { secret: kept.secret }],
    [`/r/${kept.id}`, { key: kept.receipt }],
    [`/request/${asked.id}`, { key: asked.digest }],
    [`/r/${asked.id}`, { key: asked.receipt }],
  ] as const)
    assert.equal((await post(path, body)).json.error.code, 'not_found', path);
  assert.equal(without.log().filter(({ level }) => level === 'error').length, errors);
  assert.equal(await counted(), 0);
});

test('a wrong key counts if its server secret is there, also of an altered secret', async () => {
  const { id } = await make('/api/store/encrypt', { password: 'x' }, base);
  const altered = await make('/api/store/encrypt', { password: 'x' }, base);
  await sql`update secrets.secrets set tag = '\\x00' where id = ${altered.id}`;
  for (const [path, body, code] of [
    [`/s/${id}/status`, { secret: WRONG }, 'not_found'],
    [`/r/${id}`, { key: 'x' }, 'not_found'],
    [`/s/${altered.id}`, { secret: WRONG }, 'secret_damaged'],
  ] as const)
    assert.equal((await post(path, body)).json.error.code, code, path);
  const [{ attempts } = {}] =
    await sql`select sum(attempts)::int as attempts from secrets.throttles`;
  assert.equal(attempts, 3);
});
