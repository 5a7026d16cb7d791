import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, SERVER_SECRET, startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const OLD = SERVER_SECRET;
const NEW = 'new-server-secret-0123456789abcdefghijklmn';

const { url: databaseUrl } = await createDatabase();

async function start(t: TestContext, current: string, previous: string) {
  const gatehouse = await startGatehouse(t, ['secrets'], databaseUrl, {
    SERVER_SECRET: current,
    SERVER_SECRET_PREVIOUS: previous,
  });
  return { ...gatehouse, ...secretsClient(gatehouse.url.secrets) };
}

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
