/**
 * The sign-in pages in a real Chromium: keyboard, screen reader, contrast, small screens, and
 * pictures of each.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  assertFocusVisible,
  checkAppearance,
  enlargeText,
  openState,
  overflowing,
  type PageState,
  setViewport,
} from '../browser/accessibility.ts';
import { focused } from '../browser/setup.ts';
import { KEYS } from '../browser/webdriver.ts';
import { findProgram } from '../programs.ts';
import { APP, EVIL, LOGIN, type Member, startSignin } from './setup.ts';

const setup = await startSignin('nginx');
const { browser } = setup;
const { Tab, Enter } = KEYS;

const plain = await setup.addMember({ first_name: 'Ada', last_name: 'Lovelace' });
const administrator = await setup.addMember({ super_admin: true });
const guarded = await setup.addMember();
const secret = await setup.addApp(guarded);
// More than one page of them.
for (let i = 0; i < 25; i += 1) await setup.addMember();
await setup.addUser('a-very-long-user-name-without-any-space-in-it-0123456789');

async function open(path: string): Promise<void> {
  await browser.open('about:blank');
  await browser.open(LOGIN + path);
}
/** Signs in anew and opens a page. */
async function openAs({ username }: Member, path: string): Promise<void> {
  await browser.deleteCookies();
  await open('/login');
  await setup.enterPassword(username);
  if (username === guarded.username) {
    await browser.untilVisible('code');
    await browser.fill('code', await setup.codeOf(secret));
    await browser.clickOn('form[action="/login/code"] button');
  }
  await browser.until('location.pathname === "/account"');
  if (path !== '/account') await open(path);
}
async function openCode(): Promise<void> {
  await browser.deleteCookies();
  await open('/login');
  await setup.enterPassword(guarded.username);
  await setup.untilTitle('Second factor');
}

/** Presses the button that asks, and then the one that does it. */
async function confirm(action: string): Promise<void> {
  const form = `form[action="${action}"]`;
  await browser.clickOn(`details:has(${form}) > summary`);
  await browser.clickOn(`${form} button`);
}

/** Fills in the form that creates a user, with a first password in place of a link. */
async function fillNewUser(username: string, email: string): Promise<void> {
  await openAs(administrator, '/account/users');
  await browser.clickOn(`details:has(${CREATE}) > summary`);
  await browser.fill('username', username);
  await browser.fill('email', email);
  await browser.run('document.getElementById("by").value = "password"');
  await browser.fill('password', FIRST_PASSWORD);
}

/** The first sign-in of a user whom an administrator has made with the page. */
async function openFirst(): Promise<string> {
  created += 1;
  const username = `new-${created}`;
  await fillNewUser(username, `${username}@example.org`);
  await browser.clickOn(`${CREATE} button[type=submit]`);
  await setup.untilTitle('The user is created');
  await browser.deleteCookies();
  await browser.open('about:blank');
  await browser.open(`${APP}/first?x=1`);
  await setup.enterPassword(username, FIRST_PASSWORD);
  await setup.untilTitle('Choose a password');
  return username;
}
let created = 0;
const FIRST_PASSWORD = 'chosen by somebody else';
const CREATE = 'form[method="post"][action="/account/users"]';

const LOGIN_CONTROLS = {
  username: ['textbox', 'Username or e-mail address'],
  password: ['textbox', 'Password'],
} as const;
const CODE_CONTROLS = {
  code: ['textbox', 'Authenticator code or recovery code'],
} as const;

const LINK_CONTROLS = {
  token: ['textbox', 'Your link, or the part of it after the character #'],
} as const;

