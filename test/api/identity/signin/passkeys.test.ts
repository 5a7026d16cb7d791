/**
 * Passkeys say why: each refusal has a reason in the log, and a sentence for who can do something.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { createChallenge } from '../../../../src/identity/factors/passkeys.ts';
import { createKey, createPasskey } from '../../../support/authenticator.ts';
import { attestationObjectOf } from '../../../support/cbor.ts';
import { ALONE, factorsOf, HOST, SECOND } from '../../../support/factors.ts';
import { hostOf, ORIGIN, type Page, startPortal, valueOf } from '../../../support/portal.ts';
import { until } from '../../../support/until.ts';

const PATH = '/account/passkeys';
const text = (bytes: Buffer) => bytes.toString('base64url');

/** A service of its own for a test: of a route, five refusals a second are in the log. */
async function setUp(owner: TestContext) {
  const portal = await startPortal(owner);
  const factors = factorsOf(portal);
  const refusals = () => portal.log().filter(({ reason }) => reason !== undefined);
  return {
    ...portal,
    ...factors,
    /** Asserts what the person is told and what the log says. */
    async assertRefused(page: Promise<Page>, reason: string, words = GENERIC) {
      const before = refusals().length;
      const answered = await page;
      assert.equal(answered.status, 401, answered.text);
      const [problem, ...more] = answered.text.match(/<p class="problem"[^>]*>[^<]*</g) ?? [];
      assert.match(problem ?? '', words, reason);
      assert.deepEqual(more, []);
      await until(() => refusals().length > before);
      const line = refusals().at(-1);
      assert.deepEqual([line?.message, line?.reason], ['passkey refused', reason]);
    },
    async withPasskey(more: object = {}) {
      const user = await portal.addSignedIn();
      const passkey = createPasskey();
      const added = await factors.register(user.host, passkey, more);
      assert.equal(added.status, 200, added.text);
      return { ...user, passkey, host: hostOf(added) };
    },
  };
}

const GENERIC = />The passkey was not accepted\. Try again, or sign in another way\.</;

test('a new passkey is read from its attestation object alone', async (t) => {
  const { addSignedIn, options, post, signInWith } = await setUp(t);
  for (const kind of ['ES256', 'EdDSA', 'RS256'] as const) {
    const { id, host } = await addSignedIn();
    const passkey = createPasskey(createKey(kind));
    const { challenge } = await options(PATH, host);
    const { clientData, data } = passkey.register({ challenge, origin: ORIGIN, host: HOST });
    const statement = new Map([['sig', randomBytes(71)]]);
    const credential = JSON.stringify({
      id: text(passkey.id),
      type: 'public-key',
      clientDataJSON: text(clientData),
      attestationObject: text(attestationObjectOf(data, 'packed', statement)),
    });
    const added = await post(PATH, host, { name: kind, credential });
    assert.match(added.text, /<h1>Recovery codes</, kind);
    assert.match((await signInWith(passkey, id)).text, /<h1>You are signed in</, kind);
  }
});

test('an incomplete passkey is refused with the reason', async (t) => {
  const { addSignedIn, options, post, send, newBrowser, assertRefused } = await setUp(t);
  const { host } = await addSignedIn();
  const { challenge } = await options(PATH, host);
  const { clientData } = createPasskey().register({ challenge, origin: ORIGIN, host: HOST });
  const complete = {
    id: text(randomBytes(16)),
    type: 'public-key',
    clientDataJSON: text(clientData),
  };
  const cut = text(attestationObjectOf(Buffer.alloc(20)));
  const given = [complete, null];
  for (const one of [...given, { ...complete, attestationObject: cut }]) {
    const page = post(PATH, host, { name: 'x', credential: JSON.stringify(one) });
    await assertRefused(page, 'malformed', /sent it incomplete/);
  }
  for (const text of ['{"id":', '{"id":1}'])
    await assertRefused(send(text, await newBrowser()), 'malformed', /sent it incomplete/);
});

test('the limit and a passkey that was added before have their own sentences', async (t) => {
  const { sql, register, withPasskey, assertRefused } = await setUp(t);
  const { id, passkey, host } = await withPasskey();
  await assertRefused(register(host, passkey), 'registered', /was added before/);
  await sql`
    insert into identity.passkeys (id, user_id, name, spki, counter, is_backup_eligible,
      signs_in_alone)
    select sha256(n::text::bytea), ${id}, n::text, '', 0, false, true
    from generate_series(1, 19) n`;
  await assertRefused(register(host), 'limit', /You have 20 passkeys and security keys/);
});

test('a challenge says whether it is late, used, or of another browser, or of none', async (t) => {
  const { sql, options, send, answer, newBrowser, withPasskey, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey();
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

test('each check of the browser and the device has its reason and sentence', async (t) => {
  const { withPasskey, signInWith, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey({ counter: 9 });
  for (const [more, reason, words] of [
    [{ origin: 'https://other.example.org' }, 'wrong_origin', /at another address/],
    [{ client: { crossOrigin: true } }, 'in_frame', /inside another one/],
    [{ flags: 1 }, 'user_not_verified', /fingerprint, face or PIN/],
    [{ flags: 0x0d }, 'other_backup', /Remove it, and add it again/],
  ] as const)
    await assertRefused(signInWith(passkey, id, { counter: 10, ...more }), reason, words);
});

test('what an attacker could learn from is only in the log', async (t) => {
  const { withPasskey, signInWith, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey({ counter: 9 });
  await assertRefused(signInWith(passkey, id, { counter: 9 }), 'earlier_counter');
  const copy = createPasskey(createKey('ES256'), passkey.id);
  await assertRefused(signInWith(copy, id, { counter: 10 }), 'wrong_signature');
  await assertRefused(signInWith(passkey, id, { host: 'x.example.org' }), 'wrong_host');
  await assertRefused(signInWith(passkey, id, { flags: 4 }), 'user_absent');
});

test('whether somebody has a passkey is only in the log', async (t) => {
  const { sql, add, withPasskey, signInWith, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey();
  await assertRefused(signInWith(createPasskey(), id), 'unknown');
  await assertRefused(signInWith(passkey, (await add()).id), 'other_user');
  await assertRefused(signInWith(passkey, null), 'other_user');
  await sql`update identity.users set enabled = false where id = ${id}`;
  await assertRefused(signInWith(passkey, id), 'other_account');
});

test('a U2F key, whose user handle some browsers make empty, works after the password', async (t) => {
  const { addSignedIn, register, start, options, answer, send, signInWith, assertRefused } =
    await setUp(t);
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

test('options for a second step that has ended say so', async (t) => {
  const { show } = await setUp(t);
  const page = await show(SECOND, '__Host-gatehouse-pending=x');
  assert.equal(page.status, 401);
  assert.match(page.text, /"unauthorized".*This sign-in has ended\./);
});

test('at an IP address, no page offers passkeys', async (t) => {
  const other = await startPortal(t, { SIGNIN_ORIGIN: 'https://192.0.2.7', COOKIE_DOMAIN: '' });
  assert.doesNotMatch((await other.visit('/login')).text, /id="passkey"/);
});
