/** What browsers do to a sign-in behind a real nginx: fragments, and the back button. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { APP, LOGIN, startSignin } from './setup.ts';

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
  await setup.passCode(secret);
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