const STATES: readonly PageState[] = [
  [
    'sign-in',
    async () => {
      await browser.deleteCookies();
      await open('/login');
    },
    LOGIN_CONTROLS,
  ],
  [
    'sign-in-wrong',
    async () => {
      await open('/login');
      await setup.enterPassword(plain.username, 'wrong');
      await browser.untilVisible('problem');
    },
    { ...LOGIN_CONTROLS, problem: ['alert', ''] },
  ],
  [
    'sign-in-throttled',
    async () => {
      await browser.deleteCookies();
      await open('/login');
      for (let i = 0; i < 7; i += 1) {
        await setup.enterPassword('nobody-at-all', `wrong ${i}`);
        await browser.until(`document.readyState === 'complete'
        && document.getElementById('problem') !== null
        && document.getElementById('password').value === ''`);
      }
      await browser.until('/Too many/.test(document.getElementById("problem").innerText)');
    },
    { ...LOGIN_CONTROLS, problem: ['alert', ''] },
  ],
  ['code', openCode, CODE_CONTROLS],
  [
    'code-wrong',
    async () => {
      await openCode();
      await browser.fill('code', '000000');
      await browser.press(Enter);
      await browser.untilVisible('problem');
    },
    { ...CODE_CONTROLS, problem: ['alert', ''] },
  ],
  [
    'choose-password',
    async () => {
      await browser.deleteCookies();
      await openFirst();
    },
    { new: ['textbox', 'New password'] },
  ],
  [
    'choose-password-wrong',
    async () => {
      await browser.deleteCookies();
      await openFirst();
      await browser.fill('new', 'short');
      await browser.fill('repeated', 'short');
      await browser.press(Enter);
      await browser.untilVisible('password-problem');
    },
    { new: ['textbox', 'New password'], 'password-problem': ['alert', ''] },
  ],
  [
    'account',
    async () => {
      await openAs(plain, '/account');
      await browser.clickOn('details:has(#current) > summary');
    },
    {
      current: ['textbox', 'Current password'],
      new: ['textbox', 'New password'],
    },
  ],
  [
    'account-wrong',
    async () => {
      await openAs(plain, '/account');
      await browser.clickOn('details:has(#current) > summary');
      await browser.fill('current', 'wrong');
      await browser.fill('new', 'another long passphrase');
      await browser.fill('repeated', 'another long passphrase');
      await browser.press(Enter);
      await browser.untilVisible('problem');
    },
    { problem: ['alert', ''] },
  ],
  ['account-administrator', () => openAs(administrator, '/account'), {}],
  [
    'factors-none',
    () => openAs(plain, '/account/factors'),
    {
      name: ['textbox', 'Name of the passkey or security key, for example the device'],
    },
  ],
  [
    'factors-used',
    async () => {
      await openAs(guarded, '/account/factors');
      const id = await browser.addAuthenticator(true);
      await browser.fill('name', 'Ada\u2019s laptop');
      await browser.clickOn('#passkey button');
      await browser.until('/laptop/.test(document.body.innerText)');
      await browser.removeAuthenticator(id);
    },
    {},
  ],
  [
    'app',
    async () => {
      await openAs(plain, '/account/factors');
      await browser.clickOn('form[action="/account/totp/start"] button');
      await browser.untilVisible('code');
    },
    { code: ['textbox', '6-digit code'] },
  ],
  [
    'app-wrong',
    async () => {
      await openAs(plain, '/account/factors');
      await browser.clickOn('form[action="/account/totp/start"] button');
      await browser.untilVisible('code');
      await browser.fill('code', '000000');
      await browser.press(Enter);
      await browser.untilVisible('problem');
    },
    { code: ['textbox', '6-digit code'], problem: ['alert', ''] },
  ],
  [
    'recovery-codes',
    async () => {
      await openAs(guarded, '/account/factors');
      await confirm('/account/recovery');
      await setup.untilTitle('Recovery codes');
    },
    {},
  ],
  ['keys-none', () => openAs(administrator, '/account/keys'), {}],
  [
    'key-new',
    async () => {
      await openAs(plain, '/account/keys');
      await browser.fill('name', 'Backup of the wiki');
      await browser.clickOn('form[action="/account/keys"] button');
      await setup.untilTitle('Your new API key');
    },
    {},
  ],
  [
    'keys',
    async () => {
      await openAs(plain, '/account/keys');
      await browser.fill('name', 'An old program');
      await browser.clickOn('form[action="/account/keys"] button');
      await setup.untilTitle('Your new API key');
      await open('/account/keys');
      await confirm('/account/keys/revoke');
      await browser.until('/Revoked/.test(document.body.innerText)');
    },
    {
      name: ['textbox', 'Name, for example the program that uses the key'],
      days: ['combobox', 'Expires'],
    },
  ],
  [
    'users',
    () => openAs(administrator, '/account/users'),
    {
      search: ['textbox', 'Name, e-mail address or group'],
    },
  ],
  [
    'users-create',
    async () => {
      await openAs(administrator, '/account/users');
      await browser.clickOn(`details:has(${CREATE}) > summary`);
    },
    {
      role: ['combobox', 'Role'],
      username: ['textbox', 'Username'],
      email: ['textbox', 'E-mail address'],
      groups: ['textbox', 'Groups, separated by commas (optional)'],
      by: ['combobox', 'First sign-in'],
    },
  ],
  [
    'users-found-none',
    () => openAs(administrator, '/account/users?search=nobody-at-all'),
    {
      search: ['textbox', 'Name, e-mail address or group'],
    },
  ],
  ['users-second-page', () => openAs(administrator, '/account/users?page=2'), {}],
  [
    'users-wrong',
    async () => {
      await fillNewUser(plain.username, 'another@example.org');
      await browser.clickOn(`${CREATE} button[type=submit]`);
      await browser.untilVisible('username-problem');
    },
    { 'username-problem': ['alert', ''] },
  ],
  [
    'users-wrong-choices',
    async () => {
      await fillNewUser('another-one', 'no address');
      await browser.run('document.getElementById("role").value = "administrator"');
      await browser.fill('groups', 'A group');
      await browser.clickOn(`${CREATE} button[type=submit]`);
      await browser.untilVisible('email-problem');
    },
    { 'email-problem': ['alert', ''], 'groups-problem': ['alert', ''] },
  ],
  [
    'user-session-ended',
    async () => {
      await openAs(administrator, `/account/users/${administrator.id}`);
      const id = '00000000-0000-4000-8000-000000000000';
      await browser.run(`document.querySelector('[name="session_id"]').value = '${id}'`);
      await browser.clickOn('form:has([name="session_id"]) button');
      await browser.untilVisible('problem');
    },
    { problem: ['alert', ''] },
  ],
  [
    'user-wrong',
    async () => {
      await openAs(administrator, `/account/users/${guarded.id}`);
      await browser.clickOn('summary');
      await browser.fill('username', plain.username);
      await browser.clickOn(`form[action="/account/users/${guarded.id}/edit"] button`);
      await browser.untilVisible('username-problem');
    },
    { 'username-problem': ['alert', ''] },
  ],
  [
    'key-wrong',
    async () => {
      await openAs(plain, '/account/keys');
      await browser.fill('name', 'a\u202eb');
      await browser.run('document.getElementById("days").value = "never"');
      await browser.clickOn('form[action="/account/keys"] button');
      await browser.untilVisible('name-problem');
    },
    { 'name-problem': ['alert', ''] },
  ],
  [
    'user',
    () => openAs(administrator, `/account/users/${guarded.id}`),
    {
      password: ['textbox', 'New password, which the user must change'],
    },
  ],
  [
    'user-link',
    async () => {
      await openAs(administrator, `/account/users/${guarded.id}`);
      await browser.clickOn(`form[action="/account/users/${guarded.id}/link"] button`);
      await setup.untilTitle('The link is made');
    },
    {},
  ],
  [
    'link-by-hand',
    async () => {
      await browser.deleteCookies();
      await open('/link');
    },
    LINK_CONTROLS,
  ],
  [
    'link-wrong',
    async () => {
      await browser.deleteCookies();
      await open('/link');
      await browser.fill('token', 'part-of-a-link');
      await browser.press(Enter);
      await browser.untilVisible('problem');
    },
    { ...LINK_CONTROLS, problem: ['alert', ''] },
  ],
  [
    'link-password',
    async () => {
      created += 1;
      const link = await setup.invite(administrator, `invited-${created}`);
      await browser.open(link);
      await setup.untilTitle('Choose a password');
    },
    {},
  ],
  ['audit', () => openAs(administrator, '/account/audit'), {}],
  ['forbidden', () => openAs(plain, '/account/users'), {}],
  [
    'other-site',
    async () => {
      await browser.deleteCookies();
      await browser.open(`${EVIL}/`);
      await browser.run(`
      const form = document.createElement('form');
      Object.assign(form, { method: 'post', action: '${LOGIN}/login' });
      document.body.append(form);
      form.submit();`);
      await setup.untilTitle('You may not do this');
    },
    { problem: ['alert', ''] },
  ],
  [
    'failure',
    () => openAs(administrator, '/account/users/00000000-0000-4000-8000-000000000000'),
    {},
  ],
];

