/**
 * Security keys and passkeys: which credential signs in alone, which is only a second step, and
 * which is rejected. Each refusal has a reason in the log, and a sentence for who can do something.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test, type TestContext } from 'node:test';
import { createChallenge } from '../../../../src/identity/factors/passkeys.ts';
import { attestationObjectOf, createKey, createPasskey } from '../../../support/authenticator.ts';
import { holdTimers } from '../../../support/clock.ts';
import { ALONE, codesOn, HOST, PENDING, SECOND, startSignIn } from '../../../support/factors.ts';
import { ORIGIN, type Page, startPortal, valueOf } from '../../../support/portal.ts';
import { until } from '../../../support/until.ts';

const portal = await startSignIn({ after });
const { sql, add, addSignedIn, show, post, signIn, events, addEnrolled, start } = portal;
const { options, register, answer, send, newBrowser, signInWith, proveWith } = portal;
const encoded = (bytes: Buffer) => bytes.toString('base64url');

/** A user with one passkey. `rk`: whether the browser says that the key lists it by itself. */
async function addPasskey(more: object = {}, rk?: boolean) {
  const user = await addSignedIn();
  const passkey = createPasskey();
  const added = await register(user.host, passkey, more, rk);
  assert.equal(codesOn(added.text).length, 10, 'the first factor comes with recovery codes');
  return { ...user, passkey, host: added.host };
}

// --- Why a passkey is refused

const PATH = '/account/passkeys';
const GENERIC = />The passkey was not accepted\. Try again, or sign in another way\.</;

/** @returns what asserts what the person is told and what the log says */
function refusalsOf(t: TestContext) {
  // Of a route, five refusals a second are in the log.
  const endSecond = holdTimers(t, 1_000);
  const refusals = () => portal.log().filter(({ reason }) => reason !== undefined);
  return async (page: Promise<Page>, reason: string, words: RegExp) => {
    const before = refusals().length;
    const answered = await page;
    assert.equal(answered.status, 401, answered.text);
    const [problem, ...more] = answered.text.match(/<p class="problem"[^>]*>[^<]*</g) ?? [];
    assert.match(problem ?? '', words, reason);
    assert.deepEqual(more, []);
    await until(() => refusals().length > before);
    const line = refusals().at(-1);
    assert.deepEqual([line?.message, line?.reason], ['passkey refused', reason]);
    endSecond();
  };
}

test('an incomplete passkey is refused with the reason', async (t) => {
  const assertRefused = refusalsOf(t);
  const { host } = await addSignedIn();
  const { challenge } = await options(PATH, host);
  const { clientData } = createPasskey().register({ challenge, origin: ORIGIN, host: HOST });
  const complete = {
    id: encoded(randomBytes(16)),
    type: 'public-key',
    clientDataJSON: encoded(clientData),
  };
  const cut = encoded(attestationObjectOf(Buffer.alloc(20)));
  const given = [complete, null];
  for (const one of [...given, { ...complete, attestationObject: cut }]) {
    const page = post(PATH, host, { name: 'x', credential: JSON.stringify(one) });
    await assertRefused(page, 'malformed', /sent it incomplete/);
  }
  for (const text of ['{"id":', '{"id":1}'])
    await assertRefused(send(text, await newBrowser()), 'malformed', /sent it incomplete/);
});

test('the limit and a passkey that was added before have their own sentences', async (t) => {
  const assertRefused = refusalsOf(t);
  const { id, passkey, host } = await addPasskey();
  await assertRefused(register(host, passkey), 'registered', /was added before/);
  await sql`
    insert into identity.passkeys (id, user_id, name, spki, counter, is_backup_eligible,
      signs_in_alone)
    select sha256(n::text::bytea), ${id}, n::text, '', 0, false, true
    from generate_series(1, 19) n`;
  await assertRefused(register(host), 'limit', /You have 20 passkeys and security keys/);
});

test('a challenge says whether it is late, used, or of another browser, or of none', async (t) => {
  const assertRefused = refusalsOf(t);
  const { id, passkey } = await addPasskey();
  const browser = await newBrowser();
  const [row] = await sql`select secret from identity.throttle_secret`;
  const scope = { secret: row?.secret, purpose: 'sign in', binding: valueOf(browser) } as const;
  const late = createChallenge(scope, Date.now() / 1000 - 301);
  const tooLate = /open for too long, or its form was sent twice/;
  await assertRefused(send(answer(passkey, late, id), browser), 'late_challenge', tooLate);
  const credential = answer(passkey, (await options(ALONE, browser)).challenge, id);
  assert.equal((await send(credential, browser)).status, 200);
  await assertRefused(send(credential, browser), 'used_challenge', tooLate);
  await assertRefused(send(credential, await newBrowser()), 'other_challenge', tooLate);
  await assertRefused(send(credential, ''), 'no_cookie', /did not send the cookie of this page\./);
});

