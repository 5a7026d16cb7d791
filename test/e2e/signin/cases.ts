/** The tests that every proxy must pass with its documented configuration for sign-in pages. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask } from '../../support/gatehouse.ts';
import { NAMES } from '../nginx/access.ts';
import { spellingsOf } from '../nginx/path-cases.ts';
import { type ReceivedRequest, request } from '../nginx/setup.ts';
import { askProxy } from '../nginx/tls.ts';
import {
  APP,
  EVIL,
  LOGIN,
  NAVIGATION,
  PASSWORD,
  sessionCookie,
  type SigninSetup,
} from './setup.ts';
import { addSubresourceTests } from './subresources.ts';

const headerOf = ({ headers }: ReceivedRequest, name: string): string | undefined =>
  headers.find(([key]) => key.toLowerCase() === name)?.[1];

const ADDRESS = `${APP}/a%20b/c?d=e&f=%2F%26&g=%22`;

export function testSignin(setup: SigninSetup): void {
  addReturnTests(setup);
  addCookieTests(setup);
  addServiceWorkerTest(setup);
  addAddressTest(setup);
  addSubresourceTests(setup);
  addForgeryTests(setup);
  addOriginTest(setup);
  addSessionTests(setup);
  addAdministratorTests(setup);
  addGroupTest(setup);
  addSpellingTest(setup);
  addRuleTests(setup);
}

function addReturnTests(setup: SigninSetup): void {
  const { browser } = setup;

  test('the first visit leads to the sign-in page and back to the exact address', async () => {
    const { id, username } = await setup.addMember();
    await browser.open(ADDRESS);
    assert.equal(new URL(await browser.address()).origin, LOGIN);
    assert.equal(await browser.title(), 'Sign in');
    assert.equal(await browser.run('return document.querySelectorAll(".problem").length'), 0);
    await setup.enterPassword(username);
    const received = await setup.untilProgram(ADDRESS);
    assert.equal(headerOf(received, 'x-auth-user-id'), id);
    assert.equal(headerOf(received, 'x-auth-methods'), 'password');
    assert.match(headerOf(received, 'x-auth-time') ?? '', /^\d{10}$/);
    await browser.open(`${APP}/next`);
    assert.equal(
      headerOf(await setup.untilProgram(`${APP}/next`), 'cookie'),
      'theme=dark',
      'only its own cookie',
    );
  });

  test('password and code lead back to the address, also without JavaScript', async () => {
    const member = await setup.addMember();
    const secret = await setup.addApp(member);
    for (const allowed of [true, false]) {
      await browser.deleteCookies();
      await browser.allowScripts(allowed);
      try {
        await browser.open(ADDRESS);
        await setup.enterPassword(member.username);
        await setup.untilTitle('Second factor');
        await browser.fill('code', '000000');
        await browser.clickOn('form[action="/login/code"] button');
        await setup.untilTitle('Second factor: try again');
        await browser.fill('code', await setup.codeOf(secret));
        await browser.clickOn('form[action="/login/code"] button');
        const received = await setup.untilProgram(ADDRESS);
        assert.equal(headerOf(received, 'x-auth-methods'), 'password, totp');
      } finally {
        await browser.allowScripts(true);
      }
    }
  });
}

function addCookieTests(setup: SigninSetup): void {
  test("the program receives its own cookies and never the session's", async () => {
    const cases = [
      ['__Secure-gatehouse=x', ''],
      ['__Secure-gatehouse=x; a=1', 'a=1'],
      ['a=1; __Secure-gatehouse=x', 'a=1'],
      ['a=1; __Secure-gatehouse=x; b=2', 'a=1; b=2'],
      ['a=1; b=2', 'a=1; b=2'],
      ['a=1;__Secure-gatehouse=x;b=2', 'a=1;b=2'],
    ] as const;
    for (const [sent, expected] of cases) {
      await askProxy(setup, { path: '/status', headers: [['Cookie', sent]] });
      assert.equal(headerOf(lastRequest(setup), 'cookie') ?? '', expected, sent);
    }
    for (const twice of [
      '__Secure-gatehouse=x; a=1; __Secure-gatehouse=y',
      'a=1; __Secure-gatehouse=x; __Secure-gatehouse=y',
    ]) {
      await askProxy(setup, { path: '/status', headers: [['Cookie', twice]] });
      assert.doesNotMatch(headerOf(lastRequest(setup), 'cookie') ?? '', /gatehouse/);
    }
  });
}

function lastRequest({ upstream }: SigninSetup): ReceivedRequest {
  const received = upstream.requests.at(-1);
  assert.ok(received);
  return received;
}

function addServiceWorkerTest(setup: SigninSetup): void {
  const { browser, sql } = setup;

  test('a page behind a service worker leads to the sign-in page and back', async () => {
    const { id, username } = await setup.addMember();
    await setup.visitAs(username, `${APP}/a`);
    try {
      await browser.runAsync('await navigator.serviceWorker.register("/worker.js")');
      await browser.until('navigator.serviceWorker.controller !== null');
      await browser.open(`${APP}/b`);
      const through = await setup.untilProgram(`${APP}/b`);
      assert.equal(headerOf(through, 'sec-fetch-dest'), 'empty', 'the worker asks');
      await sql`update identity.sessions set revoked = true where user_id = ${id}`;
      await browser.open(`${APP}/c?d=e`);
      assert.equal(await browser.title(), 'Sign in');
      await setup.enterPassword(username);
      await setup.untilProgram(`${APP}/c?d=e`);
    } finally {
      await browser.runAsync(
        'for (const one of await navigator.serviceWorker.getRegistrations()) await one.unregister()',
      );
    }
  });
}

function addAddressTest(setup: SigninSetup): void {
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

function addForgeryTests(setup: SigninSetup): void {
  const { upstream } = setup;

  test('forwarding headers of a client or of an untrusted sender have no effect', async () => {
    const forged = [
      ['X-Forwarded-Host', 'wiki.example.org'],
      ['X-Forwarded-Proto', 'http'],
      ['X-Forwarded-Uri', '/forged'],
      ['X-Forwarded-Method', 'GET'],
      ...NAMES.map((name) => [name, 'forged'] as const),
    ] as const;
    const { status, headers } = await askProxy(setup, {
      path: '/real?x=1',
      headers: [...NAVIGATION, ...forged],
    });
    assert.ok([302, 303].includes(status), String(status));
    const target = new URL(headers.get('location') ?? '');
    assert.deepEqual([target.origin, target.pathname], [LOGIN, '/login']);
    assert.equal(target.searchParams.get('return_to'), `${APP}/real?x=1`);
    assert.equal(
      (await askProxy(setup, { method: 'POST', headers: [...NAVIGATION, ...forged] })).status,
      401,
    );
    await askProxy(setup, { path: '/status', headers: forged });
    const names = upstream.requests
      .at(-1)
      ?.headers.filter(([name, value]) => /^x-auth/i.test(name) && value !== '');
    assert.deepEqual(names, [], 'not on a public path either');

    const path = '/api/auth/verify?redirect=302';
    const direct = await request(setup.gatehouse.port, {
      path,
      from: '127.0.0.2',
      headers: [...NAVIGATION, ...forged],
    });
    assert.equal(direct.headers.get('location'), `${LOGIN}/login`);
  });
}

function addOriginTest(setup: SigninSetup): void {
  test('a browser that sends Origin and no Sec-Fetch-Site signs in on the own page only', async () => {
    const { username } = await setup.addMember();
    const body = new URLSearchParams({ username, password: PASSWORD, return_to: '' }).toString();
    const signInFrom = async (origin: string) => {
      const headers = [
        ['Origin', origin],
        ['Content-Type', 'application/x-www-form-urlencoded'],
      ] as const;
      const sent = { method: 'POST', host: 'login.example.org', path: '/login', headers, body };
      return (await askProxy(setup, sent)).status;
    };
    assert.equal(await signInFrom(LOGIN), 200);
    assert.equal(await signInFrom(EVIL), 403);
    assert.equal(await signInFrom(APP), 403);
  });
}

function addSessionTests(setup: SigninSetup): void {
  const { browser } = setup;

  test('signing out ends the session for the program at once', async () => {
    const { username } = await setup.addMember();
    await setup.visitAs(username, `${APP}/a`);
    await browser.open(`${LOGIN}/account`);
    const withCookie = { path: '/a', headers: [await sessionCookie(browser, APP)] } as const;
    assert.equal((await askProxy(setup, withCookie)).status, 200);
    await browser.clickOn('form[action="/logout"] button');
    await setup.untilTitle('Sign in');
    assert.equal((await askProxy(setup, withCookie)).status, 401);
    const left = [...(await browser.cookies(APP)), ...(await browser.cookies(LOGIN))];
    const names = left.map(({ name }) => name);
    assert.deepEqual(
      names.filter((name) => ['__Host-gatehouse', '__Secure-gatehouse'].includes(name)),
      [],
    );
    await browser.open(`${APP}/a`);
    assert.equal(await browser.title(), 'Sign in');
  });
}

function addAdministratorTests(setup: SigninSetup): void {
  const { browser, upstream } = setup;

  test('paths for super administrators answer 403 to others, without a redirect loop', async () => {
    const member = await setup.addMember();
    const administrator = await setup.addMember({ super_admin: true });
    for (const [{ username }, isAdmitted] of [
      [member, false],
      [administrator, true],
    ] as const) {
      await browser.deleteCookies();
      await browser.open(`${APP}/admin/users?x=1`);
      await setup.enterPassword(username);
      await browser.until(
        `location.href === "${APP}/admin/users?x=1" && document.readyState === "complete"`,
      );
      assert.equal((await browser.title()) === 'Program', isAdmitted);
      assert.equal(
        upstream.requests.some(({ path }) => path === '/admin/users?x=1'),
        isAdmitted,
      );
    }
  });
}

function addGroupTest(setup: SigninSetup): void {
  const { browser, url, admin } = setup;

  test('a path for a group opens at the request after the change of groups, and closes so', async () => {
    const { id, username } = await setup.addMember();
    await setup.visitAs(username, `${APP}/a`);
    const headers = [await sessionCookie(browser, APP)] as const;
    const setGroups = async (groups: readonly string[]) => {
      const body = { groups };
      const changed = await ask('PATCH', `${url}/api/user/${id}`, { bearer: admin, body });
      assert.equal(changed.status, 200, changed.text);
    };
    const isClosed = async () =>
      assert.equal((await askProxy(setup, { path: '/team', headers })).status, 403);
    await isClosed();
    await setGroups(['staff', 'editors']);
    await browser.open(`${APP}/team?x=1`);
    const received = await setup.untilProgram(`${APP}/team?x=1`);
    assert.equal(headerOf(received, 'x-auth-groups'), 'editors,staff');
    await setGroups(['editors']);
    await isClosed();
  });
}

function addSpellingTest(setup: SigninSetup): void {
  const { browser, upstream } = setup;

  test('no spelling of a path avoids its rule, and every reply asks for HTTPS only', async () => {
    const { username } = await setup.addMember();
    await browser.deleteCookies();
    await setup.visitAs(username, `${APP}/a`);
    const headers = [await sessionCookie(browser, APP)] as const;
    const before = upstream.requests.length;
    for (const path of ['/admin', '/payroll', '/team'].flatMap(spellingsOf)) {
      const reply = await askProxy(setup, { path, headers });
      assert.ok([400, 401, 403].includes(reply.status), `${path}: ${reply.status}`);
      assert.equal(reply.headers.get('strict-transport-security'), 'max-age=31536000', path);
    }
    assert.equal(upstream.requests.length, before, 'the program received nothing');
    for (const host of ['app.example.org', 'login.example.org']) {
      const reply = await askProxy(setup, { host, path: '/status' });
      assert.equal(reply.headers.get('strict-transport-security'), 'max-age=31536000', host);
    }
  });
}

function addRuleTests(setup: SigninSetup): void {
  const { browser, sql } = setup;

  test('a rule for a second factor leads to setting one up, asks for it, and leads back', async () => {
    const member = await setup.addMember();
    await setup.visitAs(member.username, `${APP}/a`);
    await sql`update identity.sessions set authenticated_at = now() - interval '11 minutes'
    where methods is not null`;
    await browser.open(`${APP}/payroll?x=1`);
    // Setting up a factor needs a recent sign-in itself.
    await setup.enterPassword(member.username);
    await setup.untilTitle('Second factors');
    const secret = await setup.setUpApp();
    await browser.clickOn('main a');
    const first = await setup.untilProgram(`${APP}/payroll?x=1`);
    assert.equal(
      headerOf(first, 'x-auth-methods'),
      'password, totp',
      'the code that confirmed the app',
    );
    await browser.deleteCookies();
    await browser.open(`${APP}/payroll?x=2`);
    await setup.enterPassword(member.username);
    await setup.passCode(secret);
    const received = await setup.untilProgram(`${APP}/payroll?x=2`);
    assert.equal(headerOf(received, 'x-auth-methods'), 'password, totp');
  });

  test('a rule for the age of the sign-in asks for the password and the code again and leads back', async () => {
    const member = await setup.addMember();
    const secret = await setup.addApp(member);
    await browser.deleteCookies();
    const signIn = async () => {
      await setup.enterPassword(member.username);
      await setup.passCode(secret);
      await setup.untilProgram(`${APP}/payroll?x=1`);
    };
    await browser.open(`${APP}/payroll?x=1`);
    await signIn();
    await sql`update identity.sessions set authenticated_at = now() - interval '20 minutes'
    where methods is not null`;
    await browser.open(`${APP}/b`);
    await setup.untilProgram(`${APP}/b`);
    assert.equal(await browser.runAsync('return (await fetch("/payroll?x=1")).status'), 401);
    await browser.open(`${APP}/payroll?x=1`);
    assert.equal(await browser.title(), 'Sign in');
    await signIn();
  });
}