/** Controls and links without an accessible name (4.1.2), and ids that are used twice. */
const unnamed = (): Promise<string[]> =>
  browser.run(`
  const isNamed = (one) =>
    one.labels?.length > 0 || one.innerText?.trim() || one.getAttribute('aria-label');
  const all = [...document.querySelectorAll('input, button, a, select, svg')];
  const isWithoutName = (one) =>
    one.checkVisibility() && !one.matches('[type=hidden]') && !isNamed(one);
  const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
  const found = all.filter(isWithoutName).map((one) => one.outerHTML);
  if (!document.documentElement.lang) found.push('the page has no language');
  return [...found, ...ids.filter((id, at) => ids.indexOf(id) !== at)];`);

for (const state of STATES) {
  const [name] = state;
  test(`every check of accessibility passes: ${name}`, async () => {
    await openState(browser, state);
    assert.deepEqual(await unnamed(), []);
    await checkAppearance(browser, `signin-${name}`);
    for (const viewport of ['large phone', 'tablet'] as const) {
      await setViewport(browser, viewport);
      assert.deepEqual(await overflowing(browser), [], `${viewport}: nothing overflows`);
    }
    await setViewport(browser, 'desktop');
    await enlargeText(browser);
    assert.deepEqual(await overflowing(browser), [], 'nothing overflows at 200 %');
    const messages = (await browser.log())
      .filter(({ source }) => source !== 'network')
      .map(({ message }) => message);
    assert.deepEqual(messages, [], 'the browser reports an error');
    await browser.setColorScheme('light');
  });
}

