/**
 * Load balancers and supervisors probe every few seconds: the log has the changes, not the
 * requests.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { untilSql } from '../support/connections.ts';
import { createDatabase } from '../support/database.ts';
import { ask, type Gatehouse, startGatehouse } from '../support/gatehouse.ts';

const requestsOf = ({ log }: Gatehouse) =>
  log().flatMap(({ message, level, route, status }) =>
    message === 'request' ? `${level} ${route} ${status}` : [],
  );

const PROBED = ['GET /livez 200', 'GET /readyz 200', 'GET /metrics 200'];
const OTHERS = ['GET / 200', '(none) 404'];
const ALL = OTHERS.map((one) => `info ${one}`);
for (const [settings, expected] of [
  [{}, ALL],
  [{ LOG_LEVEL: 'debug' }, [...PROBED.map((one) => `debug ${one}`), ...ALL]],
  [{ LOG_PROBES: 'on' }, [...PROBED.map((one) => `info ${one}`), ...ALL]],
  [{ LOG_REQUESTS: 'errors' }, ['info (none) 404']],
  [{ LOG_REQUESTS: 'none' }, []],
  [
    { LOG_REQUESTS: 'none', LOG_LEVEL: 'debug' },
    [...PROBED, ...OTHERS].map((one) => `debug ${one}`),
  ],
] as const) {
  test(`probes and requests in the log with ${JSON.stringify(settings)}`, async (t) => {
    const plain = { WEBHOOK_VARIANT: 'plain', LOG_PROBES: undefined, ...settings };
    const gatehouse = await startGatehouse(t, ['webhook'], undefined, plain);
    const { webhook, metrics } = gatehouse.url;
    for (const path of ['/livez', '/readyz']) await ask('GET', webhook + path);
    await ask('GET', `${metrics}/metrics`);
    await ask('GET', `${webhook}/`, { headers: { accept: 'text/html' } });
    await ask('GET', `${webhook}/none`);
    await gatehouse.stop();
    assert.deepEqual(requestsOf(gatehouse), expected);
  });
}

test('failed probes while a service starts are not in the log', async (t) => {
  const away = 'postgres://postgres@127.0.0.1:1/none';
  const given = { LOG_PROBES: undefined };
  const gatehouse = await startGatehouse(t, ['secrets'], away, given, 'listening');
  assert.equal((await ask('GET', `${gatehouse.url.secrets}/readyz`)).status, 503);
  await gatehouse.stop();
  assert.deepEqual(requestsOf(gatehouse), []);
});

test('the log has one line when a service is no longer ready, and one when it is ready again', async (t) => {
  const { sql, url } = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['secrets'], url, { LOG_PROBES: undefined });
  const probe = async () => (await ask('GET', `${gatehouse.url.secrets}/readyz`)).status;
  const probes = async () => [await probe(), await probe(), await probe()];
  assert.deepEqual(await probes(), [200, 200, 200]);
  await sql`alter table secrets.migrations rename to away`;
  await untilSql(async () => (await probe()) === 503, 'the next check, after a second');
  assert.deepEqual(await probes(), [503, 503, 503]);
  await sql`alter table secrets.away rename to migrations`;
  // A probe that does not get an answer in time says what the one before said.
  await untilSql(async () => (await probe()) === 200, 'it is ready again');
  assert.deepEqual(await probes(), [200, 200, 200]);
  await gatehouse.stop();
  const changes = gatehouse.log().flatMap(({ level, message, error }) => {
    const isOne = ['request', 'not ready', 'ready again'].includes(String(message));
    return isOne ? `${level} ${message} ${String(error).slice(0, 51)}` : [];
  });
  const said = 'the database returned an error (SQLSTATE 42P01: the';
  assert.deepEqual(changes, [`warn not ready ${said}`, 'info ready again undefined']);
});
