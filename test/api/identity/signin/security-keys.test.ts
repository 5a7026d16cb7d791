/**
 * Security keys and passkeys: which credential signs in alone, which is only a second step, and
 * which is rejected.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, factorsOf, SECOND, codesOn, PENDING } from '../../../support/factors.ts';
import { cookieFrom, startPortal } from '../../../support/portal.ts';
import { assertStatus } from '../../../support/gatehouse.ts';

const portal = await startPortal({ after });
const { sql, add, visit, signIn } = portal;
const { events, enrol, start, options, register, answer, send, newBrowser } = factorsOf(portal);

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

test('a passkey signs in alone if it has verified its user, and after the password without', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const passkey = createPasskey();
  const added = await register(host, passkey, { counter: 1 });
  assert.equal(codesOn(added.text).length, 10, 'the first factor comes with recovery codes');
  assert.match(
    (await visit('/account/factors', { cookie: cookieFrom(added, '__Host-gatehouse') })).text,
    /my &#60;device&#62;/,
  );

  const browser = await newBrowser();
  const { challenge, ids } = await options(ALONE, browser);
  assert.deepEqual(ids, [], 'nobody learns who has a passkey');
  const credential = answer(passkey, challenge, id, { counter: 2 });
  const alone = await send(credential, browser);
  const verified = await visit('/api/auth/verify?require=second_factor', {
    cookie: cookieFrom(alone, '__Secure-gatehouse'),
  });
  assert.deepEqual([verified.status, verified.headers.get('x-auth-methods')], [200, 'passkey']);
  assert.equal((await send(credential, browser)).status, 401, 'a challenge is used once');

  const unverified = answer(passkey, (await options(ALONE, browser)).challenge, id, {
    counter: 3,
    flags: 1,
  });
  assert.equal((await send(unverified, browser)).status, 401);
  const pending = await start(username);
  const second = await options(SECOND, pending);
  assert.deepEqual(second.ids, [passkey.id.toString('base64url')]);
  const both = await send(
    answer(passkey, second.challenge, null, { counter: 4, flags: 1 }),
    pending,
    SECOND,
  );
  const methods = await visit('/api/auth/verify', {
    cookie: cookieFrom(both, '__Secure-gatehouse'),
  });
  assert.equal(methods.headers.get('x-auth-methods'), 'password, passkey');
});

test('options for a passkey leave the row of the pending sign-in as it is', async () => {
  const { username, id } = await add();
  await enrol(username);
  const pending = await start(username);
  const versions = async () => [
    ...(await sql`select xmin::text as version, attempts from identity.pending_sign_ins where user_id = ${id}`),
  ];
  const before = await versions();
  assert.equal(before.length, 1);
  for (let times = 0; times < 3; times += 1) await options(SECOND, pending);
  assert.deepEqual(await versions(), before);
});

test("a second factor is the account's own passkey, whatever user the response names", async () => {
  const owner = await add();
  const other = await add();
  const own = createPasskey();
  const stranger = createPasskey();
  await register((await signIn(owner.username)).host, own);
  await register((await signIn(other.username)).host, stranger);
  const pending = await start(owner.username);
  for (const named of [other.id, owner.id, null]) {
    const { challenge } = await options(SECOND, pending);
    const page = await send(answer(stranger, challenge, named), pending, SECOND);
    assert.equal(page.status, 401);
    assert.equal(cookieFrom(page, '__Host-gatehouse'), '');
  }
  const { challenge } = await options(SECOND, pending);
  assert.equal((await send(answer(own, challenge, null), pending, SECOND)).status, 200);
});

test('a passkey is rejected for another browser, purpose, user, counter, site, or once removed', async () => {
  const owner = await add();
  const other = await add();
  const { host } = await signIn(owner.username);
  const passkey = createPasskey();
  const stranger = createPasskey();
  const renewed = cookieFrom(await register(host, passkey, { counter: 5 }), '__Host-gatehouse');
  const { host: otherHost } = await signIn(other.username);
  const taken = await register(otherHost, passkey);
  assert.equal(taken.status, 401, 'registered for another user');
  assert.match(taken.text, /was not accepted/);
  await register(otherHost, stranger);
  const browser = await newBrowser();
  const fresh = async (cookie = browser, path = ALONE) => (await options(path, cookie)).challenge;
  const refused = async (credential: string, cookie = browser, path = ALONE) =>
    assert.equal((await send(credential, cookie, path)).status, 401);

  await refused(answer(passkey, await fresh(await newBrowser()), owner.id, { counter: 9 }));
  await refused(
    answer(passkey, (await options('/account/passkeys', renewed)).challenge, owner.id, {
      counter: 9,
    }),
  );
  const pending = await start(owner.username);
  const both = `${browser}; ${pending}`;
  await refused(answer(passkey, await fresh(both, SECOND), owner.id, { counter: 9 }), both);
  await refused(answer(passkey, await fresh(both), owner.id, { counter: 9 }), both, SECOND);
  await refused(
    answer(stranger, await fresh(both, SECOND), other.id, { counter: 9 }),
    both,
    SECOND,
  );
  await refused(answer(passkey, await fresh(), other.id, { counter: 9 }));
  await refused(answer(passkey, await fresh(), null, { counter: 9 }));
  for (const counter of [5, 4, 0])
    await refused(answer(passkey, await fresh(), owner.id, { counter }));
  await refused(
    answer(passkey, await fresh(), owner.id, { counter: 9, origin: 'https://app.example.org' }),
  );
  await refused(answer(passkey, await fresh(), owner.id, { counter: 9, flags: 0x0d }), browser);
  for (const text of ['', '{}', 'null', '[]', 'x'.repeat(8_000), '{"id":1}']) await refused(text);
  await sql`update identity.users set enabled = false where id = ${owner.id}`;
  await refused(answer(passkey, await fresh(), owner.id, { counter: 6 }));
  await sql`update identity.users set enabled = true where id = ${owner.id}`;
  assertStatus(await send(answer(passkey, await fresh(), owner.id, { counter: 7 }), browser), 200);
  const removed = await visit('/account/factors/remove', {
    fields: { passkey: passkey.id.toString('base64url') },
    cookie: renewed,
  });
  assert.equal(removed.status, 303);
  await refused(answer(passkey, await fresh(), owner.id, { counter: 99 }));
  assert.equal(
    cookieFrom((await signIn(owner.username)).page, '__Host-gatehouse') !== '',
    true,
    'the password alone again',
  );
});

test('the counter of a passkey has 32 bits without a sign, and must grow', async () => {
  const { username, id } = await add();
  const passkey = createPasskey();
  await register((await signIn(username)).host, passkey, { counter: 2 ** 31 + 5 });
  for (const [counter, status] of [
    [2 ** 31 + 5, 401],
    [2 ** 31 + 6, 200],
    [2 ** 32 - 1, 200],
    [2 ** 31 + 7, 401],
    [0, 401],
  ] as const) {
    const browser = await newBrowser();
    const { challenge } = await options(ALONE, browser);
    const page = await send(answer(passkey, challenge, id, { counter }), browser);
    assert.equal(page.status, status, `counter ${counter}`);
  }
});

test('a pending sign-in ends after five wrong passkeys', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const passkey = createPasskey();
  await register(host, passkey);
  const pending = await start(username);
  const { challenge } = await options(SECOND, pending);
  for (let tries = 1; tries <= 6; tries += 1) {
    await send(answer(createPasskey(undefined, passkey.id), challenge, id), pending, SECOND);
  }
  assert.equal(await events(id, 'factor.failed'), 5);
  assert.equal((await send(answer(passkey, challenge, id), pending, SECOND)).status, 401);
});

test('a challenge without a cookie belongs to no browser', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const passkey = createPasskey();
  await register(host, passkey);
  const { challenge } = await options(ALONE, 'other=1');
  assert.equal((await send(answer(passkey, challenge, id), 'other=1')).status, 401);
});

test('a passkey on the sign-in page signs its own user in, whatever sign-in waits in the browser', async () => {
  const one = await add();
  const other = await add();
  await register((await signIn(one.username)).host);
  const passkey = createPasskey();
  await register((await signIn(other.username)).host, passkey);
  const browser = `${await newBrowser()}; ${await start(one.username)}`;
  const { challenge, ids } = await options(ALONE, browser);
  assert.deepEqual(ids, [], 'nothing about who began to sign in');
  const wrong = await send(answer(createPasskey(), challenge, other.id), browser);
  assert.equal(wrong.status, 401);
  assert.match(wrong.text, /id="username"/, 'the sign-in page again');
  const page = await send(answer(passkey, challenge, other.id), browser);
  const account = await visit('/account', { cookie: cookieFrom(page, '__Host-gatehouse') });
  assert.ok(account.text.includes(other.username));
  assert.ok(
    page.cookies.some((text) => text.startsWith(`${PENDING}=;`)),
    'and ends the other',
  );
});
