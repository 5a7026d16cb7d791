/**
 * Apps and recovery codes, and what a sign-in may do that waits for them. IDENTITY_SECRET, which
 * seals the keys of apps, is replaced under them.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { createTotpKey, totpCode } from '../../../../src/identity/factors/codes.ts';
import { createRoutes } from '../../../../src/identity/routes.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { codesOn, factorsOf, secretOn, setupOn, startSignIn } from '../../../support/factors.ts';
import { ADMIN_PASSWORD, ask, launch, startGatehouse } from '../../../support/gatehouse.ts';
import { forwarded, ORIGIN, pagesOf, PORTAL, valueOf } from '../../../support/portal.ts';
import { SITE } from '../../../support/service-context.ts';
import { assertError, assertSuccess, PASSWORD } from '../../../support/users.ts';

const portal = await startSignIn({ after });
const { identity, databaseUrl, sql, admin, call, addSignedIn, visit, show, post, signIn } = portal;
const { events, rowsOf, stepNow, forgetSteps, codeNow, freshCode } = portal;
const { startTotp, confirmTotp, addEnrolled, start, enterCode, register } = portal;

const ENDED = /This sign-in has ended/;
const SIGNED_IN = /<h1>You are signed in</;
const logIn = (username: string, more: object = {}) =>
  call(null, 'POST', '/api/auth/login', { username, password: PASSWORD, ...more });

test('an app is set up with a key, a QR code and its first right code', async () => {
  const { id, username, host } = await addSignedIn();
  const offered = await startTotp(host);
  assert.match(offered.text, /<svg role="img" aria-label="QR code of the key"/);
  const secret = secretOn(offered.text);
  const entries = await rowsOf('audit', id);
  const wrong = await confirmTotp(host, offered.text, '000000');
  assert.deepEqual([wrong.status, codesOn(wrong.text)], [401, ['']]);
  assert.deepEqual(secretOn(wrong.text), secret, 'the app has this key already');
  assert.equal(await rowsOf('audit', id), entries);
  assert.notEqual((await signIn(username)).host, '', 'not asked for yet');
  const done = await confirmTotp(host, wrong.text, await codeNow(secret));
  assert.equal(codesOn(done.text).length, 10);
  assert.equal(await events(id, 'factor.added'), 2);
  const [row] = await sql`select t::text as sealed from identity.totp t where user_id = ${id}`;
  assert.ok(!String(row?.sealed).includes(secret.toString('hex')));
  assert.match((await show('/account/factors', done.host)).text, /In use</);
});

test('a right password alone opens nothing, and the right code leads to the requested address', async () => {
  const user = await addEnrolled();
  const pending = await start(user.username);
  const token = valueOf(pending);
  const cookies = ['__Host-gatehouse', '__Secure-gatehouse', 'session'];
  for (const { method, pattern, security } of await createRoutes(SITE)) {
    if (security.length === 0) continue;
    for (const credential of [
      { cookie: [pending, ...cookies.map((name) => `${name}=${token}`)].join('; ') },
      { authorization: `Bearer ${token}` },
    ]) {
      const headers = { ...credential, origin: ORIGIN, 'sec-fetch-site': 'same-origin' };
      const path = identity + pattern.replace(/\{[a-z_]+\}/g, user.id);
      const { status } = await ask(method, path, { headers });
      assert.ok([401, 303].includes(status), `${method} ${pattern}: ${status}`);
    }
  }
  const done = await enterCode(pending, await freshCode(user));
  assert.match(done.text, /url=https:\/\/app\.example\.org\/x"/);
  const verified = await show('/api/auth/verify?require=second_factor', done.domain);
  assert.equal(verified.headers.get('x-auth-methods'), 'password, totp');
  assert.equal((await enterCode(pending, await freshCode(user))).status, 401, 'it is finished');
});

test('a code is accepted once, and no earlier one after it, on the page and by the API', async () => {
  const user = await addEnrolled();
  const { id, username, secret } = user;
  const now = await stepNow();
  await forgetSteps(id);
  assert.equal((await enterCode(await start(username), totpCode(secret, now))).status, 200);
  for (const step of [now - 1, now])
    assert.equal((await enterCode(await start(username), totpCode(secret, step))).status, 401);
  const otp = await freshCode(user);
  for (const [more, code] of [
    [{ password: 'wrong' }, 'invalid_credentials'],
    [{ password: 'wrong', otp }, 'invalid_credentials'],
    [{}, 'second_factor_needed'],
    [{ otp: '' }, 'second_factor_needed'],
    [{ otp: null }, 'second_factor_needed'],
    [{ otp: ' \u200b' }, 'second_factor_needed'],
    [{ otp: '000000' }, 'invalid_code'],
    [{ otp }, undefined],
    [{ otp }, 'invalid_code'],
  ] as const)
    assert.equal((await logIn(username, more)).json.error?.code, code, JSON.stringify(more));
});

test('only wrong codes count towards the limit of a day: neither right nor empty ones', async () => {
  const user = await addEnrolled();
  for (let logins = 1; logins <= 21; logins += 1) {
    await logIn(user.username, { otp: '' });
    assertSuccess(await logIn(user.username, { otp: await freshCode(user) }));
  }
  const pending = await start(user.username);
  for (let count = 0; count < 8; count += 1)
    assert.equal((await enterCode(pending, ' - ')).status, 400);
  assert.equal(await events(user.id, 'factor.failed'), 0);
  assert.equal((await enterCode(pending, await freshCode(user))).status, 200);
});

/** How people type and copy a code. The scripts of digits have tests of their own. */
const CODES: ReadonlyArray<(code: string) => string> = [
  (code) => code.replace(/\d/g, (digit) => String.fromCodePoint(0x660 + Number(digit))),
  (code) => `${code.slice(0, 3)} — ${code.slice(3)}\r\n`,
  (code) => `\u200e\u2066${code}\u2069\u200e`,
  (code) => `Your code is ${code.slice(0, 3)} ${code.slice(3)}.`,
];

