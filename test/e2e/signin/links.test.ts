/** An invitation by link behind a real nginx: from the users page to the program. */
import assert from 'node:assert/strict';
import { testsExcept } from '../browser/browsers.ts';
import { KEYS } from '../browser/webdriver.ts';
import { WITHOUT_PASSKEYS } from './passkeys.ts';
import { APP, LOGIN, startSignin } from './setup.ts';

const test = testsExcept([[/a passkey/, WITHOUT_PASSKEYS]]);
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
