/**
 * Passkeys say why: each refusal has a reason in the log, and a sentence for who can do something.
 * What extensions return in another form works, where WebAuthn allows it.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { createChallenge } from '../../../../src/identity/factors/passkeys.ts';
import { createKey, createPasskey } from '../../../support/authenticator.ts';
import { attestationObjectOf } from '../../../support/cbor.ts';
import { ALONE, factorsOf, HOST, type Passkey, SECOND } from '../../../support/factors.ts';
import { cookieFrom, ORIGIN, type Page, startPortal } from '../../../support/portal.ts';
import { until } from '../../../support/until.ts';

const PATH = '/account/passkeys';
const problemOn = ({ text }: Page) => /<p class="problem"[^>]*>([^<]*)</.exec(text)?.[1] ?? '';
const text = (bytes: Buffer) => bytes.toString('base64url');

/** A service of its own for a test: of a route, five refusals a second are in the log. */
async function setUp(owner: TestContext) {
  const portal = await startPortal(owner);
  const factors = factorsOf(portal);
  const { add, signIn, log } = portal;
  const { register, newBrowser, options, send, answer } = factors;
  const refusals = () => log().filter(({ reason }) => reason !== undefined);
  return {
    ...portal,
    ...factors,
    /** Asserts what the person is told and what the log says. */
    async assertRefused(page: Promise<Page>, reason: string, words: RegExp) {
      const before = refusals().length;
      const answered = await page;
      assert.equal(answered.status, 401, answered.text);
      assert.match(problemOn(answered), words, reason);
      await until(() => refusals().length > before);
      const line = refusals().at(-1);
      assert.deepEqual([line?.message, line?.reason], ['passkey refused', reason]);
      assert.equal(typeof line?.request_id, 'string');
    },
    async withPasskey(more: object = {}, rk?: boolean) {
      const user = await add();
      const passkey = createPasskey();
      const added = await register((await signIn(user.username)).host, passkey, more, rk);
      assert.equal(added.status, 200, added.text);
      return { ...user, passkey, host: cookieFrom(added, '__Host-gatehouse') };
    },
    /** A response to a new challenge. */
    async fresh(passkey: Passkey, userId: string | null, more: object = {}) {
      const browser = await newBrowser();
      const { challenge } = await options(ALONE, browser);
      return send(answer(passkey, challenge, userId, more), browser);
    },
  };
}

const GENERIC = /^The passkey was not accepted\. Try again, or sign in another way\.$/;

test('a new passkey is read from its attestation object alone', async (t) => {
  const { add, signIn, options, visit, fresh } = await setUp(t);
  for (const kind of ['ES256', 'EdDSA', 'RS256'] as const) {
    const { username, id } = await add();
    const { host } = await signIn(username);
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
    const added = await visit(PATH, { fields: { name: kind, credential }, cookie: host });
    assert.match(added.text, /<h1>Recovery codes</, kind);
    assert.match((await fresh(passkey, id)).text, /<h1>You are signed in</, kind);
  }
});

