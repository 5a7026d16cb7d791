/**
 * What must happen once happens once, and what is limited stays limited, whichever replicas are
 * asked; and IDENTITY_SECRET, which seals the keys of authenticator apps, is replaced under them.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { createTotpKey } from '../../../../src/identity/factors/codes.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, factorsOf } from '../../../support/factors.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { type Page, pagesOf, PORTAL, startPortal } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { sql, databaseUrl, addSignedIn } = portal;
const other = await startGatehouse({ after }, ['identity'], databaseUrl, PORTAL);
const here = factorsOf(portal);
const there = factorsOf({ ...portal, ...pagesOf(other.url.identity) });
const { addEnrolled, stepNow, codeNow, freshCode, forgetSteps, events, rowsOf, start } = here;

const ROUNDS = 5;
async function assertOne(...pages: ReadonlyArray<Promise<Page>>) {
  const statuses = (await Promise.all(pages)).map(({ status }) => status);
  assert.deepEqual(statuses.sort(), [200, 401]);
}

test('a code, and a recovery code, is accepted by one of two replicas', async () => {
  const user = await addEnrolled();
  for (const recovery of user.codes.slice(0, ROUNDS)) {
    for (const code of [await freshCode(user), recovery]) {
      const one = await start(user.username);
      const two = await there.start(user.username);
      await assertOne(here.enterCode(one, code), there.enterCode(two, code));
    }
  }
  assert.equal(await rowsOf('sessions', user.id), 1 + 2 * ROUNDS);
  assert.equal(await events(user.id, 'recovery.used'), ROUNDS);
});

test('a pending sign-in makes one session, also by two right codes at once', async () => {
  const { username, codes } = await addEnrolled();
  const pending = await start(username);
  await assertOne(
    here.enterCode(pending, codes[0] ?? ''),
    there.enterCode(pending, codes[1] ?? ''),
  );
});

test('the response of a passkey is accepted by one of two replicas', async () => {
  const { id, host } = await addSignedIn();
  const passkey = createPasskey();
  assert.equal((await here.register(host, passkey)).status, 200);
  for (let round = 1; round <= ROUNDS; round += 1) {
    const browser = await here.newBrowser();
    const { challenge } = await here.options(ALONE, browser);
    // Synchronized passkeys always send 0: only the challenge tells the two apart.
    const credential = here.answer(passkey, challenge, id, { counter: 0 });
    await assertOne(here.send(credential, browser), there.send(credential, browser));
  }
  const [row] = await sql`select counter from identity.passkeys where user_id = ${id}`;
  assert.equal(row?.counter, '0');
});

test('wrong codes are limited for a sign-in and for a day over all replicas', async () => {
  const { id, username, secret, codes } = await addEnrolled();
  let rejected = 0;
  for (let round = 1; round <= 5; round += 1) {
    const pending = await start(username);
    const tries = [here, there, here, there, here, there, here, there].map((replica) =>
      replica.enterCode(pending, '000000'),
    );
    rejected += (await Promise.all(tries)).filter(({ text }) =>
      /wrong, too old, or was used before/.test(text),
    ).length;
    assert.equal(rejected, Math.min(5 * round, 20));
  }
  assert.equal(await events(id, 'factor.failed'), 20);
  await forgetSteps(id);
  for (const code of [await codeNow(secret), codes[0] ?? '']) {
    for (const replica of [here, there]) {
      const page = await replica.enterCode(await start(username), code);
      assert.deepEqual([page.status, page.host], [429, '']);
      assert.ok(Number(page.headers.get('retry-after')) > 0);
    }
  }
  const warnings = other.log().filter(({ message }) => message === 'second factor throttled');
  assert.deepEqual(
    warnings.slice(-2).map(({ factor, user_id }) => [factor, user_id]),
    [
      ['totp', id],
      ['recovery', id],
    ],
  );
  // A right code neither passes nor ends the limit, and is not used up.
  const [row] = await sql`select last_step from identity.totp where user_id = ${id}`;
  assert.deepEqual([row?.last_step, await rowsOf('recovery_codes', id)], ['0', 10]);
});

// --- Another IDENTITY_SECRET

const OLD = PORTAL.IDENTITY_SECRET;
const NEW = 'another-identity-secret-0123456789abcdefgh';
const OTHER = 'a-third-identity-secret-0123456789abcdef';
const keyId = (secret: string) => createTotpKey(secret).id;
const appOf = async (id: string) =>
  (await sql`select * from identity.totp where user_id = ${id}`)[0];

async function startWith(context: TestContext, current: string, previous: string) {
  const secrets = { IDENTITY_SECRET: current, IDENTITY_SECRET_PREVIOUS: previous };
  const settings = { ...PORTAL, ...secrets };
  const gatehouse = await startGatehouse(context, ['identity'], databaseUrl, settings);
  const at = factorsOf({ ...portal, ...pagesOf(gatehouse.url.identity) });
  const linesOf = (level: string) => gatehouse.log().filter((line) => line.level === level);
  return {
    ...gatehouse,
    linesOf,
    signIn: async (user: { id: string; username: string; secret: Buffer }) =>
      at.enterCode(await at.start(user.username), await freshCode(user)),
    /** What the log of the start says of apps, by their keys. */
    apps: (level: string) =>
      linesOf(level).flatMap(({ key_id, apps }) => (apps === undefined ? [] : [[key_id, apps]])),
  };
}

