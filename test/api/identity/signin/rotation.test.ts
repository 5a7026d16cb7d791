/** The replacement of IDENTITY_SECRET, which seals the keys of authenticator apps. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { createTotpKey } from '../../../../src/identity/factors/codes.ts';
import { factorsOf } from '../../../support/factors.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { pagesOf, PORTAL, startPortal } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { sql, databaseUrl } = portal;
const { stepNow, codeNow, freshCode, addEnrolled, forgetSteps } = factorsOf(portal);
const OLD = PORTAL.IDENTITY_SECRET;
const NEW = 'another-identity-secret-0123456789abcdefgh';
const OTHER = 'a-third-identity-secret-0123456789abcdef';
const keyId = (secret: string) => createTotpKey(secret).id;
const rowOf = async (id: string) =>
  (await sql`select * from identity.totp where user_id = ${id}`)[0];

async function start(context: TestContext, current: string, previous: string) {
  const secrets = { IDENTITY_SECRET: current, IDENTITY_SECRET_PREVIOUS: previous };
  const settings = { ...PORTAL, ...secrets };
  const gatehouse = await startGatehouse(context, ['identity'], databaseUrl, settings);
  const at = factorsOf({ ...portal, ...pagesOf(gatehouse.url.identity) });
  const linesOf = (level: string) => gatehouse.log().filter((line) => line.level === level);
  return {
    ...gatehouse,
    linesOf,
    signIn: async (user: { id: string; username: string; secret: Buffer }) =>
      at.enter(await at.start(user.username), await freshCode(user)),
    /** What the log of the start says of apps, by their keys. */
    apps: (level: string) =>
      linesOf(level).flatMap(({ key_id, apps }) => (apps === undefined ? [] : [[key_id, apps]])),
  };
}

test('an app works during and after a change of IDENTITY_SECRET, and is resealed at its next use', async (context) => {
  const user = await addEnrolled();
  const idle = await addEnrolled();
  const during = await start(context, NEW, `${OTHER},${OLD}`);
  assert.deepEqual([during.apps('info'), during.apps('error')], [[[keyId(OLD), 2]], []]);
  const firstStep = await stepNow();
  assert.equal((await during.signIn(user)).status, 200);
  const lastStep = await stepNow();
  const resealed = await rowOf(user.id);
  const usedStep = Number(resealed?.last_step);
  assert.ok(usedStep >= firstStep && usedStep <= lastStep, 'the step is used up');
  assert.deepEqual([resealed?.key_id, (await rowOf(idle.id))?.key_id], [keyId(NEW), keyId(OLD)]);
  assert.equal((await during.signIn(user)).status, 200);
  assert.deepEqual((await rowOf(user.id))?.blob, resealed?.blob, 'not sealed again without need');

  const afterwards = await start(context, NEW, '');
  assert.deepEqual([afterwards.apps('info'), afterwards.apps('error')], [[], [[keyId(OLD), 1]]]);
  assert.equal((await afterwards.signIn(user)).status, 200);
});

test('a wrong code seals nothing again', async (context) => {
  const user = await addEnrolled();
  const before = await rowOf(user.id);
  const during = await start(context, NEW, OLD);
  assert.equal((await during.signIn({ ...user, secret: Buffer.alloc(20) })).status, 401);
  assert.deepEqual((await rowOf(user.id))?.blob, before?.blob);
  assert.equal((await during.signIn(user)).status, 200);
});

test('without the earlier secret: 503, a log line with the key id, and nothing used up', async (context) => {
  const user = await addEnrolled();
  await forgetSteps(user.id);
  const before = await rowOf(user.id);
  for (const previous of [OTHER, '']) {
    const without = await start(context, NEW, previous);
    const page = await without.signIn(user);
    assert.deepEqual([page.status, page.cookies], [503, []]);
    assert.match(page.text, /role="alert"[^>]*>Codes of apps cannot be checked now\. /);
    const logged = without.linesOf('error').filter((line) => line.user_id === user.id);
    assert.deepEqual(
      logged.map(({ key_id }) => key_id),
      [keyId(OLD)],
    );
    assert.match(String(logged[0]?.message), /IDENTITY_SECRET is missing/);
    for (const hidden of [OLD, NEW, OTHER, user.secret.toString('base64')])
      assert.ok(!without.stdout().includes(hidden));
    const body = { username: user.username, password: PASSWORD, otp: await codeNow(user.secret) };
    const api = await ask('POST', `${without.url.identity}/api/auth/login`, { body });
    assertError(api, 503, 'key_unknown');
  }
  assert.deepEqual(await rowOf(user.id), before);
  assert.equal((await (await start(context, NEW, OLD)).signIn(user)).status, 200);
});

test('a row that was altered does not open, and the log says so', async (context) => {
  const user = await addEnrolled();
  await sql`update identity.totp set commitment = sha256('x') where user_id = ${user.id}`;
  const running = await start(context, OLD, '');
  assert.equal((await running.signIn(user)).status, 503);
  assert.match(JSON.stringify(running.log()), /the sealed key of an authenticator app was altered/);
});