/** What does not fit where it stands, on the page that is shown. */
const misfits = (): Promise<string[]> =>
  browser.run(`
  const found = [];
  const text = document.createElement('canvas').getContext('2d');
  for (const select of document.querySelectorAll('select')) {
    text.font = getComputedStyle(select).font;
    const widths = [...select.options].map((option) => text.measureText(option.text).width);
    // The padding, and the arrow.
    if (Math.max(...widths) > select.clientWidth - 44) found.push('choices of ' + select.name);
  }
  for (const box of document.querySelectorAll('pre')) {
    const { lineHeight, paddingTop } = getComputedStyle(box);
    const lines = (box.clientHeight - 2 * parseFloat(paddingTop)) / parseFloat(lineHeight);
    if (Math.round(lines) > box.textContent.split('\\n').length) found.push('broken lines');
  }
  for (const card of document.querySelectorAll('.card.flush'))
    if (card.scrollWidth > card.clientWidth) found.push('a table');
  for (const confirm of document.querySelectorAll('p + details.confirm')) {
    const { bottom } = confirm.previousElementSibling.getBoundingClientRect();
    if (confirm.getBoundingClientRect().top - bottom < 12) found.push('a button without a gap');
  }
  const labels = [...document.querySelectorAll('.row label')];
  const tops = new Set(labels.map((label) => label.getBoundingClientRect().top));
  if (innerWidth > 1000 && tops.size > 1) found.push('labels of one row');
  return found;`);

