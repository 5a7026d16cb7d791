/**
 * A rush of logins: some are rejected at once, none hangs, and all other requests are served.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../../support/database.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { assertError } from '../../../support/users.ts';
import { until } from '../../../support/until.ts';

const { url: databaseUrl } = await createDatabase();
const settings = { PASSWORD_HASHES: '1' };
const { url, log, holdHashes } = await startGatehouse(
  { after },
  ['identity'],
  databaseUrl,
  settings,
);

test('logins beyond the hashing queue are 503, while other endpoints answer', async () => {
  const bearer = await logIn(url.identity);
  const release = holdHashes();
  let answered = 0;
  // Each for another account, so that none is throttled.
  const rush = Array.from({ length: 60 }, (_, number) =>
    ask('POST', `${url.identity}/api/auth/login`, {
      body: { username: `nobody-${number}`, password: 'whatever it is' },
    }).finally(() => {
      answered += 1;
    }),
  );
  // One place and 32 seats.
  await until(() => answered === 60 - 33, 'all others are refused');
  for (const path of ['/api/test/', '/api/user/', '/readyz', '/livez'])
    assert.equal((await ask('GET', url.identity + path, { bearer })).status, 200, path);
  release();
  const answers = await Promise.all(rush);
  const refused = answers.filter((answer) => answer.status === 503);
  for (const answer of refused) assertError(answer, 503, 'overloaded');
  for (const answer of answers.filter((one) => one.status !== 503))
    assertError(answer, 401, 'invalid_credentials');
  assert.equal(refused.length, 60 - 33);
  // An attacker must not fill the log: a few lines, then one that counts the others.
  const warnings = () => log().filter(({ message }) => message === 'request rejected: overloaded');
  const accounted = () => warnings().reduce((sum, { omitted }) => sum + Number(omitted ?? 1), 0);
  await until(() => accounted() === refused.length);
  const times = warnings().map(({ time }) => Date.parse(String(time)));
  const most = 6 * (Math.floor((Math.max(...times) - Math.min(...times)) / 1_000) + 1) + 1;
  assert.ok(
    warnings().length <= most,
    `${warnings().length} warnings for ${refused.length} refusals, at most ${most}`,
  );
  const metrics = (await ask('GET', `${url.metrics}/metrics`)).text;
  const series =
    'gatehouse_requests_refused_total{service="identity",route="POST /api/auth/login",reason="overloaded"}';
  assert.ok(metrics.includes(`\n${series} ${refused.length}\n`), 'the metrics count every one');
  // And afterwards it lets people in again.
  await logIn(url.identity);
});
