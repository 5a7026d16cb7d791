/**
 * Pages survive what browsers do, and no address that a person sees is a dead end. The page at `/`
 * says who is signed in.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { createRoutes } from '../../../../src/identity/routes.ts';
import { ADDRESS, factorsOf, PENDING } from '../../../support/factors.ts';
import { cookieFrom, ORIGIN, startPortal } from '../../../support/portal.ts';
import { SITE } from '../../../support/service-context.ts';
import { assertSuccess, PASSWORD } from '../../../support/users.ts';
import { readVersion } from '../../../../src/platform/runtime/version.ts';

const portal = await startPortal({ after });
const { sql, add, call, visit, signIn } = portal;
const { stepNow, forgetSteps, enrol, start, enter, newBrowser } = factorsOf(portal);

const PERSON = { 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document', accept: 'text/html' };
const SIGNED_IN = /<h1>You are signed in</;
const COOKIES = /[Aa]llow cookies/;

await add({ username: 'boss', super_admin: true });
await add({ username: 'ada' });
const boss = await signIn('boss');
const ada = await signIn('ada');

test('another tab, a reload and a prerender show the step that waits, and end nothing', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  for (const headers of [{}, PERSON, { ...PERSON, 'sec-purpose': 'prefetch;prerender' }]) {
    const pending = await start(username);
    const page = await visit(`/login?return_to=${ADDRESS}`, { cookie: pending, headers });
    assert.match(page.text, /autocomplete="one-time-code"/);
    assert.ok(page.text.includes(`name="return_to" value="${ADDRESS}"`));
    assert.deepEqual(page.cookies, []);
    await forgetSteps(id);
    assert.match((await enter(pending, totpCode(secret, await stepNow()))).text, SIGNED_IN);
  }
});

test('the step that waits leads to the form for another user, with the same address', async () => {
  const { username } = await add();
  await enrol(username);
  const pending = await start(username);
  const { text } = await visit('/login', { cookie: pending });
  assert.match(text, /<a href="\/login\?again=on&#38;return_to=">Sign in as another user</);
  const other = await visit('/login?again=on', { cookie: pending });
  assert.match(other.text, /name="username"/);
});

test('a step that has ended is not shown again', async () => {
  const page = await visit('/login', { cookie: `${PENDING}=${'x'.repeat(43)}` });
  assert.match(page.text, /name="username"/);
});

test('a form of the sign-in that is sent again continues with the session', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  const pending = await start(username);
  await forgetSteps(id);
  const code = totpCode(secret, await stepNow());
  const host = cookieFrom(await enter(pending, code), '__Host-gatehouse');
  const domain = cookieFrom(await enter(pending, code), '__Secure-gatehouse');
  assert.equal(domain, '', 'the sign-in has ended');
  const { page, host: own, domain: shared } = await signIn((await add()).username);
  assert.match(page.text, SIGNED_IN);
  const again = await enter(`${own}; ${shared}`, code);
  assert.match(again.text, SIGNED_IN);
  assert.deepEqual(again.cookies, []);
  // With a sign-in that has ended by its attempts, it is said.
  const ended = await enter(`${own}; ${shared}; ${pending}`, code);
  assert.match(ended.text, /This sign-in has ended/);
  assert.notEqual(host, '');
});

test('password managers find the page with the form for a new password', async () => {
  // W3C, A Well-Known URL for Changing Passwords: they ask for the second first.
  const { status, headers } = await visit('/.well-known/change-password');
  assert.deepEqual([status, headers.get('location')], [303, '/account']);
  const unknown = '/.well-known/resource-that-should-not-exist-whose-status-code-should-not-be-200';
  assert.equal((await visit(unknown)).status, 404);
});

test('no address of a form or of a script is a dead end in the address bar', async () => {
  const rows = await createRoutes(SITE);
  const paths = rows
    .filter(({ pattern }) => /^\/(login|link|logout|account)/.test(pattern))
    .map(({ pattern }) => pattern.replace('{user_id}', randomUUID()));
  const { host, domain } = await signIn((await add({ super_admin: true })).username);
  assert.ok(new Set(paths).size > 40);
  for (const path of new Set(paths)) {
    for (const cookie of ['', `${host}; ${domain}`]) {
      let address = path;
      let page = await visit(address, { headers: PERSON, cookie });
      for (let hops = 0; page.status === 303 && hops < 3; hops += 1) {
        address = page.headers.get('location') ?? '';
        page = await visit(address, { headers: PERSON, cookie });
      }
      const isMissing = page.status === 404 && /users\/[0-9a-f-]{36}/.test(address);
      assert.ok(page.status === 200 || isMissing, `${path} leads to ${address}: ${page.status}`);
      assert.match(
        page.headers.get('content-type') ?? '',
        /^(text\/(html|csv)|application\/json)/,
        path,
      );
    }
  }
});

test('the address of a form leads to its own page', async () => {
  const { host } = await signIn((await add({ super_admin: true })).username);
  const user = `/account/users/${randomUUID()}`;
  for (const [path, page] of [
    ['/login/code', '/login'],
    ['/login/password', '/login'],
    ['/login/passkey', '/login'],
    ['/account/name', '/account'],
    ['/account/sessions/end', '/account'],
    ['/account/totp/start', '/account/factors'],
    ['/account/passkeys', '/account/factors'],
    ['/account/keys/revoke', '/account/keys'],
    ['/account/program-keys/revoke', '/account/program-keys'],
    [`${user}/edit`, user],
  ] as const) {
    const { status, headers } = await visit(path, { headers: PERSON, cookie: host });
    assert.deepEqual([status, headers.get('location')], [303, page], path);
  }
});

test('what others append to a link of a page is ignored', async () => {
  const { host } = await signIn((await add({ super_admin: true })).username);
  const more = 'fbclid=IwAR0&utm_source=news&utm_medium=e-mail&gclid=1&x[]=2';
  for (const path of ['/login', '/link', '/logout', '/account', '/account/users', '/account/keys'])
    for (const cookie of ['', host]) {
      const { status } = await visit(`${path}?${more}`, { headers: PERSON, cookie });
      assert.ok([200, 303].includes(status), `${path}: ${status}`);
    }
  const page = await visit(`/login?return_to=${encodeURIComponent(ADDRESS)}&${more}`);
  assert.ok(page.text.includes(`name="return_to" value="${ADDRESS}"`));
});

test('the address of a program keeps what follows "#"', async () => {
  const address = 'https://app.example.org/dash?x=1#/view/42?y=%20';
  const { page } = await signIn((await add()).username, { fields: { return_to: address } });
  assert.ok(page.text.includes(`href="${address}"`));
});

test('a browser without cookies is told so at each step', async () => {
  const { username } = await add();
  const fields = { username, password: PASSWORD, return_to: '' };
  const without = await visit('/login', { fields });
  assert.match(without.text, SIGNED_IN);
  assert.match(without.text, COOKIES);
  assert.match(without.text, /http-equiv="refresh" content="30;/, 'the person can read it');
  const headers = { host: new URL(ORIGIN).host };
  const path = `/login?again=on&return_to=${encodeURIComponent(`${ORIGIN}/account`)}`;
  const again = await visit(path, { headers });
  assert.match(again.text, COOKIES);
  await enrol(username);
  await visit('/login', { fields });
  const step = await visit('/login/code', { fields: { code: '123456', return_to: '' } });
  assert.match(step.text, COOKIES);

  const browser = await newBrowser();
  const kept = await visit('/login', { fields: { ...fields, ...(await add()) }, cookie: browser });
  assert.match(kept.text, SIGNED_IN);
  assert.doesNotMatch(kept.text, COOKIES);
  assert.match(kept.text, /<noscript><meta http-equiv="refresh"/);
});

test('GET /logout says to somebody who is signed out that this is so', async () => {
  const page = await visit('/logout', { headers: PERSON });
  assert.equal(page.status, 200);
  assert.match(page.text, /<h1>You are signed out<[^]*<a href="\/login"/);
  const { host } = await signIn((await add()).username);
  assert.match((await visit('/logout', { cookie: host })).text, /<h1>Sign out</);
});

const LONG: Readonly<Record<string, string>> = {
  'CJK characters': '漢字仮名かな混文'.repeat(128),
  emoji: '🐴🔋📎✅'.repeat(256),
  'letters with marks of their own': 'e\u0301o\u0308a\u030a'.repeat(341),
};
for (const [what, password] of Object.entries(LONG)) {
  test(`a password of 1,024 ${what} works on every form`, async () => {
    const { username, id } = await add({ password });
    assertSuccess(await call(null, 'POST', '/api/auth/login', { username, password }));
    const fields = { username, password, return_to: '' };
    const page = await visit('/login', { fields });
    assert.match(page.text, SIGNED_IN);
    const changed = await visit('/account/password', {
      fields: {
        current_password: password,
        new_password: `x${password.slice(2)}`,
        repeated: `x${password.slice(2)}`,
      },
      cookie: cookieFrom(page, '__Host-gatehouse'),
    });
    assert.equal(changed.status, 303, changed.text);
    const { host } = await signIn((await add({ super_admin: true })).username);
    const set = await visit(`/account/users/${id}/password`, {
      fields: { password },
      cookie: host,
    });
    assert.equal(set.status, 200, set.text);
    const first = await visit('/login', { fields });
    const pending = cookieFrom(first, PENDING);
    const chosen = `y${password.slice(2)}`;
    const done = await visit('/login/password', {
      fields: { password: chosen, repeated: chosen, return_to: '' },
      cookie: pending,
    });
    assert.match(done.text, SIGNED_IN);
  });
}

test('a circle between a program and the sign-in page ends, without JavaScript, too', async () => {
  const { host, domain } = await signIn((await add()).username);
  let counted = '';
  const open = async (address: string) => {
    const path = `/login?return_to=${encodeURIComponent(address)}`;
    const page = await visit(path, { cookie: `${host}; ${domain}; ${counted}` });
    counted = cookieFrom(page, '__Host-gatehouse-continued');
    assert.match(page.cookies[0] ?? '', /; Max-Age=30$/, 'the browser forgets the count');
    assert.ok(page.text.includes(`<a href="${address}"`), 'the person can continue in any case');
    const isSentOn = [' data-continue>', '<noscript><meta http-equiv="refresh" content="0; url='];
    return isSentOn.map((part) => page.text.includes(part));
  };
  for (let round = 1; round <= 5; round += 1)
    assert.deepEqual(await open(`${ADDRESS}?round=${round}`), [true, true]);
  assert.deepEqual(await open(ADDRESS), [false, false]);
  assert.deepEqual(await open(ADDRESS), [false, false]);
  for (let tab = 1; tab <= 7; tab += 1)
    assert.deepEqual(await open(`${ADDRESS}${tab}`), [true, true], 'another page each time');
  for (const wrong of ['x', '.', 'x.x.x', '.NaN']) {
    counted = `__Host-gatehouse-continued=${wrong}`;
    assert.deepEqual(await open(ADDRESS), [true, true], wrong);
  }
});

const headers = { accept: 'text/html' };

const open = async (cookie: string) => (await visit('/', { headers, cookie })).text;

const VERSION = `Gatehouse ${readVersion()} runs here.`;

test('strangers are led to the sign-in, and are not told which version runs', async () => {
  for (const cookie of ['', ada.domain, `__Host-gatehouse=${'x'.repeat(43)}`]) {
    const text = await open(cookie);
    assert.match(text, /href="\/login">Sign in</);
    assert.doesNotMatch(text, /signed in as|0\.\d\.\d/);
  }
});

test('a user is named, and an administrator is told which version runs', async () => {
  const own = await open(ada.host);
  assert.match(own, /You are signed in as ada\./);
  assert.match(own, /href="\/account">Your account</);
  assert.ok(!own.includes(VERSION));
  assert.ok((await open(boss.host)).includes(`You are signed in as boss. ${VERSION}`));
  const footer = `Gatehouse ${readVersion()} · `;
  for (const [cookie, isTold] of [
    [boss.host, true],
    [ada.host, false],
  ] as const) {
    const { text } = await visit('/account', { headers, cookie });
    assert.equal(text.includes(footer), isTold);
  }
});

test('after the end of the session the page is that of a stranger', async () => {
  await sql`update identity.sessions set revoked = true`;
  assert.match(await open(boss.host), /href="\/login">Sign in</);
});

test('a program gets the error of an unknown path', async () => {
  assert.equal((await visit('/', { cookie: ada.host })).status, 404);
});