test('choices, codes, long names, labels and buttons fit where they stand', async () => {
  await setup.addUser('long-name'.repeat(25), 'long@example.org');
  for (const viewport of ['desktop', 'large phone', 'phone'] as const) {
    await setViewport(browser, viewport);
    for (const path of ['audit?event=user.created', 'users', 'keys', 'factors']) {
      await openAs(path === 'factors' ? guarded : administrator, `/account/${path}`);
      await browser.run('for (const one of document.querySelectorAll(".card")) one.open = true');
      assert.deepEqual(await misfits(), [], `${path}, ${viewport}`);
    }
    await openAs(guarded, '/account/factors');
    await confirm('/account/recovery');
    await setup.untilTitle('Recovery codes');
    assert.deepEqual(await misfits(), [], `recovery codes, ${viewport}`);
  }
  await setViewport(browser, 'desktop');
});

test('the keyboard alone signs in with password and code, and the focus is visible', async () => {
  await browser.open(`${APP}/keyboard?x=1`);
  await browser.until('document.activeElement.id === "username"');
  assert.equal(await focused(browser), 'username');
  await assertFocusVisible(browser, 'username');
  await browser.press(...guarded.username, Tab);
  assert.equal(await focused(browser), 'password');
  await browser.press(...'wrong', Enter);
  await setup.untilTitle('Sign in: try again');
  await setup.enterPassword(guarded.username);
  await setup.untilTitle('Second factor');
  assert.equal(await focused(browser), 'code');
  await assertFocusVisible(browser, 'code');
  await browser.press(...(await setup.codeOf(secret)), Enter);
  await setup.untilProgram(`${APP}/keyboard?x=1`);
});

test('every control of every page is reached with Tab, with a visible focus', async () => {
  for (const [who, path] of [
    [plain, '/account'],
    [guarded, '/account/factors'],
    [plain, '/account/keys'],
    [administrator, '/account/users'],
  ] as const) {
    await openAs(who, path);
    const all = await browser.run(`
      const controls = [...document.querySelectorAll('a, button, input, select')];
      return controls.filter((one) => one.checkVisibility()).length;`);
    await browser.run('document.body.tabIndex = -1; document.body.focus()');
    const seen = new Set<number>();
    for (let i = 0; i < 120 && seen.size < all; i += 1) {
      await browser.press(Tab);
      const at = await browser.run(`
        const { activeElement: one } = document;
        if (!one.matches('a, button, input, select')) return -1;
        if (!['solid', 'auto'].includes(getComputedStyle(one).outlineStyle)) return -2;
        return [...document.querySelectorAll('a, button, input, select')].indexOf(one)`);
      assert.notEqual(at, -2, 'the focus is visible');
      if (at >= 0) seen.add(at);
    }
    assert.equal(seen.size, all, path);
  }
});

test('a first password is replaced before anything else, and then leads to the address', async () => {
  const username = await openFirst();
  await browser.open(`${APP}/first?x=1`);
  assert.equal(await browser.title(), 'Sign in');
  await setup.enterPassword(username, FIRST_PASSWORD);
  await setup.untilTitle('Choose a password');
  await browser.fill('new', 'chosen by the person');
  await browser.fill('repeated', 'chosen by the person');
  await browser.press(Enter);
  await setup.untilProgram(`${APP}/first?x=1`);
});

test('a user who cannot be created is said at the form, which keeps what was typed', async () => {
  await fillNewUser(plain.username, 'another@example.org');
  await browser.press(Enter);
  await browser.untilVisible('username-problem');
  assert.deepEqual(await Promise.all(['username', 'email'].map((id) => browser.value(id))), [
    plain.username,
    'another@example.org',
  ]);
  assert.equal(await focused(browser), 'username');
  assert.equal(
    await browser.run(
      'return document.querySelector("details").contains(document.getElementById("username-problem"))',
    ),
    true,
  );
});

test('a form whose session has ended is filled in again after the sign-in, secrets aside', async () => {
  await fillNewUser('typed-before', 'typed@example.org');
  await browser.deleteCookies();
  await browser.press(Enter);
  await setup.untilTitle('Sign in');
  assert.match(await browser.run('return document.body.innerText'), /Your sign-in has ended/);
  await setup.enterPassword(administrator.username);
  await browser.until('location.pathname === "/account/users"');
  await browser.untilVisible('username');
  assert.deepEqual(
    await Promise.all(['username', 'email', 'by', 'password'].map((id) => browser.value(id))),
    ['typed-before', 'typed@example.org', 'password', ''],
  );
  assert.equal(await browser.run('return sessionStorage.length'), 0);
});

