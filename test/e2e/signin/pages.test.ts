/**
 * The sign-in pages, and those of OpenID Connect, in a real browser: accessibility, keyboard, forms
 * that are sent twice or after the end of the session.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertTabOrder, checkPage } from '../browser/accessibility.ts';
import { KEYS } from '../browser/webdriver.ts';
import type { Member } from '../nginx/setup.ts';
import { APP, LOGIN, startSignin } from './setup.ts';

const setup = await startSignin('nginx', { OIDC: 'on' });
const { browser, untilTitle } = setup;
const { clickOn, untilVisible } = browser;

const plain = await setup.addMember({ first_name: 'Ada', last_name: 'Lovelace' });
const administrator = await setup.addMember({ super_admin: true });
const guarded = await setup.addMember();
const secret = await setup.addApp(guarded);
// More than one page of them.
for (let i = 0; i < 25; i += 1) await setup.addMember();
await setup.addMember({ username: 'a-very-long-user-name-without-any-space-in-it-0123456789' });

const FIRST_PASSWORD = 'chosen by somebody else';
const CREATE = 'form[method="post"][action="/account/users"]';
const REGISTER = 'form[action="/account/programs"]';
const CALLBACK = `${APP}/callback`;

/** Opens a page of the account. */
async function openAs(member: Member, path: string): Promise<void> {
  if (member !== guarded) return setup.openAccount(member, path);
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(member.username);
  await setup.passCode(secret);
  await setup.untilAt(`${LOGIN}/account`);
  await browser.open(`${LOGIN}/account/${path}`);
}

const openSummary = (form: string) => clickOn(`details:has(${form}) > summary`);
/** Presses the button that asks, and then the one that does it. */
async function confirm(form: string): Promise<void> {
  await openSummary(form);
  await clickOn(`${form} button`);
}

/** Fills in the form that creates a user, with a first password or a link. */
async function fillNewUser(
  username: string,
  email = `${username}@example.org`,
  by: 'password' | 'link' = 'password',
): Promise<void> {
  await openAs(administrator, 'users');
  await openSummary(CREATE);
  await browser.fill('username', username);
  await browser.fill('email', email);
  if (by === 'link') return;
  await browser.run('document.getElementById("by").value = "password"');
  await browser.fill('password', FIRST_PASSWORD);
}

async function register(): Promise<void> {
  await openAs(administrator, 'programs');
  await openSummary(REGISTER);
  await browser.fill('id', 'wiki');
  await browser.fill('name', 'The program wiki');
  await browser.fill('redirect', CALLBACK);
  await clickOn(`${REGISTER} button`);
  await untilTitle('The program is registered');
}

/** Where a program sends a browser that is to sign in. */
const AUTHORIZE = `../oidc/authorize?${new URLSearchParams({
  response_type: 'code',
  client_id: 'wiki',
  redirect_uri: CALLBACK,
  scope: 'openid profile email groups offline_access',
  code_challenge: 'x'.repeat(43),
  code_challenge_method: 'S256',
})}`;

/** Pages that are only opened, by who sees them. */
const OPENED = [
  ['account', plain, ''],
  ['factors', guarded, 'factors'],
  ['program-keys', administrator, 'program-keys'],
  ['users', administrator, 'users'],
  ['user', administrator, `users/${guarded.id}`],
  ['audit', administrator, 'audit'],
  ['forbidden', plain, 'users'],
  ['oidc-sign-out', plain, '../oidc/logout'],
] as const;

/** What is wrong with each form, and where it is said: test/api/identity/signin. */
const STATES: Readonly<Record<string, () => Promise<unknown>>> = {
  ...Object.fromEntries(OPENED.map(([name, who, path]) => [name, () => openAs(who, path)])),
  'sign-in': () => browser.open(`${LOGIN}/login`),
  async app() {
    await openAs(plain, 'factors');
    await clickOn('form[action="/account/totp/start"] button');
    await untilVisible('code');
    const uri = new URL(await browser.readQrCode('svg'));
    const shown = await browser.run('return document.querySelector("figcaption code").textContent');
    assert.equal(uri.searchParams.get('secret'), shown.replaceAll(' ', ''));
  },
  async 'recovery-codes'() {
    await openAs(guarded, 'factors');
    await confirm('form[action="/account/recovery"]');
    await untilTitle('Recovery codes');
  },
  async keys() {
    await openAs(plain, 'keys');
    await browser.fill('name', 'An old program');
    await clickOn('form[action="/account/keys"] button');
    await untilTitle('The new API key');
    await browser.open(`${LOGIN}/account/keys`);
    await confirm('form[action="/account/keys/revoke"]');
    await browser.until('/Revoked/.test(document.body.innerText)');
  },
  async 'users-wrong'() {
    await fillNewUser('another-one', 'no address');
    await clickOn(`${CREATE} button[type=submit]`);
    await untilVisible('email-problem');
  },
  'link-by-hand': () => browser.open(`${LOGIN}/link`),
  async program() {
    await register();
    await openAs(administrator, 'programs/wiki');
    await confirm('form[action$="/secret"]');
    await untilTitle('The program has a new secret');
    await browser.open(`${LOGIN}/account/programs/wiki`);
  },
  async 'oidc-consent'() {
    await openAs(plain, AUTHORIZE);
    await untilTitle('Sign in to The program wiki');
  },
};

