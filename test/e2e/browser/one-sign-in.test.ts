/**
 * One sign-in for the three services without a proxy, as `make start` sets it up: on the ports of
 * one host. Its pictures are those of the documents, and show the services in use.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ADMIN_PASSWORD, ask, launch, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { freePorts } from '../../support/ports.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { checkPage, setViewport } from './accessibility.ts';
import { startBrowser } from './browsers.ts';
import { checkAfterEach, saveScreenshot } from './setup.ts';

const [IDENTITY_PORT = '', SECRETS_PORT = '', WEBHOOK_PORT = ''] = await freePorts(3);
const ACCOUNT = `http://localhost:${IDENTITY_PORT}`;
const SHARE = `http://localhost:${SECRETS_PORT}`;
const INBOX = `http://localhost:${WEBHOOK_PORT}`;
/** Takes an order at the third attempt, never an invoice, and everything else at once. */
const target = await startRecorder({ after });
target.answer((response, { body }) => {
  const attempts = target.received.filter((earlier) => earlier.body === body).length;
  if (body.includes('order.paid') && attempts < 3) reply(503, 'busy')(response);
  else if (body.includes('invoice.')) reply(422, 'unknown currency')(response);
  else reply(200, '')(response);
});
await launch(['identity', 'secrets', 'webhook'], {
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
const send = async (body: object) =>
  (await ask('POST', `${INBOX}/webhook`, { bearer: WEBHOOK_TOKEN, body })).status;
for (const event of ['order.paid', 'order.shipped', 'invoice.created', 'page.updated'])
  assert.equal(await send({ event, data: { page_id: event } }), 200);
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

const { untilAt, untilTitle } = browser;
const person = () => browser.text('person');
const followLink = (label: string) =>
  browser.run(`
    const links = [...document.querySelectorAll('.site-header a, #rows a')];
    links.find((link) => link.textContent === ${JSON.stringify(label)}).click();`);

/**
 * Of a window of this width, for a page of documentation and for a screen of twice as many pixels.
 */
async function takePicture(name: string, width: number): Promise<void> {
  await browser.setViewport(width, 400, 2);
  for (const scheme of ['light', 'dark'] as const) {
    await browser.setColorScheme(scheme);
    await saveScreenshot(browser, `docs-${name}-${scheme}`);
  }
  await setViewport(browser, 'desktop');
}

test('the share page leads to the sign-in and back, which also opens the inbox', async () => {
  await browser.load(`${SHARE}/`);
  await browser.untilVisible('sign-in');
  assert.equal(await person(), '');
  await browser.click('sign-in');
  await untilTitle('Sign in');
  await takePicture('sign-in', 640);
  await browser.fill('username', 'admin');
  await browser.fill('password', ADMIN_PASSWORD);
  await browser.clickOn('form[action="/login"] button[type=submit]');
  await untilAt(`${SHARE}/`);
  await browser.untilText('person', /^admin$/);
  await browser.fill('secret', 'hunter2 is not enough');
  await browser.click('submit');
  await browser.untilVisible('link');
  assert.match(await browser.value('link'), new RegExp(`^${SHARE}/s/`));
  await takePicture('share', 640);

  await followLink('Inbox');
  await untilAt(`${INBOX}/inbox`);
  await browser.untilText('rows', /page\.updated/);
  assert.equal(await person(), 'admin');
  await followLink('Account');
  await untilAt(`${ACCOUNT}/account`);
  await takePicture('account', 1_000);
  for (const [username, ...groups] of [
    ['ada', 'payroll', 'staff'],
    ['grace', 'staff'],
    ['barbara'],
  ]) {
    const body = { username, email: `${username}@example.org`, password: 'a door code', groups };
    assert.equal((await ask('POST', `${ACCOUNT}/api/user/`, { bearer, body })).status, 201);
  }
  await browser.load(`${ACCOUNT}/account/users`);
  await browser.until('document.body.innerText.includes("payroll")');
  await takePicture('users', 1_180);
});

test('the inbox shows attempts and answers of the target, and which requests were refused', async () => {
  assert.equal(await send({}), 400);
  await browser.load(`${INBOX}/inbox`);
  await browser.untilText('statuses', /dead\s+1\s+done\s+3/);
  await takePicture('inbox', 1_060);
  await browser.untilText('refused-text', /^1 request refused in the last 24 hours$/);
  await browser.click('refused-text');
  assert.match(await browser.text('refused-list'), /^token first: invalid body, 1 time, the last /);
  await followLink('order.paid');
  await browser.until('document.querySelectorAll("#attempts details").length === 2');
  await browser.run(
    'for (const one of document.querySelectorAll("#attempts details")) one.open = true',
  );
  assert.match(await browser.text('attempts'), /busy/);
  await takePicture('event', 880);
});

test('the landing pages are read by everybody', async () => {
  await browser.load(`${ACCOUNT}/`);
  await checkPage(browser, 'landing-identity');
  await browser.load(`${INBOX}/`);
  await checkPage(browser, 'landing-webhook');
});

test('signing out ends it on all pages at once', async () => {
  await browser.load(`${INBOX}/inbox`);
  await browser.untilText('rows', /page\.updated/);
  await followLink('Sign out');
  await untilAt(`${ACCOUNT}/logout`);
  await browser.clickOn('main form[action="/logout"] button');
  await untilAt(`${ACCOUNT}/login`);
  for (const address of [`${INBOX}/inbox`, `${SHARE}/`]) {
    await browser.load(address);
    await browser.untilVisible('sign-in');
    assert.equal(await person(), '');
  }
});
