/** The senders on the inbox page, in a real Chromium: made, set up, changed, tested and revoked. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { ask } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { addToken, openWebhook, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';
import { checkAppearance, setViewport } from './accessibility.ts';
import { drivePage } from './inbox-page.ts';
import { startBrowser } from './browsers.ts';
import { checkAfterEach, focused } from './setup.ts';
import { KEYS } from './webdriver.ts';

const settings = { INBOX_PAGE: 'on', WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' };
const inbox = await openInbox({ after }, settings);
const database = openWebhook({ after }, inbox.databaseUrl);
const github = await addToken(database, 'github', SIGNING_SECRETS.github);
const target = await startRecorder({ after });
target.answer(reply(200, { thanks: true }));
const browser = await startBrowser();
checkAfterEach(browser);
const { list, untilText } = drivePage(inbox, browser);

const untilProblemOf = (id: string, pattern: RegExp) =>
  browser.until(`${pattern}.test(document.getElementById('${id}-error')?.innerText)`);
const choose = (id: string, value: string) =>
  browser.run(
    `const field = document.getElementById(arguments[0]);
    field.value = arguments[1];
    field.dispatchEvent(new Event('change'));`,
    id,
    value,
  );
const open = async (id: string) => {
  await setViewport(browser, 'desktop');
  await list(`?sender=${id}`);
  await browser.untilVisible('sender-found');
};

test('a sender is made, its address is shown once, and it sends', async () => {
  await setViewport(browser, 'desktop');
  await list('?view=senders');
  await untilText('sender-rows', /github/);
  await checkAppearance(browser, 'inbox-senders');
  await setViewport(browser, 'desktop');
  await browser.click('create-open');
  assert.equal(await focused(browser), 'create-name');
  await browser.press(KEYS.Enter);
  await untilProblemOf('create-name', /must not be empty/);
  await choose('create-source', 'stripe');
  await browser.fill('create-name', 'payments');
  await browser.press(KEYS.Enter);
  await untilProblemOf('create-secret', /is needed for source stripe/);
  assert.equal(await browser.value('create-name'), 'payments', 'what was typed is kept');
  await checkAppearance(browser, 'inbox-sender-wrong');
  await setViewport(browser, 'desktop');
  await choose('create-source', 'custom');
  assert.equal(await browser.isVisible('create-custom'), true);
  await choose('create-source', 'generic');
  await browser.click('create');
  await browser.untilVisible('made');
  const token = await browser.value('made-token');
  assert.match(await browser.value('made-address'), new RegExp(`/webhook\\?token=${token}$`));
  assert.ok(!(await browser.address()).includes(token));
  await checkAppearance(browser, 'inbox-sender-made');
  const body = { event: 'paid', data: { page_id: 'p' } };
  assert.equal((await ask('POST', `${inbox.url}/webhook`, { bearer: token, body })).status, 200);
  await browser.clickOn('#to-list');
  await untilText('rows', /paid/);
  await browser.back();
  await browser.untilVisible('sender-found');
  assert.equal(await browser.isVisible('made'), false, 'it is not shown again');
  await browser.log(); // Chromium itself reports the status 400
});

test('a target is filled in, changed, tested and removed, and keeps what is not changed', async () => {
  await open(github.id);
  await browser.fill('target-events', 'push, tag*');
  await browser.fill('target-timeout', 'soon');
  await browser.fill('target-url', 'http://user@example.org/');
  await browser.press(KEYS.Enter);
  await untilProblemOf('target-url', /without a user name/);
  await untilProblemOf('target-timeout', /whole number|integer/);
  await browser.fill('target-timeout', '7');
  await browser.fill('target-url', `${target.url}/hook`);
  await choose('target-signing', 'set');
  await browser.fill('target-secret', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
  await browser.press(KEYS.Enter);
  await untilText('sender-done', /The target is saved/);
  await untilText('target-state', /\/hook\. Gatehouse signs its requests\./);
  assert.equal(await browser.value('target-url'), `${target.url}/hook`);
  await browser.fill('target-url', `${target.url}/other`);
  await browser.press(KEYS.Enter);
  await untilText('target-state', /\/other\. Gatehouse signs its requests\./);
  assert.equal(await browser.value('target-events'), 'push, tag*');
  await browser.click('target-test');
  await untilText('test', /delivered[\s\S]*status 200[\s\S]*thanks/);
  assert.ok(target.received.at(-1)?.headers['webhook-signature']);
  await checkAppearance(browser, 'inbox-sender');
  await setViewport(browser, 'desktop');
  await browser.click('target-default');
  await untilText('target-state', /^The target of the service/);
  await browser.log(); // Chromium itself reports the status 400
});

test('a refused request is shown with its header and address, and a token is replaced', async () => {
  const refused = await ask('POST', `${inbox.url}/webhook`, { bearer: github.token, body: {} });
  assert.equal(refused.status, 401);
  await untilSql(
    async () => (await inbox.call('GET', '/tokens')).text.includes('"refused":1'),
    'it is counted',
  );
  await open(github.id);
  await untilText('sender-facts', /127\.0\.0\.1: The request lacks the header x-hub-signature-256/);
  await browser.setOffline(true);
  await browser.clickOn('#rotate-form button');
  await untilText('rotate-problem', /did not answer/);
  await browser.setOffline(false);
  await browser.log(); // Chromium itself reports the request that failed
  await browser.clickOn('#rotate-form button');
  await browser.untilVisible('made');
  assert.equal(await focused(browser), 'made-text');
  await browser.fill('rename-name', 'deploys');
  await browser.press(KEYS.Enter);
  await untilText('sender-heading', /^deploys$/);
  await browser.clickOn('#revoke > summary');
  await browser.clickOn('#revoke-form button');
  await browser.untilVisible('senders');
  await browser.until('!document.getElementById("sender-rows").innerText.includes("deploys")');
});

test('on a small laptop, the list shows events without scrolling', async () => {
  await list();
  await untilText('rows', /paid/);
  const laptop = { width: 1366, height: 657, deviceScaleFactor: 1, mobile: false };
  await browser.setViewport(laptop);
  const top: number = await browser.run(
    'return document.querySelector("#rows tr").getBoundingClientRect().bottom',
  );
  assert.ok(top < 657, `the first event ends at ${top}`);
});
