/** The pages of OpenID Connect in a real browser. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkState, misfits, type PageState, setViewport } from '../browser/accessibility.ts';
import { focused } from '../browser/setup.ts';
import { KEYS } from '../browser/webdriver.ts';
import { APP, LOGIN, type Member, startSignin } from './setup.ts';

const setup = await startSignin('nginx', { OIDC: 'on' });
const { browser } = setup;
const person = await setup.addMember();
const administrator = await setup.addMember({ super_admin: true });
const PROGRAMS = '/account/programs';
const REGISTER = `form[action="${PROGRAMS}"]`;
const CALLBACK = `${APP}/callback`;

async function openAs({ username }: Member, path: string): Promise<void> {
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(username);
  await browser.until('location.pathname === "/account"');
  await browser.open(LOGIN + path);
}

/** Opens the form, and fills in what it needs. */
async function fillProgram(id: string, redirect = CALLBACK): Promise<void> {
  await openAs(administrator, PROGRAMS);
  await browser.clickOn(`details:has(${REGISTER}) > summary`);
  await browser.fill('id', id);
  await browser.fill('name', `The program ${id}`);
  await browser.fill('redirect', redirect);
}

async function register(id: string): Promise<void> {
  await fillProgram(id);
  await browser.clickOn(`${REGISTER} button`);
  await setup.untilTitle('The program is registered');
}

/** Where a program sends a browser that is to sign in. */
const addressOf = (id: string) =>
  `/oidc/authorize?${new URLSearchParams({
    response_type: 'code',
    client_id: id,
    redirect_uri: CALLBACK,
    scope: 'openid profile email groups offline_access',
    code_challenge: 'x'.repeat(43),
    code_challenge_method: 'S256',
  })}`;

const STATES: readonly PageState[] = [
  ['programs-none', () => openAs(administrator, PROGRAMS), {}],
  [
    'programs-wrong',
    async () => {
      await fillProgram('wiki', 'nonsense');
      await browser.clickOn(`${REGISTER} button`);
      await browser.untilVisible('redirect-problem');
    },
    { 'redirect-problem': ['alert', ''], secret: ['combobox', 'Client secret'] },
  ],
  ['program-registered', () => register('wiki'), {}],
  ['programs', () => openAs(administrator, PROGRAMS), {}],
  [
    'program',
    () => openAs(administrator, `${PROGRAMS}/wiki`),
    { redirect: ['textbox', 'Redirect addresses'], pkce: ['combobox', 'Require PKCE'] },
  ],
  [
    'program-secret',
    async () => {
      await openAs(administrator, `${PROGRAMS}/wiki`);
      await browser.clickOn('details:has(form[action$="/secret"]) > summary');
      await browser.clickOn('form[action$="/secret"] button');
      await setup.untilTitle('The program has a new secret');
    },
    {},
  ],
  ['consent', () => openAs(person, addressOf('wiki')), {}],
  ['sign-out', () => openAs(person, '/oidc/logout?client_id=wiki'), {}],
  ['program-unknown', () => openAs(person, addressOf('nobody')), { problem: ['alert', ''] }],
];

for (const state of STATES) {
  const [name] = state;
  test(`every check of accessibility passes: ${name}`, () => checkState(browser, state));
}

test('the choices and labels of a program fit where they stand', async () => {
  await register('fits');
  for (const viewport of ['desktop', 'large phone', 'phone'] as const) {
    await setViewport(browser, viewport);
    for (const path of [PROGRAMS, `${PROGRAMS}/fits`]) {
      await openAs(administrator, path);
      await browser.run('for (const one of document.querySelectorAll("details")) one.open = true');
      assert.deepEqual(await misfits(browser), [], `${path}, ${viewport}`);
    }
  }
  await setViewport(browser, 'desktop');
});

test('the keyboard alone registers a program', async () => {
  await openAs(administrator, PROGRAMS);
  await browser.run(`document.querySelector('details:has(${REGISTER}) > summary').focus()`);
  await browser.press(KEYS.Enter, KEYS.Tab, ...'keyboard');
  assert.equal(await focused(browser), 'id');
  await browser.press(KEYS.Tab, KEYS.Tab, ...'By keyboard', KEYS.Tab, ...CALLBACK);
  assert.equal(await focused(browser), 'redirect');
  await browser.run(`document.querySelector('${REGISTER} button').focus()`);
  await browser.press(KEYS.Enter);
  await setup.untilTitle('The program is registered');
});

test('a program is registered and allowed, also without JavaScript', async () => {
  for (const allowed of [true, false]) {
    const id = `allowed-${allowed}`;
    await browser.allowScripts(allowed);
    try {
      await register(id);
      await openAs(person, addressOf(id));
      await setup.untilTitle(`Sign in to The program ${id}`);
      await browser.clickOn('button[value=allow]');
      await browser.until(`location.href.startsWith('${CALLBACK}?code=')`);
    } finally {
      await browser.allowScripts(true);
    }
  }
});
