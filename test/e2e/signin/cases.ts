/** The tests that every proxy must pass with its documented configuration for sign-in pages. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { spellingsOf } from '../nginx/cases.ts';
import { askProxy, NAMES, NAVIGATION } from '../nginx/setup.ts';
import { APP, LOGIN, sessionCookie, type SigninSetup } from './setup.ts';

const ADDRESS = `${APP}/a%20b/c?d=e&f=%2F%26&g=%22#/view/42?y=a%20b`;

export function testSignin(setup: SigninSetup): void {
  addReturnTests(setup);
  addAddressTests(setup);
  addHeaderTests(setup);
  addResourceTests(setup);
  addEndTests(setup);
  addPathTests(setup);
  addRuleTests(setup);
}

function addReturnTests(setup: SigninSetup): void {
  const { browser, untilProgram, enterPassword } = setup;

  test('the first visit leads to the sign-in page and back to the exact address', async () => {
    const { id, username } = await setup.addMember();
    await browser.open(ADDRESS);
    assert.equal(new URL(await browser.address()).origin, LOGIN);
    assert.equal(await browser.run('return document.querySelectorAll(".problem").length'), 0);
    await enterPassword(username);
    const received = await untilProgram(ADDRESS);
    assert.equal(received.get('x-auth-user-id'), id);
    assert.equal(received.get('x-auth-methods'), 'password');
    assert.match(received.get('x-auth-time') ?? '', /^\d{10}$/);
    await browser.open(`${APP}/next`);
    const next = await untilProgram(`${APP}/next`);
    assert.equal(next.get('cookie'), 'theme=dark', 'only its own cookie');
    // What follows "#" is kept where the browser is signed in already.
    const query = new URLSearchParams({ return_to: `${APP}/dash?x=1` });
    await browser.open(`${LOGIN}/login?${query}#/view/42`);
    await untilProgram(`${APP}/dash?x=1#/view/42`);
  });

  test('password and code lead back to the address, also without JavaScript', async () => {
    const member = await setup.addMember();
    const secret = await setup.addApp(member);
    for (const address of [ADDRESS, `${APP}/a?b=c`]) {
      await browser.allowScripts(address === ADDRESS);
      await browser.open(address);
      await enterPassword(member.username);
      await setup.untilTitle('Second factor');
      await browser.fill('code', await setup.codeOf(secret));
      await browser.clickOn('form[action="/login/code"] button');
      assert.equal((await untilProgram(address)).get('x-auth-methods'), 'password, totp');
      await browser.deleteCookies();
    }
  });
}

function addAddressTests(setup: SigninSetup): void {
  const { browser, untilProgram } = setup;

  test('a page behind a service worker leads to the sign-in page and back', async () => {
    const { id, username } = await setup.addMember();
    await setup.visitAs(username, `${APP}/a`);
    try {
      await browser.runAsync('await navigator.serviceWorker.register("/worker.js")');
      await browser.until('navigator.serviceWorker.controller !== null');
      await browser.open(`${APP}/b`);
      const through = await untilProgram(`${APP}/b`);
      assert.equal(through.get('sec-fetch-dest'), 'empty', 'the worker asks');
      await setup.sql`update identity.sessions set revoked = true where user_id = ${id}`;
      await setup.visitAs(username, `${APP}/c?d=e`);
    } finally {
      await browser.runAsync(
        'for (const one of await navigator.serviceWorker.getRegistrations()) await one.unregister()',
      );
    }
  });

  test('the sign-in keeps the port and the spelling of the address', async () => {
    for (const [host, path, expected] of [
      ['app.example.org:8443', '/a?b=c', `${APP}:8443/a?b=c`],
      ['app.example.org:443', '/a', `${APP}/a`],
      ['APP.example.org', '/x?path=C:\\Temp', `${APP}/x?path=C:%5CTemp`],
    ] as const) {
      const { headers } = await askProxy(setup, { host, path, headers: NAVIGATION });
      const target = new URL(headers.get('location') ?? '');
      assert.equal(target.searchParams.get('return_to'), expected);
    }
  });
}

function addHeaderTests(setup: SigninSetup): void {
  const { upstream } = setup;
  /** What the program received last. @returns the values of headers with this name */
  const received = (name: RegExp) =>
    upstream.requests
      .at(-1)
      ?.headers.flatMap(([key, value]) => (name.test(key) && value !== '' ? [value] : []));

  test("the program receives its own cookies and never the session's", async () => {
    const own = '__Secure-gatehouse=x';
    for (const [sent, expected] of [
      [own, ''],
      [`${own}; a=1`, 'a=1'],
      [`a=1; ${own}; b=2`, 'a=1; b=2'],
      [`a=1;${own};b=2`, 'a=1;b=2'],
    ] as const) {
      await askProxy(setup, { path: '/status', headers: [['Cookie', sent]] });
      assert.equal(received(/^cookie$/i)?.join(), expected, sent);
    }
    for (const twice of [`${own}; a=1; ${own}`, `a=1; ${own}; ${own}`]) {
      await askProxy(setup, { path: '/status', headers: [['Cookie', twice]] });
      assert.doesNotMatch(String(received(/^cookie$/i)), /gatehouse/);
    }
  });

  test('forwarding and identity headers of a client have no effect', async () => {
    const forged = [
      ['X-Forwarded-Host', 'wiki.example.org'],
      ['X-Forwarded-Proto', 'http'],
      ['X-Forwarded-Uri', '/forged'],
      ['X-Forwarded-Method', 'GET'],
      ...NAMES.map((name) => [name, 'forged'] as const),
    ] as const;
    const headers = [...NAVIGATION, ...forged];
    const led = await askProxy(setup, { path: '/real?x=1', headers });
    assert.ok([302, 303].includes(led.status), String(led.status));
    const target = new URL(led.headers.get('location') ?? '');
    assert.equal(target.origin + target.pathname, `${LOGIN}/login`);
    assert.equal(target.searchParams.get('return_to'), `${APP}/real?x=1`);
    assert.equal((await askProxy(setup, { method: 'POST', headers })).status, 401);
    await askProxy(setup, { path: '/status', headers: forged });
    assert.deepEqual(received(/^x-auth/i), [], 'not on a public path either');
  });
}

