/**
 * Pages survive what browsers do, and no address that a person sees is a dead end. The page at `/`
 * says who is signed in.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createRoutes } from '../../../../src/identity/routes.ts';
import { readVersion } from '../../../../src/platform/runtime/version.ts';
import { ADDRESS, factorsOf, PENDING, startSignIn } from '../../../support/factors.ts';
import { ADMIN_PASSWORD } from '../../../support/gatehouse.ts';
import { cookieFrom, ORIGIN, startPortal } from '../../../support/portal.ts';
import { SITE } from '../../../support/service-context.ts';
import { assertSuccess } from '../../../support/users.ts';

const portal = await startSignIn({ after });
/** Without the settings that the pages can do without. */
const bare = await startPortal(
  { after },
  { IDENTITY_SECRET: '', COOKIE_DOMAIN: '', RETURN_ORIGINS: '' },
);
const { sql, add, addSignedIn, login, visit, show, post, signIn } = portal;
const { enterPassword, choosePassword } = portal;
const { addEnrolled, freshCode, start, enterCode, newBrowser } = portal;

const PERSON = { 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document', accept: 'text/html' };
const SIGNED_IN = /<h1>You are signed in</;
const COOKIES = /[Aa]llow cookies/;
const chief = await addSignedIn({ super_admin: true });
const rows = await createRoutes(SITE);
const isPage = ({ pattern }: { pattern: string }) => /^\/(login|link|logout|account)/.test(pattern);

test('another tab, a reload and a prerender show the step that waits, which leads to another user', async () => {
  const user = await addEnrolled();
  for (const headers of [{}, PERSON, { ...PERSON, 'sec-purpose': 'prefetch;prerender' }]) {
    const cookie = await start(user.username);
    const page = await visit(`/login?return_to=${ADDRESS}`, { cookie, headers });
    assert.match(page.text, /autocomplete="one-time-code"/);
    assert.ok(page.text.includes(`name="return_to" value="${ADDRESS}"`));
    assert.deepEqual(page.cookies, []);
    assert.match((await enterCode(cookie, await freshCode(user))).text, SIGNED_IN);
  }
  const pending = await start(user.username);
  const { text } = await show('/login', pending);
  assert.match(text, /<a href="\/login\?again=on&#38;return_to=">Sign in as another user</);
  for (const [path, cookie] of [
    ['/login?again=on', pending],
    ['/login', `${PENDING}=${'x'.repeat(43)}`],
  ] as const) {
    const page = await show(path, cookie);
    assert.match(page.text, /name="username"/);
    assert.ok(!page.cookies.some((text) => text.startsWith(PENDING)), 'the other tab goes on');
  }
});

test('a form of the sign-in that is sent again continues with the session', async () => {
  const user = await addEnrolled();
  const pending = await start(user.username);
  const code = await freshCode(user);
  assert.notEqual((await enterCode(pending, code)).host, '');
  assert.equal((await enterCode(pending, code)).host, '', 'the sign-in has ended');
  const { host, domain } = await addSignedIn();
  const again = await enterCode(`${host}; ${domain}`, code);
  assert.match(again.text, SIGNED_IN);
  assert.deepEqual(again.cookies, []);
  // With a sign-in that has ended by its attempts, it is said.
  const ended = await enterCode(`${host}; ${domain}; ${pending}`, code);
  assert.match(ended.text, /This sign-in has ended/);
});

test('password managers find the page with the form for a new password', async () => {
  // W3C, A Well-Known URL for Changing Passwords: they ask for the second first.
  const { status, headers } = await visit('/.well-known/change-password');
  assert.deepEqual([status, headers.get('location')], [303, '/account']);
  const unknown = '/.well-known/resource-that-should-not-exist-whose-status-code-should-not-be-200';
  assert.equal((await visit(unknown)).status, 404);
});

test('no address of a form or of a script is a dead end in the address bar', async () => {
  const pages = rows.filter(isPage);
  const paths = new Set(pages.map(({ pattern }) => pattern.replace('{user_id}', randomUUID())));
  assert.ok(paths.size > 40);
  for (const path of paths) {
    for (const cookie of ['', `${chief.host}; ${chief.domain}`]) {
      let address = path;
      let page = await visit(address, { headers: PERSON, cookie });
      for (let hops = 0; page.status === 303 && hops < 3; hops += 1) {
        address = page.headers.get('location') ?? '';
        page = await visit(address, { headers: PERSON, cookie });
      }
      const isMissing = page.status === 404 && /users\/[0-9a-f-]{36}/.test(address);
      assert.ok(page.status === 200 || isMissing, `${path} leads to ${address}: ${page.status}`);
    }
  }
});

test('the address of a form leads to its own page', async () => {
  const user = `/account/users/${randomUUID()}`;
  for (const [path, page] of Object.entries({
    '/login/code': '/login',
    '/account/sessions/end': '/account',
    '/account/totp/start': '/account/factors',
    '/account/passkeys': '/account/factors',
    '/account/keys/revoke': '/account/keys',
    '/account/program-keys/revoke': '/account/program-keys',
    [`${user}/edit`]: user,
  })) {
    const { status, headers } = await visit(path, { headers: PERSON, cookie: chief.host });
    assert.deepEqual([status, headers.get('location')], [303, page], path);
  }
});

test('what others append to a link of a page is ignored', async () => {
  const more = 'fbclid=IwAR0&utm_source=news&x[]=2';
  for (const path of ['/login', '/link', '/logout', '/account', '/account/users', '/account/keys'])
    for (const cookie of ['', chief.host]) {
      const { status } = await visit(`${path}?${more}`, { headers: PERSON, cookie });
      assert.ok([200, 303].includes(status), `${path}: ${status}`);
    }
  const page = await visit(`/login?return_to=${encodeURIComponent(ADDRESS)}&${more}`);
  assert.ok(page.text.includes(`name="return_to" value="${ADDRESS}"`));
});

test('a browser without cookies is told so at each step', async () => {
  const { username } = await add();
  const without = await enterPassword(username);
  assert.match(without.text, SIGNED_IN);
  assert.match(without.text, COOKIES);
  assert.match(without.text, /http-equiv="refresh" content="30;/, 'the person can read it');
  const path = `/login?again=on&return_to=${encodeURIComponent(`${ORIGIN}/account`)}`;
  assert.match((await visit(path, { headers: { host: 'login.example.org' } })).text, COOKIES);
  assert.match((await post('/login/code', '', { code: '123456' })).text, COOKIES);
  const kept = (await signIn(username, { cookie: await newBrowser() })).page;
  assert.doesNotMatch(kept.text, COOKIES);
  assert.match(kept.text, /<noscript><meta http-equiv="refresh"/);
});

test('GET /logout says to somebody who is signed out that this is so', async () => {
  const page = await visit('/logout', { headers: PERSON });
  assert.match(page.text, /<h1>You are signed out<[^]*<a href="\/login"/);
  assert.match((await show('/logout', chief.host)).text, /<h1>Sign out</);
});

for (const [what, password] of Object.entries({
  'CJK characters': '漢字仮名かな混文'.repeat(128),
  emoji: '🐴🔋📎✅'.repeat(256),
  'letters with marks of their own': 'e\u0301o\u0308a\u030a'.repeat(341),
})) {
  test(`a password of 1,024 ${what} works on every form`, async () => {
    const { username, id } = await add({ password });
    assertSuccess(await login(username, password));
    const page = await enterPassword(username, password);
    assert.match(page.text, SIGNED_IN);
    const next = `x${password.slice(2)}`;
    const fields = { current_password: password, new_password: next, repeated: next };
    assert.equal((await post('/account/password', page.host, fields)).status, 303);
    const set = await post(`/account/users/${id}/password`, chief.host, { password });
    assert.equal(set.status, 200, set.text);
    const first = await enterPassword(username, password);
    assert.match((await choosePassword(first.pending, `y${password.slice(2)}`)).text, SIGNED_IN);
  });
}

test('a circle between a program and the sign-in page ends, without JavaScript, too', async () => {
  let counted = '';
  const open = async (address: string) => {
    const path = `/login?return_to=${encodeURIComponent(address)}`;
    const page = await show(path, `${chief.host}; ${chief.domain}; ${counted}`);
    counted = cookieFrom(page, '__Host-gatehouse-continued');
    assert.match(page.cookies[0] ?? '', /; Max-Age=30$/, 'the browser forgets the count');
    assert.ok(page.text.includes(`<a href="${address}"`), 'the person can continue in any case');
    const isSentOn = [' data-continue>', '<noscript><meta http-equiv="refresh" content="0; url='];
    return isSentOn.map((part) => page.text.includes(part));
  };
  for (let round = 1; round <= 5; round += 1)
    assert.deepEqual(await open(`${ADDRESS}?round=${round}`), [true, true]);
  for (let round = 6; round <= 7; round += 1) assert.deepEqual(await open(ADDRESS), [false, false]);
  for (let tab = 1; tab <= 7; tab += 1)
    assert.deepEqual(await open(`${ADDRESS}${tab}`), [true, true], 'another page each time');
  for (const wrong of ['x', '.', 'x.x.x', '.NaN']) {
    counted = `__Host-gatehouse-continued=${wrong}`;
    assert.deepEqual(await open(ADDRESS), [true, true], wrong);
  }
});

test('the account page marks what happened between two sign-ins, but for own mistakes', async () => {
  const { username, host } = await addSignedIn();
  const fields = { username, password: 'wrong' };
  const fromElsewhere = { fields, headers: { 'x-forwarded-for': '192.0.2.9' } };
  await visit('/login', fromElsewhere);
  await visit('/login', { fields });
  await post('/account/name', host, { first_name: 'Ada', last_name: 'Byron' });
  const again = await signIn(username);
  await visit('/login', fromElsewhere);
  const { text } = await show('/account', again.host);
  const events = text.matchAll(/<tr><td>(.*?)<span class="hint">[^]*?<td class="mono">(.*?)</g);
  const said = [...events].map(([, what = '', ip = '']) => `${what.trim()}, ${ip}`);
  assert.deepEqual(said, [
    'Sign-in failed, 192.0.2.9',
    'Signed in, 127.0.0.1',
    '<strong>New:</strong> User changed, 127.0.0.1',
    'Sign-in failed, 127.0.0.1',
    '<strong>New:</strong> Sign-in failed, 192.0.2.9',
    'Signed in, 127.0.0.1',
    'User created, 127.0.0.1',
  ]);
  for (const [shown, isMore] of [
    [6, true],
    [7, false],
  ] as const) {
    const page = await show(`/account?events=${shown}`, again.host);
    assert.equal(page.text.includes('/account?events=100#events">Show more'), isMore);
  }
});

test('without IDENTITY_SECRET, the page offers no app, and its forms say what is missing', async () => {
  const { host } = await bare.addSignedIn();
  const page = await bare.show('/account/factors', host);
  assert.match(page.text, /Not available: the operator has not set IDENTITY_SECRET/);
  assert.doesNotMatch(page.text, /\/account\/totp/);
  for (const path of ['/account/totp/start', '/account/totp']) {
    const refused = await bare.post(path, host, { code: '000000', setup: 'A'.repeat(43) });
    assert.equal(refused.status, 409, path);
    assert.match(refused.text, /the operator has not set IDENTITY_SECRET/);
  }
  assert.equal((await factorsOf(bare).register(host)).status, 200, 'a passkey needs no secret');
});

test('no route of the pages fails for want of a setting', async () => {
  const { id } = await bare.add();
  // Of all forms, so that each has what it needs.
  const fields = {
    ...{ username: 'admin', password: ADMIN_PASSWORD, email: 'one@example.org' },
    ...{ current_password: ADMIN_PASSWORD, new_password: ADMIN_PASSWORD, code: '000000' },
    ...{ setup: 'A'.repeat(43), credential: '{}', token: 'A'.repeat(43), name: 'one' },
    ...{ days: '30', first_name: '', last_name: '', role: 'user', first: 'link' },
  };
  let cookie = '';
  for (const { method, pattern } of rows.filter(isPage)) {
    cookie ||= (await bare.enterPassword('admin', ADMIN_PASSWORD)).host;
    assert.notEqual(cookie, '');
    const path = pattern.replace('{user_id}', id);
    const page = await bare.visit(path, { cookie, ...(method === 'POST' && { fields }) });
    assert.ok(page.status < 500, `${method} ${path}: ${page.status} ${page.text}`);
    // It may have ended the session.
    if (page.cookies.length > 0) cookie = '';
  }
});

// --- The page at `/`.

const openRoot = async (cookie: string) =>
  (await visit('/', { headers: { accept: 'text/html' }, cookie })).text;

test('the page at "/" says who is signed in, and to administrators alone which version runs', async () => {
  const user = await addSignedIn();
  for (const cookie of ['', user.domain, `__Host-gatehouse=${'x'.repeat(43)}`]) {
    const text = await openRoot(cookie);
    assert.match(text, /href="\/login">Sign in</);
    assert.doesNotMatch(text, /signed in as|0\.\d\.\d/);
  }
  for (const [{ username, host }, isTold] of [
    [user, false],
    [chief, true],
  ] as const) {
    const text = await openRoot(host);
    assert.ok(text.includes(`You are signed in as ${username}.`), text);
    assert.match(text, /href="\/account">Your account</);
    assert.equal(text.includes(`Gatehouse ${readVersion()} runs here.`), isTold);
    const account = await show('/account', host);
    assert.equal(account.text.includes(`Gatehouse ${readVersion()} · `), isTold);
  }
  await sql`update identity.sessions set revoked = true where user_id = ${user.id}`;
  assert.match(await openRoot(user.host), /href="\/login">Sign in</);
  assert.equal((await show('/', chief.host)).status, 404, 'a program gets no page');
});
