/** Load balancers and supervisors probe every few seconds: their requests stay out of the log unless they fail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, type Gatehouse, startGatehouse } from '../support/gatehouse.ts';

const requestsOf = ({ log }: Gatehouse) =>
  log().filter(({ message }) => message === 'request').map(({ level, route, status }) => `${level} ${route} ${status}`);

for (const [settings, expected] of [
  [{ LOG_PROBES: undefined }, []],
  [{ LOG_PROBES: undefined, LOG_LEVEL: 'debug' }, ['debug GET /livez 200', 'debug GET /readyz 200']],
  [{ LOG_PROBES: 'on' }, ['info GET /livez 200', 'info GET /readyz 200']],
] as const) {
  test(`successful probes in the log with ${JSON.stringify(settings)}`, async (t) => {
    const plain = { WEBHOOK_VARIANT: 'plain', ...settings };
    const gatehouse = await startGatehouse(t, ['webhook'], undefined, plain);
    for (const path of ['/livez', '/readyz', '/none']) await ask('GET', gatehouse.url.webhook + path);
    await gatehouse.stop();
    assert.deepEqual(requestsOf(gatehouse), [...expected, 'info (none) 404']);
  });
}

test('a failed probe is in the log', async (t) => {
  const away = 'postgres://postgres@127.0.0.1:1/none';
  const gatehouse = await startGatehouse(t, ['secrets'], away, { LOG_PROBES: undefined }, 'listening');
  assert.equal((await ask('GET', `${gatehouse.url.secrets}/readyz`)).status, 503);
  await gatehouse.stop();
  assert.deepEqual(requestsOf(gatehouse), ['info GET /readyz 503']);
});
