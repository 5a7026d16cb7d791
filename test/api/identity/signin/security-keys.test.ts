/** Security keys: which credential signs in alone, and which is only a second step. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, factorsOf, SECOND } from '../../../support/factors.ts';
import { cookieFrom, startPortal } from '../../../support/portal.ts';

const portal = await startPortal({ after });
const { add, visit, signIn } = portal;
const { start, options, register, answer, send, newBrowser } = factorsOf(portal);

/** Flags of an authenticator that has seen its user, and of one that has also checked a PIN. */
const PRESENT = 0x01;
const VERIFIED = 0x05;

/** A user with one key. `rk`: whether the browser says that the key lists it by itself. */
async function addKey(flags: number, rk?: boolean) {
  const { id, username } = await add();
  const key = createPasskey();
  const { host } = await signIn(username);
  const added = await register(host, key, { flags }, rk);
  assert.equal(added.status, 200, added.text);
  const page = await visit('/account/factors', { cookie: cookieFrom(added, '__Host-gatehouse') });
  return {
    page: page.text,
    async alone(around: object) {
      const browser = await newBrowser();
      const { challenge, ids } = await options(ALONE, browser);
      assert.deepEqual(ids, [], 'without a password, no ids');
      return (await send(answer(key, challenge, id, around), browser)).status;
    },
    async afterPassword(around: object) {
      const pending = await start(username);
      const { challenge, ids } = await options(SECOND, pending);
      assert.deepEqual(ids, [key.id.toString('base64url')], 'a key without a list needs its id');
      return (await send(answer(key, challenge, null, around), pending, SECOND)).status;
    },
  };
}

test('a key without a PIN at its registration is a second step only, with a PIN set later too', async () => {
  const { page, alone, afterPassword } = await addKey(PRESENT, true);
  assert.match(page, /: second step after the password</);
  // Whoever finds the key can set a PIN, and the user handle is not signed.
  assert.equal(await alone({ flags: VERIFIED }), 401);
  assert.equal(await alone({ flags: PRESENT }), 401);
  assert.equal(await afterPassword({ flags: PRESENT }), 200);
  assert.equal(await afterPassword({ flags: VERIFIED }), 200);
});

test('a verified key that was added as a second step, or cannot list itself, does not sign in alone', async () => {
  const { page, alone, afterPassword } = await addKey(VERIFIED, false);
  assert.match(page, /: second step after the password</);
  assert.equal(await alone({ flags: VERIFIED }), 401);
  assert.equal(await afterPassword({ flags: PRESENT }), 200);
});

for (const rk of [true, undefined]) {
  test(`a verified passkey signs in alone if the browser says ${rk} about its list`, async () => {
    const { page, alone, afterPassword } = await addKey(VERIFIED, rk);
    assert.match(page, /: signs you in alone</);
    assert.equal(await alone({ flags: PRESENT }), 401, 'not without the check');
    assert.equal(await alone({ flags: VERIFIED }), 200);
    assert.equal(await afterPassword({ flags: PRESENT }), 200);
  });
}
