/**
 * A rush of logins whose hashes take far longer than a request: some are rejected at once, none
 * hangs, and all other requests are served.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../../support/database.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { assertError } from '../../../support/users.ts';
import { until } from '../../../support/until.ts';

const { url: databaseUrl } = await createDatabase();
const settings = { PASSWORD_SCRYPT: 'ln=13,r=8,p=1', PASSWORD_HASHES: '1' };
// A slow machine needs longer for 33 hashes than a request may take.
const ANSWER_MS = 120_000;
const { url, log } = await startGatehouse(
  { after },
  ['identity'],
  databaseUrl,
  settings,
  'ready',
  ANSWER_MS,
);

test('logins beyond the hashing queue are 503, while other endpoints answer', async () => {
  const bearer = await logIn(url.identity);
  let open = 0;
  // Each for another account, so that none is throttled.
  const rush = Array.from({ length: 60 }, async (_, number) => {
    open += 1;
    const answer = await ask('POST', `${url.identity}/api/auth/login`, {
      body: { username: `nobody-${number}`, password: 'whatever it is' },
    });
    open -= 1;
    return answer;
  });
  const waiting = async () =>
    /^gatehouse_password_hashes_waiting (\d+)$/m.exec(
      (await ask('GET', `${url.metrics}/metrics`)).text,
    )?.[1];
  while (Number(await waiting()) < 16) assert.ok(open > 0, 'the waiting room was never full');
  // Again, because a probe waits for a second only, which a busy machine may need.
  const isAnswered = async (path: string) =>
    (await ask('GET', url.identity + path, { bearer })).status === 200;
  for (const path of ['/api/test/', '/api/user/', '/readyz', '/livez'])
    while (!(await isAnswered(path))) assert.ok(open > 0, path);
  assert.ok(open > 0, 'they answered while logins were still waiting');
  const answers = await Promise.all(rush);
  const refused = answers.filter((answer) => answer.status === 503);
  for (const answer of refused) assertError(answer, 503, 'overloaded');
  for (const answer of answers.filter((one) => one.status !== 503))
    assertError(answer, 401, 'invalid_credentials');
  // One place and 32 seats.
  assert.ok(
    refused.length > 0 && refused.length <= 60 - 33,
    `${refused.length} of 60 were refused`,
  );
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