test('an incomplete passkey is refused with the reason', async (t) => {
  const { add, signIn, options, visit, send, newBrowser, assertRefused } = await setUp(t);
  const { username } = await add();
  const { host } = await signIn(username);
  const complete = {
    id: text(randomBytes(16)),
    type: 'public-key',
    clientDataJSON: text(Buffer.from(JSON.stringify({ challenge: 'AAAA' }))),
  };
  const object = text(attestationObjectOf(Buffer.alloc(20)));
  for (const given of [complete, { ...complete, attestationObject: 'AAAA' }, null])
    await assertRefused(
      visit(PATH, { fields: { name: 'x', credential: JSON.stringify(given) }, cookie: host }),
      'malformed',
      /sent it incomplete/,
    );
  const browser = await newBrowser();
  const { challenge } = await options(PATH, host);
  const client = text(
    createPasskey().register({ challenge, origin: ORIGIN, host: HOST }).clientData,
  );
  const cut = JSON.stringify({ ...complete, clientDataJSON: client, attestationObject: object });
  await assertRefused(
    visit(PATH, { fields: { name: 'x', credential: cut }, cookie: host }),
    'malformed',
    /sent it incomplete/,
  );
  await assertRefused(send('{"id":', browser), 'malformed', /sent it incomplete/);
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

test('a challenge says whether it is late, used, or of another page', async (t) => {
  const { sql, options, send, answer, newBrowser, withPasskey, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey();
  const binding = await newBrowser();
  const [row] = await sql`select secret from identity.throttle_secret`;
  const scope = { secret: row?.secret, purpose: 'sign in', binding: binding.split('=')[1] ?? '' };
  const late = createChallenge({ ...scope, purpose: 'sign in' }, Date.now() / 1000 - 301);
  const tooLate = /open for too long, or its form was sent twice/;
  await assertRefused(send(answer(passkey, late, id), binding), 'late_challenge', tooLate);
  const { challenge } = await options(ALONE, binding);
  const credential = answer(passkey, challenge, id);
  assert.equal((await send(credential, binding)).status, 200);
  await assertRefused(send(credential, binding), 'used_challenge', tooLate);
  await assertRefused(send(credential, await newBrowser()), 'other_challenge', tooLate);
});

test('a browser that keeps no cookies is told so', async (t) => {
  const { options, send, answer, newBrowser, withPasskey, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey();
  const { challenge } = await options(ALONE, await newBrowser());
  const words = /did not send the cookie of this page\. Allow cookies/;
  await assertRefused(send(answer(passkey, challenge, id), ''), 'no_cookie', words);
});

test('each check of the browser and the device has its reason and sentence', async (t) => {
  const { withPasskey, fresh, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey({ counter: 9 });
  for (const [more, reason, words] of [
    [{ origin: 'https://other.example.org', counter: 10 }, 'wrong_origin', /at another address/],
    [{ client: { crossOrigin: true }, counter: 10 }, 'in_frame', /inside another one/],
    [{ flags: 1, counter: 10 }, 'user_not_verified', /fingerprint, face or PIN/],
    [{ flags: 0x0d, counter: 10 }, 'other_backup', /Remove it, and add it again/],
  ] as const)
    await assertRefused(fresh(passkey, id, more), reason, words);
});

test('what an attacker could learn from is only in the log', async (t) => {
  const { withPasskey, fresh, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey({ counter: 9 });
  await assertRefused(fresh(passkey, id, { counter: 9 }), 'earlier_counter', GENERIC);
  const copy = createPasskey(createKey('ES256'), passkey.id);
  await assertRefused(fresh(copy, id, { counter: 10 }), 'wrong_signature', GENERIC);
  await assertRefused(fresh(passkey, id, { host: 'x.example.org' }), 'wrong_host', GENERIC);
  await assertRefused(fresh(passkey, id, { flags: 4 }), 'user_absent', GENERIC);
});

test('whether somebody has a passkey is only in the log', async (t) => {
  const { sql, add, withPasskey, fresh, assertRefused } = await setUp(t);
  const { id, passkey } = await withPasskey();
  await assertRefused(fresh(createPasskey(), id), 'unknown', GENERIC);
  await assertRefused(fresh(passkey, (await add()).id), 'other_user', GENERIC);
  await assertRefused(fresh(passkey, null), 'other_user', GENERIC);
  await sql`update identity.users set enabled = false where id = ${id}`;
  await assertRefused(fresh(passkey, id), 'other_account', GENERIC);
});

test('a security key that is a second step says so, and works after the password', async (t) => {
  const { options, send, answer, start, withPasskey, fresh, assertRefused } = await setUp(t);
  const { username, id, passkey } = await withPasskey({}, false);
  await assertRefused(fresh(passkey, id), 'second_step', /Enter your password first/);
  const pending = await start(username);
  const { challenge } = await options(SECOND, pending);
  // A U2F key has no user handle; some browsers make an empty one of it.
  const credential = { ...JSON.parse(answer(passkey, challenge, null)), userHandle: '' };
  const page = await send(JSON.stringify(credential), pending, SECOND);
  assert.match(page.text, /<h1>You are signed in</);
});

test('the sentence is beside the button', async (t) => {
  const { fresh } = await setUp(t);
  const { text } = await fresh(createPasskey(), null);
  assert.match(text, /id="passkey">[^]*<button[^]*<p class="problem" role="alert"[^]*<\/form>/);
  assert.equal(text.split('class="problem"').length, 2, 'once');
});

test('options for a second step that has ended say so', async (t) => {
  const { visit } = await setUp(t);
  const page = await visit(SECOND, { cookie: '__Host-gatehouse-pending=x' });
  assert.equal(page.status, 401);
  assert.equal(JSON.parse(page.text).error.code, 'unauthorized');
  assert.match(JSON.parse(page.text).error.message, /^This sign-in has ended\./);
});

test('at an IP address, no page offers passkeys, and the start warns', async (t) => {
  for (const address of ['https://192.0.2.7:8443', 'https://[2001:db8::7]']) {
    const other = await startPortal(t, { SIGNIN_ORIGIN: address, COOKIE_DOMAIN: '' });
    assert.doesNotMatch((await other.visit('/login')).text, /id="passkey"/);
    const warnings = other.log().map(({ message }) => String(message));
    assert.ok(
      warnings.some((one) => one.startsWith('SIGNIN_ORIGIN has an IP address')),
      address,
    );
  }
});
