/**
 * One sign-in for the three services without a proxy, as `make start` sets it up: on the ports of
 * one host. Its pictures are those of README.md.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ADMIN_PASSWORD, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { freePorts } from '../../support/ports.ts';
import { startBrowser } from './browsers.ts';
import { setViewport } from './accessibility.ts';
import { checkAfterEach, openPage, saveScreenshot } from './setup.ts';

const { url: databaseUrl } = await createDatabase();
const [IDENTITY_PORT = '', SECRETS_PORT = '', WEBHOOK_PORT = ''] = await freePorts(3);
const ACCOUNT = `http://localhost:${IDENTITY_PORT}`;
const SHARE = `http://localhost:${SECRETS_PORT}`;
const INBOX = `http://localhost:${WEBHOOK_PORT}`;
await startGatehouse({ after }, ['identity', 'secrets', 'webhook'], databaseUrl, {
  IDENTITY_PORT,
  SECRETS_PORT,
  WEBHOOK_PORT,
  SIGNIN_PAGES: 'on',
  SHARE_PAGES: 'on',
  INBOX_PAGE: 'on',
  SIGNIN_ORIGIN: ACCOUNT,
  RETURN_ORIGINS: `${SHARE},${INBOX}`,
  SIGNIN_VERIFY_URL: `http://127.0.0.1:${IDENTITY_PORT}/api/auth/verify?redirect=401`,
  INBOX_USERS: 'admin',
  IDENTITY_SECRET: 'identity-secret-for-tests-0123456789abcdef',
  SITE_LINKS: `Account=${ACCOUNT}/account,Share=${SHARE}/,Inbox=${INBOX}/inbox,Sign out=${ACCOUNT}/logout`,
});
for (const event of ['order.paid', 'order.shipped', 'invoice.created', 'page.updated']) {
  const { status } = await ask('POST', `${INBOX}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event, data: { page_id: event } },
  });
  assert.equal(status, 200);
}
const browser = await startBrowser();
checkAfterEach(browser);
await setViewport(browser, 'desktop');

const followLink = (label: string) =>
  browser.run(`
    const links = [...document.querySelectorAll('.site-header a')];
    links.find((link) => link.textContent === ${JSON.stringify(label)}).click();`);
const untilAt = (address: string) => browser.until(`location.href === '${address}'`);
const person = (): Promise<string> =>
  browser.run('return document.getElementById("person").innerText');

async function takePictures(name: string): Promise<void> {
  for (const scheme of ['light', 'dark'] as const) {
    await browser.setColorScheme(scheme);
    await saveScreenshot(browser, `readme-${name}-${scheme}`);
  }
}

test('the share page leads to the sign-in and back, which also opens the inbox', async () => {
  await openPage(browser, `${SHARE}/`);
  await browser.untilVisible('sign-in');
  assert.equal(await person(), '');
  await browser.clickOn('#sign-in');
  await browser.until('document.title.startsWith("Sign in ·")');
  await browser.fill('username', 'admin');
  await browser.fill('password', ADMIN_PASSWORD);
  await browser.clickOn('form[action="/login"] button[type=submit]');
  await untilAt(`${SHARE}/`);
  await browser.untilVisible('person');
  assert.equal(await person(), 'admin');
  await takePictures('share');

  await followLink('Inbox');
  await untilAt(`${INBOX}/inbox`);
  await browser.until('document.getElementById("rows").innerText.includes("page.updated")');
  assert.equal(await person(), 'admin');
  await takePictures('inbox');

  await followLink('Account');
  await untilAt(`${ACCOUNT}/account`);
  await takePictures('account');
});

test('a secret is shared by the signed-in person without a token', async () => {
  await openPage(browser, `${SHARE}/`);
  await browser.untilVisible('person');
  await browser.fill('secret', 'hunter2 is not enough');
  await browser.clickOn('#make button[type=submit]');
  await browser.untilVisible('link');
  assert.match(await browser.value('link'), new RegExp(`^${SHARE}/s/`));
});

test('the inbox says which requests were refused, and why', async () => {
  const refused = { bearer: WEBHOOK_TOKEN, body: { event: '' } };
  assert.equal((await ask('POST', `${INBOX}/webhook`, refused)).status, 400);
  await openPage(browser, `${INBOX}/inbox`);
  await browser.untilVisible('refused-text');
  assert.equal(await browser.text('refused-text'), '1 request refused in the last 24 hours');
  await browser.click('refused-text');
  assert.match(await browser.text('refused-list'), /^token first: invalid body, 1 time, the last /);
});

test('signing out ends it on all pages at once', async () => {
  await openPage(browser, `${INBOX}/inbox`);
  await browser.until('document.getElementById("rows").innerText.includes("page.updated")');
  await followLink('Sign out');
  await untilAt(`${ACCOUNT}/logout`);
  await browser.clickOn('main form[action="/logout"] button');
  await untilAt(`${ACCOUNT}/login`);
  for (const address of [`${INBOX}/inbox`, `${SHARE}/`]) {
    await openPage(browser, address);
    await browser.untilVisible('sign-in');
    assert.equal(await person(), '');
  }
  await openPage(browser, `${ACCOUNT}/logout`);
  await browser.until('document.querySelector("h1").textContent === "You are signed out"');
});