for (const [name, open] of Object.entries(STATES)) {
  test(`accessibility and keyboard: ${name}`, async () => {
    await open();
    await checkPage(browser, `signin-${name}`, 'desktop');
    await assertTabOrder(browser);
    assert.deepEqual(await browser.errors(), []);
  });
}

test('the keyboard alone signs in with password and code', async () => {
  await browser.open(`${APP}/keyboard?x=1`);
  await browser.until('document.activeElement.id === "username"');
  await browser.press(...guarded.username, KEYS.Tab, ...'wrong', KEYS.Enter);
  await untilTitle('Sign in: try again');
  await setup.enterPassword(guarded.username);
  await untilTitle('Second factor');
  await checkPage(browser, 'signin-code', 'desktop');
  assert.equal(await browser.focused(), 'code');
  await browser.press(...(await setup.codeOf(secret)), KEYS.Enter);
  await setup.untilProgram(`${APP}/keyboard?x=1`);
});

test('an invited person opens the link, chooses a password, and opens the program of a group', async () => {
  await fillNewUser('invited', 'invited@example.org', 'link');
  await browser.fill('groups', 'staff, editors');
  await clickOn(`${CREATE} button[type=submit]`);
  await untilTitle('The user is invited');
  const link = await browser.run('return document.querySelector("pre").textContent.trim()');
  await browser.deleteCookies();
  // As some mail programs leave it.
  await browser.open(`${link.replace('#', '?utm_source=mail%23')}).`);
  await untilTitle('Choose a password');
  const shown = await browser.run('return document.body.innerText');
  assert.match(shown, /This link is for the account invited/);
  const visited = JSON.stringify(await browser.history());
  assert.ok(!visited.includes(new URL(link).hash.slice(1)), 'the history has no token');
  await checkPage(browser, 'signin-choose-password', 'desktop');
  await browser.fill('new', 'chosen by the person');
  await browser.fill('repeated', 'chosen by the person');
  await browser.press(KEYS.Enter);
  await setup.untilAt(`${LOGIN}/account`);
  await browser.open(`${APP}/team?x=1`);
  const received = await setup.untilProgram(`${APP}/team?x=1`);
  assert.equal(received.get('x-auth-groups'), 'editors,staff');
  await browser.deleteCookies();
  await browser.open(link);
  await browser.untilText('problem', /ask an administrator for a new link/);
});

test('a form whose session has ended is filled in again after the sign-in, secrets aside', async () => {
  await fillNewUser('typed-before', 'typed@example.org');
  await browser.deleteCookies();
  await browser.press(KEYS.Enter);
  await untilTitle('Sign in');
  assert.match(await browser.run('return document.body.innerText'), /Your sign-in has ended/);
  await setup.enterPassword(administrator.username);
  await setup.untilAt(`${LOGIN}/account/users`);
  await untilVisible('username');
  const values = ['username', 'email', 'by', 'password'].map((id) => browser.value(id));
  const typed = ['typed-before', 'typed@example.org', 'password', ''];
  assert.deepEqual(await Promise.all(values), typed);
  assert.equal(await browser.run('return sessionStorage.length'), 0);
});

test('of several forms with one address, the one that was sent is shown again', async () => {
  await openAs(plain, 'keys');
  await browser.run(`return Promise.all(['one', 'other'].map((name) => fetch('/account/keys', {
    method: 'POST', body: new URLSearchParams({ name, days: '30' }) })))`);
  await browser.reload();
  const IDS = `[...document.querySelectorAll('[name="key_id"]')].map(({ value }) => value)`;
  const ids: string[] = await browser.run(`return ${IDS}`);
  assert.ok(ids.length > 1);
  const id = ids.at(-1);
  await browser.deleteCookies();
  await browser.run(`document.querySelector('[value="${id}"]').form.requestSubmit()`);
  await untilTitle('Sign in');
  await setup.enterPassword(plain.username);
  await setup.untilAt(`${LOGIN}/account/keys`);
  await browser.until('document.activeElement.form !== undefined');
  const FOCUSED = 'document.activeElement.form.elements.namedItem("key_id").value';
  assert.deepEqual(await browser.run(`return [${FOCUSED}, ${IDS}]`), [id, ids]);
});

test('a second click does not send a form again', async () => {
  await openAs(plain, '');
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