test('an app works during and after a change of IDENTITY_SECRET, and is resealed at its next use', async (context) => {
  // Those of the tests above.
  await sql`delete from identity.totp`;
  const user = await addEnrolled();
  const idle = await addEnrolled();
  const during = await startWith(context, NEW, `${OTHER},${OLD}`);
  assert.deepEqual([during.apps('info'), during.apps('error')], [[[keyId(OLD), 2]], []]);
  const firstStep = await stepNow();
  assert.equal((await during.signIn(user)).status, 200);
  const lastStep = await stepNow();
  const resealed = await appOf(user.id);
  const usedStep = Number(resealed?.last_step);
  assert.ok(usedStep >= firstStep && usedStep <= lastStep, 'the step is used up');
  assert.deepEqual([resealed?.key_id, (await appOf(idle.id))?.key_id], [keyId(NEW), keyId(OLD)]);
  assert.equal((await during.signIn(user)).status, 200);
  assert.deepEqual((await appOf(user.id))?.blob, resealed?.blob, 'not sealed again without need');

  const afterwards = await startWith(context, NEW, '');
  assert.deepEqual([afterwards.apps('info'), afterwards.apps('error')], [[], [[keyId(OLD), 1]]]);
  assert.equal((await afterwards.signIn(user)).status, 200);
});

test('a wrong code seals nothing again', async (context) => {
  const user = await addEnrolled();
  const before = await appOf(user.id);
  const during = await startWith(context, NEW, OLD);
  assert.equal((await during.signIn({ ...user, secret: Buffer.alloc(20) })).status, 401);
  assert.deepEqual((await appOf(user.id))?.blob, before?.blob);
  assert.equal((await during.signIn(user)).status, 200);
});

test('without the earlier secret: 503, a log line with the key id, and nothing used up', async (context) => {
  const user = await addEnrolled();
  await forgetSteps(user.id);
  const before = await appOf(user.id);
  for (const previous of [OTHER, '']) {
    const without = await startWith(context, NEW, previous);
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
  assert.deepEqual(await appOf(user.id), before);
  assert.equal((await (await startWith(context, NEW, OLD)).signIn(user)).status, 200);
});

test('a row that was altered does not open, and the log says so', async (context) => {
  const user = await addEnrolled();
  await sql`update identity.totp set commitment = sha256('x') where user_id = ${user.id}`;
  const running = await startWith(context, OLD, '');
  assert.equal((await running.signIn(user)).status, 503);
  assert.match(JSON.stringify(running.log()), /the sealed key of an authenticator app was altered/);
});