test('a code is read as it was typed or copied', async () => {
  const user = await addEnrolled();
  for (const [index, write] of CODES.entries()) {
    const page = await enterCode(await start(user.username), write(await freshCode(user)));
    assert.match(page.text, SIGNED_IN, String(index));
    assertSuccess(await logIn(user.username, { otp: write(await freshCode(user)) }));
  }
  const { host } = await addSignedIn();
  const { text } = await startTotp(host);
  assert.match(text, /id="code"[^>]* maxlength="64"/, 'a copied code is not cut');
});

test('a recovery code opens its own account once, however it is written, and is stored as a digest', async () => {
  const { id, username, codes } = await addEnrolled();
  const [first = '', second = ''] = codes;
  const written = first.toLowerCase().replaceAll('-', ' – ');
  for (const [code, status] of [
    [written, 200],
    [written, 401],
    [second, 200],
  ] as const)
    assert.equal((await enterCode(await start(username), code)).status, status);
  assert.equal(await events(id, 'recovery.used'), 2);
  const stored = await sql`select digest::text from identity.recovery_codes
    where user_id = ${id}`;
  assert.equal(stored.length, 8);
  assert.ok(!JSON.stringify(stored).includes((codes[2] ?? '').replaceAll('-', '')));
  const thief = await addEnrolled();
  assert.equal((await enterCode(await start(thief.username), codes[2] ?? '')).status, 401);
  assert.equal(await rowsOf('recovery_codes', id), 8);
});

test('recovery codes begin with the first second factor, and stay valid beside another', async () => {
  const { id, username, host } = await addSignedIn();
  const refused = await post('/account/recovery', host);
  assert.equal(refused.status, 409);
  assert.match(refused.text, /You have no second factor/);
  assert.equal(await rowsOf('recovery_codes', id), 0);
  // As if an earlier version had stored them.
  await sql`insert into identity.recovery_codes (digest, user_id) values ('\\x00'::bytea, ${id})`;
  const added = await register(host);
  assert.equal(codesOn(added.text).length, 10);
  const planted = await sql`select from identity.recovery_codes where digest = '\\x00'::bytea`;
  assert.deepEqual([planted.length, await rowsOf('recovery_codes', id)], [0, 10]);
  const typed = await enterCode(await start(username), '000000');
  assert.match(typed.text, /wrong, too old, or was used before/, 'a code of no app');
  const { text } = await startTotp(added.host);
  const done = await confirmTotp(added.host, text, await codeNow(secretOn(text)));
  assert.equal(done.headers.get('location'), '/account/factors');
  assert.equal(await rowsOf('recovery_codes', id), 10);
  assert.equal((await enterCode(await start(username), codesOn(added.text)[0] ?? '')).status, 200);
});

test('new recovery codes replace the earlier ones', async () => {
  const { id, username, host, codes } = await addEnrolled();
  const renewed = codesOn((await post('/account/recovery', host)).text);
  assert.deepEqual([renewed.length, await rowsOf('recovery_codes', id)], [10, 10]);
  for (const [code = '', status] of [
    [codes[0], 401],
    [renewed[0], 200],
  ] as const)
    assert.equal((await enterCode(await start(username), code)).status, status);
});

type Enrolled = Awaited<ReturnType<typeof addEnrolled>>;
const CHANGES: Readonly<Record<string, (user: Enrolled) => PromiseLike<unknown>>> = {
  'an administrator sets the password': ({ id }) =>
    call(admin.token, 'POST', `/api/user/${id}/password`, { password: 'another-password' }),
  'the user is disabled': ({ id }) =>
    call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false }),
  'its time is over': ({ id }) =>
    sql`update identity.pending_sign_ins set expires_at = now() where user_id = ${id}`,
  'another factor is added': ({ host }) => register(host),
  'the factor is removed': ({ host }) => post('/account/factors/remove', host),
};
for (const [what, change] of Object.entries(CHANGES)) {
  test(`a pending sign-in ends when ${what}`, async () => {
    const user = await addEnrolled();
    const pending = await start(user.username);
    const code = await freshCode(user);
    await change(user);
    const late = await enterCode(pending, code);
    assert.equal(late.status, 401);
    assert.match(late.text, ENDED);
  });
}

