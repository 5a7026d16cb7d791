/** `otp` over the API where the sign-in pages are off, as after a move to another server. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { factorsOf } from '../../../support/factors.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { PORTAL, startPortal } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { enrol, forgetSteps, stepNow } = factorsOf(portal);
const user = await portal.add();
const { secret } = await enrol(user.username);

async function serve(environment: Readonly<Record<string, string>>) {
  const service = await startGatehouse({ after }, ['identity'], portal.databaseUrl, environment);
  return {
    ...service,
    async logIn(otp?: string) {
      await forgetSteps(user.id);
      const body = { username: user.username, password: PASSWORD, otp };
      const answer = await ask('POST', `${service.url.identity}/api/auth/login`, { body });
      return [answer.status, answer.json.error?.code ?? answer.json.data.session.slice(0, 8)];
    },
  };
}

test('with IDENTITY_SECRET alone, a code is accepted and a wrong one is not', async () => {
  const { IDENTITY_SECRET } = PORTAL;
  const { logIn } = await serve({ IDENTITY_SECRET });
  assert.deepEqual(await logIn(totpCode(secret, await stepNow())), [200, 'session:']);
  assert.deepEqual(await logIn('000000'), [401, 'invalid_code']);
  assert.deepEqual(await logIn(), [401, 'second_factor_needed']);
});

test('with second factors turned off, the log and the reply to a code say so', async () => {
  const { logIn, log } = await serve({});
  assert.deepEqual(await logIn(totpCode(secret, await stepNow())), [503, 'key_unknown']);
  assert.deepEqual(await logIn(), [401, 'second_factor_needed']);
  const warned = log().filter(({ message }) => /users with a second factor/.test(String(message)));
  assert.equal(warned.length, 1, JSON.stringify(log()));
});
