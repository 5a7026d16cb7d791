/**
 * One sign-in for the three services without a proxy, as `make start` sets it up: on the ports of
 * one host. Its pictures are those of the documents, and show the services in use.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ADMIN_PASSWORD, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { freePorts } from '../../support/ports.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { startBrowser } from './browsers.ts';
import { setViewport } from './accessibility.ts';
import { checkAfterEach, openPage, saveScreenshot } from './setup.ts';

const { url: databaseUrl } = await createDatabase();
const [IDENTITY_PORT = '', SECRETS_PORT = '', WEBHOOK_PORT = ''] = await freePorts(3);
const ACCOUNT = `http://localhost:${IDENTITY_PORT}`;
const SHARE = `http://localhost:${SECRETS_PORT}`;
const INBOX = `http://localhost:${WEBHOOK_PORT}`;
/** Takes an order at the third attempt, never an invoice, and everything else at once. */
const target = await startRecorder({ after });
target.answer((response, { body }) => {
  const isSame = ({ body: earlier }: Readonly<{ body: string }>) => earlier === body;
  const attempts = target.received.filter(isSame).length;
  if (body.includes('order.paid') && attempts < 3) reply(503, 'busy')(response);
  else if (body.includes('invoice.')) reply(422, 'unknown currency')(response);
  else reply(200, '')(response);
});
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
  WEBHOOK_FORWARD_URL: `${target.url}/hook`,
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  WEBHOOK_RETRY_SCHEDULE: '200ms,400ms',
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
// The session of another browser.
const login = await ask('POST', `${ACCOUNT}/api/auth/login`, {
  body: { username: 'admin', password: ADMIN_PASSWORD },
  headers: {
    'user-agent': 'Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:140.0) Firefox/140.0',
  },
});
const bearer: string = login.json.data.session;
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

/** Of a window of this width, for a page of documentation and for a screen of twice as many pixels. */
async function takePicture(name: string, width: number): Promise<void> {
  await browser.setViewport({ width, height: 400, deviceScaleFactor: 2, mobile: false });
  for (const scheme of ['light', 'dark'] as const) {
    await browser.setColorScheme(scheme);
    await saveScreenshot(browser, `docs-${name}-${scheme}`);
  }
  await setViewport(browser, 'desktop');
}

test('the share page leads to the sign-in and back, which also opens the inbox', async () => {
  await openPage(browser, `${SHARE}/`);
  await browser.untilVisible('sign-in');
  assert.equal(await person(), '');
  await browser.clickOn('#sign-in');
  await browser.until('document.title.startsWith("Sign in ·")');
  await takePicture('sign-in', 640);
  await browser.fill('username', 'admin');
  await browser.fill('password', ADMIN_PASSWORD);
  await browser.clickOn('form[action="/login"] button[type=submit]');
  await untilAt(`${SHARE}/`);
  await browser.untilVisible('person');
  assert.equal(await person(), 'admin');

  await followLink('Inbox');
  await untilAt(`${INBOX}/inbox`);
  await browser.until('document.getElementById("rows").innerText.includes("page.updated")');
  assert.equal(await person(), 'admin');

  await followLink('Account');
  await untilAt(`${ACCOUNT}/account`);
  await takePicture('account', 1_000);
});

test('the users page lists users with their groups', async () => {
  for (const [username, groups] of [
    ['ada', ['payroll', 'staff']],
    ['grace', ['staff']],
    ['barbara', []],
  ] as const) {
    const body = { username, email: `${username}@example.org`, password: 'a door code', groups };
    assert.equal((await ask('POST', `${ACCOUNT}/api/user/`, { bearer, body })).status, 201);
  }
  await openPage(browser, `${ACCOUNT}/account/users`);
  await browser.until('document.body.innerText.includes("payroll")');
  await takePicture('users', 1_180);
});

test('a secret is shared by the signed-in person without a token', async () => {
  await openPage(browser, `${SHARE}/`);
  await browser.untilVisible('person');
  await browser.fill('secret', 'hunter2 is not enough');
  await browser.clickOn('#make button[type=submit]');
  await browser.untilVisible('link');
  assert.match(await browser.value('link'), new RegExp(`^${SHARE}/s/`));
  await takePicture('share', 640);
});

test('the inbox shows the attempts at an event, and what the target answered', async () => {
  await openPage(browser, `${INBOX}/inbox`);
  const statuses = '[...document.querySelectorAll("#rows tr")].map((row) => row.innerText)';
  await browser.until(`${statuses}.filter((row) => row.includes("done")).length === 3`);
  await browser.until(`${statuses}.filter((row) => row.includes("dead")).length === 1`);
  await takePicture('inbox', 1_060);
  await browser.run(`
    const links = [...document.querySelectorAll('#rows a')];
    links.find((link) => link.textContent === 'order.paid').click();`);
  await browser.until('document.querySelectorAll("#attempts details").length === 2');
  await browser.run(
    'for (const one of document.querySelectorAll("#attempts details")) one.open = true',
  );
  assert.match(await browser.text('attempts'), /busy/);
  await takePicture('event', 880);
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
