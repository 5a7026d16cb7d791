/** What browsers do to a sign-in behind a real nginx: fragments, tabs, the back button, prerender. */
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
  await browser.clickOn('section.card button.primary');
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
  await browser.clickOn('section.card button.primary');
  await browser.until('location.pathname === "/account"');
  await browser.open(`${LOGIN}/login/code`);
  await browser.until('location.pathname === "/account"');
  assert.equal(await browser.title(), 'Your account');
});

test('a program that refuses each session gets the browser five times, with and without scripts', async () => {
  const { username } = await setup.addMember();
  for (const allowed of [true, false]) {
    await browser.deleteCookies();
    await browser.open(`${LOGIN}/login`);
    await setup.enterPassword(username);
    await browser.until('location.pathname === "/account"');
    // The check refuses a cookie that is sent twice.
    await browser.open(`${APP}/status`);
    await browser.run('document.cookie = "__Secure-gatehouse=planted; Path=/dash; Secure"');
    await browser.allowScripts(allowed);
    const before = setup.upstream.requests.length;
    try {
      await browser.open(`${APP}/dash`);
      await browser.until(
        'document.querySelector("p.notice")?.innerText.includes("sent you back here") === true',
      );
      assert.equal(await browser.run('return location.origin'), LOGIN);
      assert.equal(setup.upstream.requests.length, before);
    } finally {
      await browser.allowScripts(true);
    }
  }
});

test('the button for the last page shows no page of the account after a sign-out', async () => {
  const { username } = await setup.addMember();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(username);
  await browser.until('location.pathname === "/account"');
  await browser.clickOn('form[action="/logout"] button');
  await browser.until('location.pathname === "/login"');
  await browser.back();
  await browser.until('document.querySelector("#password")?.checkVisibility() === true');
  assert.doesNotMatch(await browser.run('return document.body.innerText'), new RegExp(username));
});
