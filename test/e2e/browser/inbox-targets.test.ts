/** The senders of the inbox page in a real Chromium: their targets, and what was refused. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { ask } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { addToken, openWebhook, WEBHOOK_SECRET } from '../../support/senders.ts';
import { until } from '../../support/until.ts';
import { checkAppearance, setViewport } from './accessibility.ts';
import { drivePage } from './inbox-page.ts';
import { checkAfterEach, focused, setOffline, startChromium } from './setup.ts';
import { KEYS } from './webdriver.ts';

const settings = { INBOX_PAGE: 'on', WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' };
const inbox = await openInbox({ after }, settings);
const database = openWebhook({ after }, inbox.databaseUrl);
const shop = await addToken(database, 'generic');
const github = await addToken(database, 'github');
const target = await startRecorder({ after });
target.answer(reply(200, {}));
const browser = await startChromium();
checkAfterEach(browser);
const { list, untilText } = drivePage(inbox, browser);

async function openSenders(): Promise<void> {
  await list();
  await browser.untilVisible('senders');
  await browser.clickOn('#senders > summary');
  await untilText('sender-rows', /github/);
}

/** Whether the row of this token contains the text. */
const untilRow = (name: string, text: string) =>
  browser.until(`[...document.querySelectorAll('#sender-rows tr')]
    .map((row) => row.innerText.replace(/\\s+/g, ' '))
    .some((row) => row.startsWith('${name} ') && row.includes(${JSON.stringify(text)}))`);

/** The text of the row of the token with this name. */
const rowOf = (name: string): Promise<string> =>
  browser.run(
    `return [...document.querySelectorAll('#sender-rows tr')].map((row) => row.innerText)
      .find((text) => text.startsWith(arguments[0]))?.replace(/\\s+/g, ' ') ?? ''`,
    name,
  );
const choose = (id: string) =>
  browser.run('document.getElementById("target-token").value = arguments[0]', id);

const send = (token: string, event: string) =>
  ask('POST', `${inbox.url}/webhook`, { bearer: token, body: { event, data: { page_id: event } } });

test('a request with a wrong signature is shown at its sender', async () => {
  const refused = await send(github.token, 'push');
  assert.equal(refused.status, 401, refused.text);
  await untilSql(
    async () => (await inbox.call('GET', '/tokens')).text.includes('"refused":1'),
    'it is counted',
  );
  await openSenders();
  assert.match(await rowOf('github'), /the target of the service 1 last: [a-z ]+, /);
  await checkAppearance(browser, 'inbox-senders');
});

test('a target is set by keyboard, gets the chosen events, and is removed again', async () => {
  await setViewport(browser, 'desktop');
  await openSenders();
  await choose(shop.id);
  await browser.fill('target-events', 'push, tag*');
  await browser.fill('target-timeout', '7');
  await browser.click('target-keep');
  await browser.fill('target-url', target.url);
  await browser.press(KEYS.Enter);
  await untilText('target-done', /go to http:\/\/127\.0\.0\.1/);
  await untilRow(
    'generic',
    `${target.url}, only push, tag*, within 7 s, with the sender's signature`,
  );
  assert.equal(await browser.value('target-url'), '', 'the form is empty again');
  await checkAppearance(browser, 'inbox-target-set');
  await send(shop.token, 'issues');
  const { json } = await send(shop.token, 'tagged');
  await until(() => target.received.some(({ headers }) => headers['webhook-id'] === json.id));
  assert.equal(target.received.length, 1);

  assert.equal(await browser.value('target-token'), shop.id, 'the token stays chosen');
  await browser.click('target-default');
  await untilText('target-done', /^Events of generic go to the target of the service/);
  await untilRow('generic', 'the target of the service');
});

test('what is wrong with a target is said, and what was typed is kept', async () => {
  await openSenders();
  await choose(shop.id);
  const wrong = 'http://user@example.org/';
  await browser.fill('target-url', wrong);
  await browser.press(KEYS.Enter);
  await untilText(
    'target-problem',
    /^URL: must be an http or https URL without a user name and without a fragment \(#\)\.$/,
  );
  assert.equal(await browser.value('target-url'), wrong);
  await checkAppearance(browser, 'inbox-target-wrong');
  await browser.fill('target-url', target.url);
  await browser.fill('target-secret', 'short');
  await browser.press(KEYS.Enter);
  await untilText('target-problem', /^Signing secret \(whsec_…\): must /);
  assert.equal(await focused(browser), 'target-secret');
  assert.equal(
    await browser.run('return document.querySelectorAll("[aria-invalid=true]").length'),
    1,
  );
  assert.match(await rowOf('generic'), /the target of the service/);
  await browser.log(); // Chromium itself reports the status 400
});

test('without a connection the page says so, and the next try succeeds', async () => {
  await openSenders();
  await choose(shop.id);
  await browser.fill('target-url', target.url);
  await setOffline(browser, true);
  await browser.press(KEYS.Enter);
  await untilText('target-problem', /./);
  await setOffline(browser, false);
  await browser.log(); // Chromium itself reports the request that failed
  await browser.press(KEYS.Enter);
  await untilText('target-done', /go to http/);
});
