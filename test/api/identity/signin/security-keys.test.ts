/**
 * Security keys and passkeys: which credential signs in alone, which is only a second step, and
 * which is rejected.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, codesOn, factorsOf, PENDING, SECOND } from '../../../support/factors.ts';
import { domainOf, hostOf, type Page, startPortal } from '../../../support/portal.ts';

const portal = await startPortal({ after });
const { sql, addSignedIn, show, post, signIn } = portal;
const factors = factorsOf(portal);
const { events, addEnrolled, start, options, register, answer, send, newBrowser } = factors;
const { signInWith, proveWith } = factors;

/** Flags of an authenticator that has seen its user, and of one that has also checked a PIN. */
const PRESENT = { flags: 0x01 };
const VERIFIED = { flags: 0x05 };
const methodsOf = async (page: Page) =>
  (await show('/api/auth/verify?require=second_factor', domainOf(page))).headers.get(
    'x-auth-methods',
  );

/** A user with one passkey. `rk`: whether the browser says that the key lists it by itself. */
async function addPasskey(more: object = {}, rk?: boolean) {
  const user = await addSignedIn();
  const passkey = createPasskey();
  const added = await register(user.host, passkey, more, rk);
  assert.equal(codesOn(added.text).length, 10, 'the first factor comes with recovery codes');
  return { ...user, passkey, host: hostOf(added) };
}

for (const [what, registered, rk, isAlone] of [
  // Whoever finds the key can set a PIN, and the user handle is not signed.
  ['without a PIN at its registration', PRESENT, true, false],
  ['that was added as a second step, or cannot list itself', VERIFIED, false, false],
  ['that lists itself', VERIFIED, true, true],
  ['of which the browser does not know whether it lists itself', VERIFIED, undefined, true],
] as const) {
  test(`a key ${what} signs in ${isAlone ? 'alone' : 'after the password only'}`, async () => {
    const { id, username, host, passkey } = await addPasskey(registered, rk);
    const { text } = await show('/account/factors', host);
    assert.match(text, isAlone ? /: signs you in alone</ : /: second step after the password</);
    assert.match(text, /my &#60;device&#62;/);
    for (const [flags, isAccepted] of [
      [PRESENT, false],
      [VERIFIED, isAlone],
    ] as const) {
      const alone = await signInWith(passkey, id, flags);
      assert.equal(alone.status, isAccepted ? 200 : 401);
      if (isAccepted) assert.equal(await methodsOf(alone), 'passkey');
      const both = await proveWith(passkey, await start(username), null, flags);
      assert.equal(await methodsOf(both), 'password, passkey');
    }
  });
}

test('options name the passkeys of an account after its password only, and write nothing', async () => {
  const { id, username, passkey } = await addPasskey();
  const browser = `${await newBrowser()}; ${await start(username)}`;
  const waiting = () => sql`
    select xmin::text, attempts from identity.pending_sign_ins where user_id = ${id}`;
  const before = [...(await waiting())];
  assert.equal(before.length, 1);
  assert.deepEqual((await options(ALONE, browser)).ids, []);
  assert.deepEqual((await options(SECOND, browser)).ids, [passkey.id.toString('base64url')]);
  assert.deepEqual([...(await waiting())], before);
});

test("a second factor is the account's own passkey, whatever user the response names", async () => {
  const owner = await addPasskey();
  const other = await addPasskey();
  const pending = await start(owner.username);
  for (const named of [other.id, owner.id, null]) {
    const page = await proveWith(other.passkey, pending, named);
    assert.deepEqual([page.status, hostOf(page)], [401, '']);
  }
  assert.equal((await proveWith(owner.passkey, pending, null)).status, 200);
});

test('a challenge is for its purpose, and a passkey for its user, while it may sign in', async () => {
  const { id, username, host, passkey } = await addPasskey();
  const other = await addPasskey();
  assert.equal((await register(other.host, passkey)).status, 401, 'registered for another user');
  const browser = `${await newBrowser()}; ${await start(username)}`;
  const sign = async (from: string, to: string, cookie = browser) => {
    const { challenge } = await options(from, cookie);
    return (await send(answer(passkey, challenge, id), browser, to)).status;
  };
  for (const [from, to, cookie] of [
    [ALONE, ALONE, await newBrowser()],
    ['/account/passkeys', ALONE, host],
    [SECOND, ALONE, browser],
    [ALONE, SECOND, browser],
  ] as const)
    assert.equal(await sign(from, to, cookie), 401, `${from} ${to}`);
  const enable = (enabled: boolean) =>
    sql`update identity.users set enabled = ${enabled} where id = ${id}`;
  await enable(false);
  assert.equal(await sign(ALONE, ALONE), 401);
  await enable(true);
  assert.equal(await sign(ALONE, ALONE), 200);
  const fields = { passkey: passkey.id.toString('base64url') };
  assert.equal((await post('/account/factors/remove', host, fields)).status, 303);
  assert.equal(await sign(ALONE, ALONE), 401);
  assert.notEqual((await signIn(username)).host, '', 'the password alone again');
});

test('the counter of a passkey has 32 bits without a sign, and must grow', async () => {
  const { id, passkey } = await addPasskey({ counter: 2 ** 31 + 5 });
  for (const [counter, status] of [
    [2 ** 31 + 5, 401],
    [2 ** 31 + 6, 200],
    [2 ** 32 - 1, 200],
    [2 ** 31 + 7, 401],
    [0, 401],
  ] as const)
    assert.equal((await signInWith(passkey, id, { counter })).status, status, String(counter));
});

test('a pending sign-in ends after five wrong passkeys', async () => {
  const { id, username, passkey } = await addPasskey();
  const pending = await start(username);
  const { challenge } = await options(SECOND, pending);
  const copy = createPasskey(undefined, passkey.id);
  for (let tries = 1; tries <= 6; tries += 1)
    await send(answer(copy, challenge, id), pending, SECOND);
  assert.equal(await events(id, 'factor.failed'), 5);
  assert.equal((await send(answer(passkey, challenge, id), pending, SECOND)).status, 401);
});

test('a passkey on the sign-in page signs its own user in, whatever sign-in waits in the browser', async () => {
  const one = await addEnrolled();
  const other = await addPasskey();
  const browser = `${await newBrowser()}; ${await start(one.username)}`;
  const { challenge } = await options(ALONE, browser);
  const wrong = await send(answer(createPasskey(), challenge, other.id), browser);
  assert.equal(wrong.status, 401);
  assert.match(wrong.text, /id="username"/, 'the sign-in page again');
  const page = await send(answer(other.passkey, challenge, other.id), browser);
  assert.ok((await show('/account', hostOf(page))).text.includes(other.username));
  assert.ok(page.cookies.some((text) => text.startsWith(`${PENDING}=;`)));
});