/** What each way to ask for a resource leads to, in the order of time. */
const TRY_ALL = `
  const asked = async (init) => {
    const { status, redirected, url } = await fetch('/data?x=1', init);
    return [status, redirected, new URL(url).host];
  };
  const settled = (one, good, bad) => new Promise((resolve) => {
    one.addEventListener(good, () => resolve(true));
    one.addEventListener(bad, () => resolve(false));
  });
  const frame = Object.assign(document.createElement('iframe'), { src: '/frame' });
  await new Promise((resolve) => {
    frame.addEventListener('load', resolve);
    document.body.append(frame);
  });
  return [
    await asked({}),
    await asked({ method: 'POST', body: 'x=1' }),
    await asked({ headers: { Accept: 'text/html' } }),
    (await fetch('/data', { redirect: 'manual' })).type,
    await settled(new WebSocket('wss://app.example.org/socket'), 'open', 'error'),
    await settled(new EventSource('/events'), 'message', 'error'),
    await settled(Object.assign(new Image(), { src: '/image?' + Math.random() }), 'load', 'error'),
    frame.contentDocument?.title === 'Program',
  ];`;

function addResourceTests(setup: SigninSetup): void {
  const { browser, upstream } = setup;
  const resultOf = (status: number, isLoaded: boolean) => {
    const asked = [status, false, 'app.example.org'];
    return [asked, asked, asked, 'basic', isLoaded, isLoaded, isLoaded, isLoaded];
  };

  test('what a page asks for by itself, and a form, get 401 and are not redirected', async () => {
    const { username } = await setup.addMember();
    await browser.open(`${APP}/status`);
    const before = upstream.requests.length;
    assert.deepEqual(await browser.runAsync(TRY_ALL), resultOf(401, false));
    await browser.run(`
      const form = document.createElement('form');
      Object.assign(form, { method: 'post', action: '/order?x=1' });
      document.body.append(form);
      form.submit();`);
    await setup.untilAt(`${APP}/order?x=1`);
    assert.equal(upstream.requests.length, before, 'the program received nothing');
    await setup.visitAs(username, `${APP}/a`);
    assert.deepEqual(await browser.runAsync(TRY_ALL), resultOf(200, true));
  });
}