test('of several forms with one address, the one that was sent is shown again', async () => {
  await openAs(plain, '/account/keys');
  await browser.run(`return Promise.all(['one', 'other'].map((name) => fetch('/account/keys', {
    method: 'POST', body: new URLSearchParams({ name, days: '30' }) })))`);
  await openAs(plain, '/account/keys');
  const IDS = `[...document.querySelectorAll('[name="key_id"]')].map(({ value }) => value)`;
  const ids: string[] = await browser.run(`return ${IDS}`);
  assert.ok(ids.length > 1);
  const id = ids.at(-1);
  await browser.deleteCookies();
  await browser.run(`document.querySelector('[value="${id}"]').form.requestSubmit()`);
  await setup.untilTitle('Sign in');
  await setup.enterPassword(plain.username);
  await browser.until('location.pathname === "/account/keys"');
  await browser.until('document.activeElement.form !== undefined');
  const FOCUSED = 'document.activeElement.form.elements.namedItem("key_id").value';
  assert.deepEqual(await browser.run(`return [${FOCUSED}, ${IDS}]`), [id, ids]);
});

test('a second click does not send a form again', async () => {
  await openAs(plain, '/account');
  const prevented = await browser.run(`
    const form = document.querySelector('form[action="/account/name"]');
    const seen = [];
    form.addEventListener('submit', (event) => seen.push(event.defaultPrevented));
    form.requestSubmit();
    form.requestSubmit();
    return seen;`);
  assert.deepEqual(prevented, [false, true]);
  await browser.until('/Your name is changed/.test(document.body.innerText)');
});

test('pictures, frames and prefetched pages do not end a sign-in that waits for its code', async () => {
  await openCode();
  await browser.runAsync(`
    const loaded = (one) => new Promise((resolve) => {
      one.addEventListener('load', resolve);
      one.addEventListener('error', resolve);
      document.body.append(one);
    });
    const make = (name, values) => Object.assign(document.createElement(name), values);
    await loaded(make('img', { src: '/login' }));
    await loaded(make('iframe', { src: '/login?again=on' }));
    await loaded(make('link', { rel: 'prefetch', href: '/login?return_to=' }));
    await fetch('/login');`);
  await browser.log();
  await browser.fill('code', await setup.codeOf(secret));
  await browser.press(Enter);
  await browser.until('location.pathname === "/account"');
});

test('a reader of QR codes reads the key of the app', async () => {
  await openAs(plain, '/account/factors');
  await browser.clickOn('form[action="/account/totp/start"] button');
  await browser.untilVisible('code');
  await browser.run('document.querySelector("svg").id = "picture"');
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-qr-'));
  try {
    const file = join(directory, 'qr.png');
    writeFileSync(file, await browser.screenshot('picture'));
    const uri = new URL(
      execFileSync(findProgram('zbarimg') ?? 'zbarimg', ['--quiet', '--raw', file], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      }).trim(),
    );
    const shown = await browser.run('return document.querySelector("figcaption code").textContent');
    assert.equal(uri.protocol, 'otpauth:');
    assert.equal(uri.searchParams.get('secret'), shown.replaceAll(' ', ''));
    assert.equal(uri.searchParams.get('issuer'), 'Gatehouse');
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('a password manager finds the fields of each form', async () => {
  const hints = () =>
    browser.run(
      'return [...document.querySelectorAll("input:not([type=hidden])")].map((one) => one.autocomplete)',
    );
  await open('/login');
  assert.deepEqual(await hints(), ['username webauthn', 'current-password']);
  await openCode();
  assert.deepEqual(await hints(), ['one-time-code']);
  await openAs(plain, '/account');
  assert.deepEqual(await hints(), [
    'given-name',
    'family-name',
    'username',
    'current-password',
    'new-password',
    'new-password',
  ]);
});
