/** What Chromium does to a sign-in behind a real nginx: fragments, tabs, the back button, prerender. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { APP, LOGIN, PASSWORD, startSignin } from './setup.ts';

const setup = await startSignin('nginx');
const { browser } = setup;
const ADDRESS = `${APP}/dash?x=1#/view/42?y=a%20b`;
const untilAt = (address: string) => browser.until(`location.href === ${JSON.stringify(address)}`);

test('what follows "#" comes back after the sign-in, also after a second factor', async () => {
  const member = await setup.addMember();
  const secret = await setup.addApp(member);
  await browser.deleteCookies();
  await browser.open(ADDRESS);
  await setup.untilTitle('Sign in');
  await setup.enterPassword(member.username);
  await setup.untilTitle('Second factor');
  await setup.sql`update identity.totp set last_step = 0`;
  await browser.fill('code', await setup.codeOf(secret));
  await browser.clickOn('form.card button.primary');
  await untilAt(ADDRESS);
});

test('what follows "#" is kept where the browser is signed in already', async () => {
  const { username } = await setup.addMember();
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(username);
  await browser.until('location.pathname === "/account"');
  const query = new URLSearchParams({ return_to: `${APP}/dash?x=1` });
  await browser.open(`${LOGIN}/login?${query}#/view/42?y=a%20b`);
  await untilAt(ADDRESS);
});

test('the step that waits is shown by a second tab, a reload and the address bar', async () => {
  const member = await setup.addMember();
  const secret = await setup.addApp(member);
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(member.username, PASSWORD);
  await setup.untilTitle('Second factor');
  for (const path of ['/login', '/login/code', '/login/passkey']) {
    await browser.open(LOGIN + path);
    await setup.untilTitle('Second factor');
  }
  await setup.sql`update identity.totp set last_step = 0`;
  await browser.fill('code', await setup.codeOf(secret));
  await browser.clickOn('form.card button.primary');
  await browser.until('location.pathname === "/account"');
  await browser.open(`${LOGIN}/login/code`);
  await browser.until('location.pathname === "/account"');
  assert.equal(await browser.title(), 'Your account');
});