test('a rule for a second factor leads to setting one up, and then to the requested address', async () => {
  const { host, domain } = await addSignedIn();
  const { headers } = await visit('/api/auth/verify?require=second_factor&redirect=302', {
    cookie: domain,
    headers: forwarded('app.example.org', '/pay?x=1'),
  });
  const address = new URL(headers.get('location') ?? '');
  assert.equal(address.pathname, '/account/factors');
  const page = await show(address.pathname + address.search, host);
  assert.match(page.text, /name="return_to" value="https:\/\/app\.example\.org\/pay\?x=1"/);
  const return_to = 'https://app.example.org/pay?x=1';
  const { text } = await post('/account/totp/start', host, { return_to });
  const setup = setupOn(text, await codeNow(secretOn(text)));
  const done = await post('/account/totp', host, { return_to, ...setup });
  assert.ok(done.text.includes(`<a href="${return_to}" class="button primary">`));
});

/** A user with an app, two passkeys, recovery codes and a pending sign-in. */
async function addWithFactors() {
  const user = await addEnrolled();
  const passkeys = [createPasskey(), createPasskey()] as const;
  let { host } = user;
  for (const passkey of passkeys) host = (await register(host, passkey)).host;
  await start(user.username);
  return { ...user, host, ids: passkeys.map(({ id }) => id.toString('base64url')) };
}
const factorsIn = (id: string) =>
  Promise.all(
    ['totp', 'passkeys', 'recovery_codes', 'pending_sign_ins'].map((table) => rowsOf(table, id)),
  );

test('users remove a chosen factor of their own, administrators all of a user, a deletion too', async () => {
  const other = await addWithFactors();
  const { id, host, ids } = await addWithFactors();
  assert.deepEqual(await factorsIn(id), [1, 2, 10, 1]);
  for (const [passkey = '', left] of [
    [ids[0], [1, 1, 10, 0]],
    ['', [0, 1, 10, 0]],
    [other.ids[0], [0, 1, 10, 0]],
    [ids[1], [0, 0, 0, 0]],
  ] as const) {
    assert.equal((await post('/account/factors/remove', host, { passkey })).status, 303);
    assert.deepEqual(await factorsIn(id), left);
  }
  assert.deepEqual(await factorsIn(other.id), [1, 2, 10, 1]);

  const user = await addWithFactors();
  const chief = await addSignedIn({ super_admin: true });
  assert.equal((await post(`/account/users/${user.id}/remove_factors`, chief.host)).status, 303);
  assert.deepEqual(await factorsIn(user.id), [0, 0, 0, 0]);
  assert.equal((await show('/account', user.host)).status, 303);
  assert.notEqual((await signIn(user.username)).host, '');
  assert.deepEqual(await factorsIn(other.id), [1, 2, 10, 1]);
  await call(admin.token, 'DELETE', `/api/user/${other.id}`);
  assert.deepEqual(await factorsIn(other.id), [0, 0, 0, 0]);
});

test('a required second factor is set up before the first session', async (context) => {
  const settings = { ...PORTAL, REQUIRE_SECOND_FACTOR: 'super_admin' };
  const strict = await launch(['identity'], settings, context);
  const at = pagesOf(strict.identity);
  const credentials = { username: 'admin', password: ADMIN_PASSWORD };
  const api = await ask('POST', `${strict.identity}/api/auth/login`, { body: credentials });
  assertError(api, 401, 'second_factor_needed');
  const page = await at.enterPassword('admin', ADMIN_PASSWORD);
  assert.equal(page.host, '');
  const return_to = 'https://app.example.org/y';
  const confirm = (code: string, cookie = page.pending) =>
    at.post('/login/enrol', cookie, { ...setupOn(page.text, code), return_to });
  const wrong = await confirm('000000');
  assert.equal(wrong.status, 401);
  assert.deepEqual(secretOn(wrong.text), secretOn(page.text), 'the app has this key already');
  const done = await confirm(await codeNow(secretOn(page.text)));
  assert.equal(codesOn(done.text).length, 10);
  assert.ok(done.text.includes(`href="${return_to}"`));
  const verified = await at.show('/api/auth/verify?require=second_factor', done.domain);
  assert.equal(verified.status, 200);
  const again = await at.enterPassword('admin', ADMIN_PASSWORD);
  const late = await confirm('000000', again.pending);
  assert.match(late.text, ENDED, 'a second app beside the first one');
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
  const before = await appOf(user.id);
  assert.equal((await during.signIn({ ...user, secret: Buffer.alloc(20) })).status, 401);
  assert.deepEqual((await appOf(user.id))?.blob, before?.blob, 'a wrong code seals nothing');
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
    assert.deepEqual([logged.length, logged[0]?.key_id], [1, keyId(OLD)]);
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
