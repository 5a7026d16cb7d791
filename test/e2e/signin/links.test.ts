/**
 * Invitations and resets by link in Chromium, behind a real nginx: from the users page to the
 * program.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KEYS } from '../browser/webdriver.ts';
import { APP, askProxy, LOGIN, type Member, sessionCookie, startSignin } from './setup.ts';

const setup = await startSignin('nginx');
const { browser } = setup;
const administrator = await setup.addMember({ super_admin: true });
const CHOSEN = 'chosen by the person';
const bodyText = () => browser.run('return document.body.innerText');
const atAccount = () => browser.until('location.pathname === "/account"');

async function choosePassword(): Promise<void> {
  await setup.untilTitle('Choose a password');
  await browser.fill('new', CHOSEN);
  await browser.fill('repeated', CHOSEN);
  await browser.press(KEYS.Enter);
}

/** Makes a reset link on the page of the user. @returns the link, in a browser without cookies */
async function makeResetLink({ id }: Member, removesFactors: boolean): Promise<string> {
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(administrator.username);
  await atAccount();
  await browser.open(`${LOGIN}/account/users/${id}`);
  if (removesFactors) await browser.clickOn('#factors');
  await browser.clickOn(`form[action="/account/users/${id}/link"] button`);
  await setup.untilTitle('The link is made');
  const isAnnounced = /The link also removes the second factors/.test(await bodyText());
  assert.equal(isAnnounced, removesFactors);
  const link = await browser.run('return document.querySelector("pre").textContent.trim()');
  await browser.deleteCookies();
  await browser.open('about:blank');
  return String(link);
}

test('an invited person sets a password and a passkey, and opens the program of a group', async () => {
  const link = await setup.invite(administrator, 'invited', 'staff, editors');
  // As some mail programs leave it.
  await browser.open(`${link.replace('#', '?utm_source=mail%23')}).`);
  await setup.untilTitle('Choose a password');
  assert.match(await bodyText(), /This link is for the account invited/);
  const { hash: token } = new URL(link);
  const visited = JSON.stringify(await browser.history());
  assert.ok(!visited.includes(token.slice(1)), 'the history has no token');
  await choosePassword();
  await atAccount();

  const authenticator = await browser.addAuthenticator(false);
  try {
    await browser.open(`${LOGIN}/account/factors`);
    await browser.fill('name', 'This laptop');
    await browser.clickOn('#second-step');
    await setup.untilTitle('Recovery codes');
    await browser.deleteCookies();
    await browser.open(`${APP}/team?x=1`);
    await setup.enterPassword('invited', CHOSEN);
    await setup.untilTitle('Second factor');
    await browser.clickOn('#passkey button');
    const { headers } = await setup.untilProgram(`${APP}/team?x=1`);
    const received = new Map(headers);
    assert.equal(received.get('X-Auth-Groups'), 'editors,staff');
    assert.equal(received.get('X-Auth-Methods'), 'password, passkey');
  } finally {
    await browser.removeAuthenticator(authenticator);
  }

  await browser.deleteCookies();
  await browser.open(link);
  await browser.untilVisible('problem');
  assert.match(await browser.text('problem'), /ask an administrator for a new link/);
});

test('a reset link asks for the second factor, and ends the earlier session', async () => {
  const member = await setup.addMember();
  const secret = await setup.addApp(member);
  const headers = [await sessionCookie(browser, APP)] as const;
  assert.equal((await askProxy(setup, { headers })).status, 200);

  await browser.open(await makeResetLink(member, false));
  await setup.untilTitle('Second factor');
  await browser.fill('code', 'AAAAA-AAAAA-AAAAA-AAAAA');
  await browser.press(KEYS.Enter);
  await setup.untilTitle('Second factor: try again');
  assert.equal((await askProxy(setup, { headers })).status, 200, 'nothing is done yet');
  await browser.fill('code', await setup.codeOf(secret));
  await browser.press(KEYS.Enter);
  await choosePassword();
  await atAccount();
  assert.equal((await askProxy(setup, { headers })).status, 401);
});

test('a reset link that removes the factors says so, and asks for none', async () => {
  const member = await setup.addMember();
  await setup.addApp(member);
  await browser.open(await makeResetLink(member, true));
  await setup.untilTitle('Choose a password');
  assert.match(await bodyText(), /It also removes the second factors/);
  await choosePassword();
  await atAccount();
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(member.username, CHOSEN);
  await atAccount();
});
