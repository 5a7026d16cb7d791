/** The replacement of IDENTITY_SECRET, which seals the keys of authenticator apps. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { createTotpKey, totpCode } from '../../../../src/identity/factors/codes.ts';
import { factorsOf } from '../../../support/factors.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { PORTAL, startPortal, visitorOf } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { sql, add, databaseUrl } = portal;
const { stepNow, forgetSteps, enrol } = factorsOf(portal);
const OLD = PORTAL.IDENTITY_SECRET;
const NEW = 'another-identity-secret-0123456789abcdefgh';
const OTHER = 'a-third-identity-secret-0123456789abcdef';
const keyId = (secret: string) => createTotpKey(secret).id;

async function start(context: TestContext, current: string, previous: string) {
  const gatehouse = await startGatehouse(context, ['identity'], databaseUrl, {
    ...PORTAL,
    IDENTITY_SECRET: current,
    IDENTITY_SECRET_PREVIOUS: previous,
  });
  const visit = visitorOf(gatehouse.url.identity);
  const { start: begin, enter } = factorsOf({ ...portal, visit });
  const signIn = async ({ id, username }: { id: string; username: string }, secret: Buffer) => {
    await forgetSteps(id);
    return enter(await begin(username), totpCode(secret, await stepNow()));
  };
  const keys = (level: string) =>
    gatehouse
      .log()
      .filter((line) => line.level === level && 'apps' in line)
      .map(({ key_id, apps }) => [key_id, apps]);
  return { ...gatehouse, signIn, keys };
}
const rowOf = async (id: string) =>
  (await sql`select * from identity.totp where user_id = ${id}`)[0];

test('an app works during and after a change of IDENTITY_SECRET, and is resealed at its next use', async (context) => {
  const user = await add();
  const idle = await add();
  const { secret } = await enrol(user.username);
  await enrol(idle.username);
  const during = await start(context, NEW, `${OTHER},${OLD}`);
  assert.deepEqual(during.keys('info'), [[keyId(OLD), 2]]);
  assert.deepEqual(during.keys('error'), []);
  const firstStep = await stepNow();
  assert.equal((await during.signIn(user, secret)).status, 200);
  const lastStep = await stepNow();
  const resealed = await rowOf(user.id);
  assert.equal(resealed?.key_id, keyId(NEW));
  const usedStep = Number(resealed?.last_step);
  assert.ok(usedStep >= firstStep && usedStep <= lastStep, 'the step is used up');
  assert.equal((await rowOf(idle.id))?.key_id, keyId(OLD));
  assert.equal((await during.signIn(user, secret)).status, 200);
  assert.deepEqual((await rowOf(user.id))?.blob, resealed?.blob, 'not sealed again without need');

  const afterwards = await start(context, NEW, '');
  assert.deepEqual([afterwards.keys('info'), afterwards.keys('error')], [[], [[keyId(OLD), 1]]]);
  assert.equal((await afterwards.signIn(user, secret)).status, 200);
});

test('a wrong code seals nothing again', async (context) => {
  const user = await add();
  const { secret } = await enrol(user.username);
  const before = await rowOf(user.id);
  const during = await start(context, NEW, OLD);
  await forgetSteps(user.id);
  assert.equal((await during.signIn(user, Buffer.alloc(20))).status, 401);
  assert.deepEqual((await rowOf(user.id))?.blob, before?.blob);
  assert.equal((await during.signIn(user, secret)).status, 200);
});

test('without the earlier secret: 503, a log line with the key id, and nothing used up', async (context) => {
  const user = await add();
  const { secret } = await enrol(user.username);
  await forgetSteps(user.id);
  const before = await rowOf(user.id);
  for (const [current, previous] of [
    [NEW, OTHER],
    [NEW, ''],
  ] as const) {
    const without = await start(context, current, previous);
    const page = await without.signIn(user, secret);
    assert.equal(page.status, 503);
    assert.match(
      page.text,
      /role="alert"[^>]*>Codes of apps cannot be checked now\. Use a recovery code or a passkey, or contact the operator\./,
    );
    assert.deepEqual(page.cookies, []);
    const [logged, ...more] = without
      .log()
      .filter((line) => line.level === 'error' && line.user_id === user.id);
    assert.deepEqual(more, []);
    assert.equal(logged?.key_id, keyId(OLD));
    assert.match(String(logged?.message), /IDENTITY_SECRET is missing.*IDENTITY_SECRET_PREVIOUS/);
    for (const hidden of [OLD, NEW, OTHER, secret.toString('base64')])
      assert.ok(!without.stdout().includes(hidden));
    const otp = totpCode(secret, await stepNow());
    const body = { username: user.username, password: PASSWORD, otp };
    const api = await ask('POST', `${without.url.identity}/api/auth/login`, { body });
    assertError(api, 503, 'key_unknown');
  }
  assert.deepEqual(await rowOf(user.id), before);
  assert.equal((await (await start(context, NEW, OLD)).signIn(user, secret)).status, 200);
});

test('a row that was altered does not open, and the log says so', async (context) => {
  const user = await add();
  const { secret } = await enrol(user.username);
  await sql`update identity.totp set commitment = sha256('x') where user_id = ${user.id}`;
  const running = await start(context, OLD, '');
  assert.equal((await running.signIn(user, secret)).status, 503);
  assert.match(JSON.stringify(running.log()), /the sealed key of an authenticator app was altered/);
});