function addEndTests(setup: SigninSetup): void {
  const { browser } = setup;

  test('signing out ends the session for the program at once, and Back shows no account', async () => {
    const { username } = await setup.addMember();
    await setup.visitAs(username, `${APP}/a`);
    await browser.open(`${LOGIN}/account`);
    const withCookie = { path: '/a', headers: [await sessionCookie(browser, APP)] };
    assert.equal((await askProxy(setup, withCookie)).status, 200);
    await browser.clickOn('form[action="/logout"] button');
    await setup.untilTitle('Sign in');
    assert.equal((await askProxy(setup, withCookie)).status, 401);
    const left = [...(await browser.cookies(APP)), ...(await browser.cookies(LOGIN))];
    assert.ok(!left.some(({ name }) => /^__(Host|Secure)-gatehouse$/.test(name)));
    await browser.back();
    await browser.untilVisible('password');
    assert.doesNotMatch(await browser.run('return document.body.innerText'), new RegExp(username));
    await browser.open(`${APP}/a`);
    assert.equal(await browser.title(), 'Sign in');
  });
}

function addPathTests(setup: SigninSetup): void {
  const { browser, upstream } = setup;

  test('a path for super administrators or a group opens to them, and answers 403 to others, without a loop', async () => {
    for (const [path, right] of [
      ['/admin/users?x=1', { super_admin: true }],
      ['/team?x=1', { groups: ['staff'] }],
    ] as const) {
      for (const change of [{}, right]) {
        await browser.deleteCookies();
        const { username } = await setup.addMember(change);
        await browser.open(APP + path);
        await setup.enterPassword(username);
        await setup.untilAt(APP + path);
        const isAdmitted = change === right;
        assert.equal((await browser.title()) === 'Program', isAdmitted);
        const isReached = upstream.requests.some((one) => one.path === path);
        assert.equal(isReached, isAdmitted);
      }
    }
  });

  test('no spelling of a path avoids its rule, and every reply asks for HTTPS only', async () => {
    const { username } = await setup.addMember();
    await setup.visitAs(username, `${APP}/a`);
    const headers = [await sessionCookie(browser, APP)];
    const before = upstream.requests.length;
    const ask = async (path: string, host = 'app.example.org') => {
      const reply = await askProxy(setup, { host, path, headers });
      assert.equal(reply.headers.get('strict-transport-security'), 'max-age=31536000', path);
      return reply.status;
    };
    for (const path of ['/admin', '/payroll', '/team'].flatMap(spellingsOf))
      assert.ok([400, 401, 403].includes(await ask(path)), path);
    assert.equal(upstream.requests.length, before, 'the program received nothing');
    for (const host of ['app.example.org', 'login.example.org']) await ask('/status', host);
  });
}

function addRuleTests(setup: SigninSetup): void {
  const { browser, sql, untilProgram } = setup;

  test('a rule for a second factor leads to setting one up, and back; one for the age asks again', async () => {
    const { username } = await setup.addMember();
    await setup.visitAs(username, `${APP}/a`);
    await browser.open(`${APP}/payroll?x=1`);
    await setup.untilTitle('Second factors');
    await setup.setUpApp();
    await browser.clickOn('main a');
    const first = await untilProgram(`${APP}/payroll?x=1`);
    assert.equal(first.get('x-auth-methods'), 'password, totp', 'the code that confirmed the app');
    await sql`update identity.sessions
      set authenticated_at = authenticated_at - interval '20 minutes' where methods is not null`;
    await browser.open(`${APP}/b`);
    await untilProgram(`${APP}/b`);
    assert.equal(await browser.runAsync('return (await fetch("/payroll?x=1")).status'), 401);
    await browser.open(`${APP}/payroll?x=2`);
    await setup.untilTitle('Sign in');
  });
}
