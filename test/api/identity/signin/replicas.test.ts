/**
 * What must happen once happens once, and what is limited stays limited, whichever replicas are
 * asked.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, factorsOf } from '../../../support/factors.ts';
import { startGatehouse } from '../../../support/gatehouse.ts';
import { hostOf, type Page, pagesOf, PORTAL, startPortal } from '../../../support/portal.ts';

const portal = await startPortal({ after });
const { sql, databaseUrl, addSignedIn } = portal;
const other = await startGatehouse({ after }, ['identity'], databaseUrl, PORTAL);
const here = factorsOf(portal);
const there = factorsOf({ ...portal, ...pagesOf(other.url.identity) });
const { addEnrolled, codeNow, freshCode, forgetSteps, events, rowsOf, start } = here;

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
      await assertOne(here.enter(one, code), there.enter(two, code));
    }
  }
  assert.equal(await rowsOf('sessions', user.id), 1 + 2 * ROUNDS);
  assert.equal(await events(user.id, 'recovery.used'), ROUNDS);
});

test('a pending sign-in makes one session, also by two right codes at once', async () => {
  const { username, codes } = await addEnrolled();
  const pending = await start(username);
  await assertOne(here.enter(pending, codes[0] ?? ''), there.enter(pending, codes[1] ?? ''));
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
      replica.enter(pending, '000000'),
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
      const page = await replica.enter(await start(username), code);
      assert.deepEqual([page.status, hostOf(page)], [429, '']);
      assert.ok(Number(page.headers.get('retry-after')) > 0);
    }
  }
  // A right code neither passes nor ends the limit, and is not used up.
  const [row] = await sql`select last_step from identity.totp where user_id = ${id}`;
  assert.deepEqual([row?.last_step, await rowsOf('recovery_codes', id)], ['0', 10]);
});
