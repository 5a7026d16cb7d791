import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { createDatabase } from '../../support/database.ts';
import {
  ask,
  AUTH_TOKEN,
  SERVER_SECRET,
  startGatehouse,
  assertStatus,
} from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const OLD = SERVER_SECRET;
const NEW = 'new-server-secret-0123456789abcdefghijklmn';
const OTHER = 'other-server-secret-0123456789abcdefghijkl';

const { url: databaseUrl, sql } = await createDatabase();

async function start(t: TestContext, current: string, previous: string) {
  const gatehouse = await startGatehouse(t, ['secrets'], databaseUrl, {
    SERVER_SECRET: current,
    SERVER_SECRET_PREVIOUS: previous,
  });
  return { ...gatehouse, ...secretsClient(gatehouse.url.secrets) };
}

const keyIdOf = async (id: string) =>
  (await sql`select key_id from secrets.secrets where id = ${id}`)[0]?.key_id;

test('rotation: with both server secrets all secrets open, then the new one suffices', async (t) => {
  const before = await start(t, OLD, '');
  const old = await before.keep('sealed under the old one');
  const once = await before.keep('read after the change', { max_reads: 1 });
  assert.equal(await keyIdOf(old.id), createServerKey(OLD).id);

  const during = await start(t, NEW, `${OTHER}, ${OLD}`);
  assert.equal(
    (await during.decrypt(old.id, old.secret)).json.password,
    'sealed under the old one',
  );
  assert.equal((await during.decrypt(once.id, once.secret)).json.password, 'read after the change');
  assert.equal((await during.decrypt(once.id, once.secret)).status, 404);
  assertStatus(await during.decrypt(old.id, once.secret), 404, 'a wrong key is still wrong');
  const fresh = await during.keep('sealed under the new one');
  assert.equal(await keyIdOf(fresh.id), createServerKey(NEW).id);
  assert.equal(during.log().filter((line) => line.level === 'error').length, 0);

  const afterwards = await start(t, NEW, '');
  assert.equal(
    (await afterwards.decrypt(fresh.id, fresh.secret)).json.password,
    'sealed under the new one',
  );
});

test('missing server secret: 503, nothing used up, and its key id in the log', async (t) => {
  const before = await start(t, OLD, '');
  const { id, secret } = await before.keep('marked-password-text', { max_reads: 1 });
  const row = await sql`select * from secrets.secrets where id = ${id}`;

  const without = await start(t, NEW, OTHER);
  const answer = await without.decrypt(id, secret);
  assert.equal(answer.status, 503);
  assert.equal(answer.json.error.code, 'key_unknown');
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
  assert.deepEqual([...(await sql`select * from secrets.secrets where id = ${id}`)], [...row]);
  const logged = without.log().filter((line) => line.level === 'error' && line.secret_id === id);
  assert.equal(logged.length, 1);
  assert.equal(logged[0]?.key_id, createServerKey(OLD).id);
  assert.match(String(logged[0]?.message), /SERVER_SECRET_PREVIOUS/);
  const written = without.stdout() + without.stderr();
  for (const mark of [OLD, NEW, OTHER, secret, 'marked-']) assert.ok(!written.includes(mark));

  assert.equal((await before.decrypt(id, secret)).json.password, 'marked-password-text');
});

test('missing server secret: an ended secret is still 404', async (t) => {
  const before = await start(t, OLD, '');
  const used = await before.keep('x', { max_reads: 1 });
  await before.decrypt(used.id, used.secret);
  const expired = await before.keep('x');
  await sql`update secrets.secrets set expires_at = now() - interval '1 second' where id = ${expired.id}`;
  const without = await start(t, NEW, '');
  for (const { id, secret } of [used, expired])
    assert.equal((await without.decrypt(id, secret)).status, 404);
});

test('a server secret can be both current and previous', async (t) => {
  const both = await start(t, OLD, OLD);
  const { id, secret } = await both.keep('x', { max_reads: 1 });
  assert.equal((await both.decrypt(id, secret)).status, 200);
  assert.equal((await both.decrypt(id, secret)).status, 404);
});

test('a new AUTH_TOKEN: callers with the earlier one are accepted until it is removed', async (t) => {
  const NEXT = 'next-auth-token-0123456789abcdefghijklmnop';
  const statusOf = async (url: string, bearer: string) =>
    (await ask('GET', `${url}/api/store/options`, { bearer })).status;
  const during = await startGatehouse(t, ['secrets'], databaseUrl, {
    AUTH_TOKEN: NEXT,
    AUTH_TOKEN_PREVIOUS: AUTH_TOKEN,
  });
  for (const [bearer, status] of [
    [NEXT, 200],
    [AUTH_TOKEN, 200],
    [AUTH_TOKEN, 200],
    [`${NEXT},${AUTH_TOKEN}`, 401],
  ] as const) {
    assert.equal(await statusOf(during.url.secrets, bearer), status);
  }
  const { text } = await ask('GET', `${during.url.metrics}/metrics`);
  for (const count of ['current"} 1', 'previous"} 2'])
    assert.ok(text.includes(`gatehouse_auth_tokens_total{token="${count}`));
  const afterwards = await startGatehouse(t, ['secrets'], databaseUrl, { AUTH_TOKEN: NEXT });
  assert.equal(await statusOf(afterwards.url.secrets, NEXT), 200);
  assert.equal(await statusOf(afterwards.url.secrets, AUTH_TOKEN), 401);
});

test('wrong passphrases: 5 attempts in all on replicas with different current server secrets', async (t) => {
  const replicas = [
    await start(t, OLD, NEW),
    await start(t, NEW, OLD),
    await start(t, NEW, OLD),
  ] as const;
  const { id, secret } = await replicas[0].keep('x', { passphrase: 'the right one' });
  const statuses: number[] = [];
  for (const replica of [...replicas, ...replicas, ...replicas]) {
    statuses.push((await replica.decrypt(id, secret, 'a wrong one')).status);
  }
  assert.deepEqual(statuses, [403, 403, 403, 403, 403, 429, 429, 429, 429]);
});