test('each check of a sign-in has its reason in the log, and words that tell no attacker anything', async (t) => {
  const assertRefused = refusalsOf(t);
  const { id, passkey } = await addPasskey({ counter: 9 });
  const copy = createPasskey(createKey('ES256'), passkey.id);
  for (const [used, user, more, reason, words] of [
    [passkey, id, { origin: 'https://other.example.org' }, 'wrong_origin', /at another address/],
    [passkey, id, { client: { crossOrigin: true } }, 'in_frame', /inside another one/],
    [passkey, id, { flags: 1 }, 'user_not_verified', /fingerprint, face or PIN/],
    [passkey, id, { flags: 0x0d }, 'other_backup', /Remove it, and add it again/],
    [passkey, id, { counter: 9 }, 'earlier_counter', GENERIC],
    [copy, id, {}, 'wrong_signature', GENERIC],
    [passkey, id, { host: 'x.example.org' }, 'wrong_host', GENERIC],
    [passkey, id, { flags: 4 }, 'user_absent', GENERIC],
    // Nor who has a passkey.
    [createPasskey(), id, {}, 'unknown', GENERIC],
    [passkey, (await add()).id, {}, 'other_user', GENERIC],
    [passkey, null, {}, 'other_user', GENERIC],
  ] as const)
    await assertRefused(signInWith(used, user, { counter: 10, ...more }), reason, words);
  await sql`update identity.users set enabled = false where id = ${id}`;
  await assertRefused(signInWith(passkey, id, { counter: 10 }), 'other_account', GENERIC);
});

test('a U2F key, whose user handle some browsers make empty, works after the password', async (t) => {
  const assertRefused = refusalsOf(t);
  const { id, username, host } = await addSignedIn();
  const key = createPasskey();
  await register(host, key, {}, false);
  await assertRefused(signInWith(key, id), 'second_step', /Enter your password first/);
  const pending = await start(username);
  const { challenge } = await options(SECOND, pending);
  const credential = { ...JSON.parse(answer(key, challenge, null)), userHandle: '' };
  const page = await send(JSON.stringify(credential), pending, SECOND);
  assert.match(page.text, /<h1>You are signed in</);
});

test('at an IP address, no page offers passkeys', async (t) => {
  const origin = 'https://192.0.2.7';
  const other = await startPortal(t, { SIGNIN_ORIGIN: origin, COOKIE_DOMAIN: '' });
  const { username } = await other.add();
  const { host } = await other.signIn(username, { headers: { origin, host: '192.0.2.7' } });
  const own = await other.show('/account/factors', host);
  assert.match(own.text, /None can be added: the address of these pages is an IP address\./);
  for (const { text } of [own, await other.visit('/login')])
    assert.doesNotMatch(text, /id="passkey"|Replace all codes/);
});

test('the page of factors says which passkey is which', async () => {
  for (const [flags, where] of [
    [0x05, 'on one device'],
    [0x0d, 'synchronized'],
  ] as const) {
    const { id, host } = await addPasskey({ flags });
    assert.match(
      (await show('/account/factors', host)).text,
      new RegExp(`last used: never, ${where}<`),
    );
    await sql`update identity.passkeys set name = 'Phone' where user_id = ${id}`;
    const again = await post(PATH, host, { name: 'Phone', credential: '{}' });
    assert.equal(again.status, 400);
    assert.match(again.text, /id="name-problem">Is the name of another passkey or security key/);
  }
});

test('a failure of the database is no refusal of a passkey, and no wrong factor', async () => {
  const { id, passkey } = await addPasskey();
  await sql`alter table identity.passkeys
    add constraint broken check (last_used_at is null) not valid`;
  const failed = await signInWith(passkey, id);
  await sql`alter table identity.passkeys drop constraint broken`;
  assert.deepEqual([failed.status, await events(id, 'factor.failed')], [500, 0]);
  assert.equal((await signInWith(passkey, id)).status, 200);
});

// --- What signs in alone, and what after the password

/** Flags of an authenticator that has seen its user, and of one that has also checked a PIN. */
const PRESENT = { flags: 0x01 };
const VERIFIED = { flags: 0x05 };
const methodsOf = async (page: Page) =>
  (await show('/api/auth/verify?require=second_factor', page.domain)).headers.get('x-auth-methods');

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
  assert.deepEqual((await options(SECOND, browser)).ids, [encoded(passkey.id)]);
  assert.deepEqual([...(await waiting())], before);
  const ended = await show(SECOND, `${PENDING}=x`);
  assert.match(ended.text, /"unauthorized".*This sign-in has ended\./);
});

test("a second factor is the account's own passkey, whatever user the response names", async () => {
  const owner = await addPasskey();
  const other = await addPasskey();
  const pending = await start(owner.username);
  for (const named of [other.id, owner.id, null]) {
    const page = await proveWith(other.passkey, pending, named);
    assert.deepEqual([page.status, page.host], [401, '']);
  }
  assert.equal((await proveWith(owner.passkey, pending, null)).status, 200);
});

test('a challenge is for its purpose, and a passkey for its user, until it is removed', async () => {
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
  assert.equal(await sign(ALONE, ALONE), 200);
  const fields = { passkey: encoded(passkey.id) };
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
  assert.ok((await show('/account', page.host)).text.includes(other.username));
  assert.ok(page.cookies.some((text) => text.startsWith(`${PENDING}=;`)));
});
