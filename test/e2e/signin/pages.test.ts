/**
 * The sign-in pages in a real Chromium: keyboard, screen reader, contrast, small screens, and
 * pictures of each.
 */
import assert from 'node:assert/strict';
import {
  assertFocusVisible,
  checkState,
  misfits,
  type PageState,
  setViewport,
} from '../browser/accessibility.ts';
import { testsExcept } from '../browser/browsers.ts';
import { focused } from '../browser/setup.ts';
import { KEYS } from '../browser/webdriver.ts';
import { WITHOUT_PASSKEYS } from './passkeys.ts';
import { APP, EVIL, LOGIN, type Member, startSignin } from './setup.ts';

const test = testsExcept([[/factors-used/, WITHOUT_PASSKEYS]]);
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

async function openApp(): Promise<void> {
  await openAs(plain, '/account/factors');
  await browser.clickOn('form[action="/account/totp/start"] button');
  await browser.untilVisible('code');
}

async function createKey(name: string): Promise<void> {
  await openAs(plain, '/account/keys');
  await browser.fill('name', name);
  await browser.clickOn('form[action="/account/keys"] button');
  await setup.untilTitle('The new API key');
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
async function openFirst(): Promise<void> {
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
}
let created = 0;
const FIRST_PASSWORD = 'chosen by somebody else';
const CREATE = 'form[method="post"][action="/account/users"]';
const CREATE_PROGRAM_KEY = 'form[action="/account/program-keys"]';

/** Pages that are only opened, by who sees them. */
const OPENED: ReadonlyArray<readonly [name: string, who: Member, path: string]> = [
  ['account-administrator', administrator, '/account'],
  ['factors-none', plain, '/account/factors'],
  ['keys-none', administrator, '/account/keys'],
  ['program-keys', administrator, '/account/program-keys'],
  ['users', administrator, '/account/users'],
  ['users-found-none', administrator, '/account/users?search=nobody-at-all'],
  ['users-second-page', administrator, '/account/users?page=2'],
  ['user', administrator, `/account/users/${guarded.id}`],
  ['audit', administrator, '/account/audit'],
  ['forbidden', plain, '/account/users'],
  ['failure', administrator, '/account/users/00000000-0000-4000-8000-000000000000'],
];

/** What is wrong with each form, and where it is said: test/api/identity/signin. */
const STATES: readonly PageState[] = [
  ...OPENED.map(([name, who, path]): PageState => [name, () => openAs(who, path), {}]),
  [
    'sign-in',
    async () => {
      await browser.deleteCookies();
      await open('/login');
    },
    {
      username: ['textbox', 'Username or e-mail address'],
      password: ['textbox', 'Password'],
    },
  ],
  [
    'sign-in-wrong',
    async () => {
      await open('/login');
      await setup.enterPassword(plain.username, 'wrong');
      await browser.untilVisible('problem');
    },
    { problem: ['alert', ''] },
  ],
  ['code', openCode, { code: ['textbox', 'Authenticator code or recovery code'] }],
  ['choose-password', openFirst, { new: ['textbox', 'New password'] }],
  [
    'account',
    async () => {
      await openAs(plain, '/account');
      await browser.clickOn('details:has(#current) > summary');
    },
    { current: ['textbox', 'Current password'], new: ['textbox', 'New password'] },
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
  ['app', openApp, { code: ['textbox', '6-digit code'] }],
  [
    'recovery-codes',
    async () => {
      await openAs(guarded, '/account/factors');
      await confirm('/account/recovery');
      await setup.untilTitle('Recovery codes');
    },
    {},
  ],
  ['key-new', () => createKey('Backup of the wiki'), {}],
  [
    'keys',
    async () => {
      await createKey('An old program');
      await open('/account/keys');
      await confirm('/account/keys/revoke');
      await browser.until('/Revoked/.test(document.body.innerText)');
    },
    { days: ['combobox', 'Expires'] },
  ],
  [
    'program-keys-wrong',
    async () => {
      await openAs(administrator, '/account/program-keys');
      await browser.fill('name', 'Deployment of the wiki');
      await browser.fill('groups', 'A group');
      await browser.clickOn(`${CREATE_PROGRAM_KEY} button`);
      await browser.untilVisible('groups-problem');
    },
    { verify: ['checkbox', 'Open programs behind a proxy'], 'groups-problem': ['alert', ''] },
  ],
  [
    'program-key-new',
    async () => {
      await openAs(administrator, '/account/program-keys');
      await browser.fill('name', 'Deployment of the wiki');
      await browser.click('verify');
      await browser.clickOn(`${CREATE_PROGRAM_KEY} button`);
      await setup.untilTitle('The new API key');
    },
    {},
  ],
  [
    'users-create',
    async () => {
      await openAs(administrator, '/account/users');
      await browser.clickOn(`details:has(${CREATE}) > summary`);
    },
    { role: ['combobox', 'Role'], by: ['combobox', 'First sign-in'] },
  ],
  [
    'users-wrong',
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
    { token: ['textbox', 'Your link, or only the part after the #'] },
  ],
  [
    'link-password',
    async () => {
      created += 1;
      await browser.open(await setup.invite(administrator, `invited-${created}`));
      await setup.untilTitle('Choose a password');
    },
    {},
  ],
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
];

for (const state of STATES) {
  const [name] = state;
  test(`every check of accessibility passes: ${name}`, () => checkState(browser, state));
}

test('choices, codes, long names, labels and buttons fit where they stand', async () => {
  await setup.addUser('long-name'.repeat(25), 'long@example.org');
  for (const viewport of ['desktop', 'large phone', 'phone'] as const) {
    await setViewport(browser, viewport);
    for (const path of ['audit?event=user.created', 'users', 'keys', 'program-keys', 'factors']) {
      await openAs(path === 'factors' ? guarded : administrator, `/account/${path}`);
      await browser.run('for (const one of document.querySelectorAll(".card")) one.open = true');
      assert.deepEqual(await misfits(browser), [], `${path}, ${viewport}`);
    }
    await openAs(guarded, '/account/factors');
    await confirm('/account/recovery');
    await setup.untilTitle('Recovery codes');
    assert.deepEqual(await misfits(browser), [], `recovery codes, ${viewport}`);
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

test('a first password is replaced before anything else, and then leads to the address', async () => {
  await openFirst();
  await browser.open(`${APP}/first?x=1`);
  await setup.untilTitle('Choose a password');
  await browser.fill('new', 'chosen by the person');
  await browser.fill('repeated', 'chosen by the person');
  await browser.press(Enter);
  await setup.untilProgram(`${APP}/first?x=1`);
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
