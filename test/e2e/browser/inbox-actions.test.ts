/**
 * What an operator does on the inbox page in a real browser: redeliver, pause, with keys alone, and
 * make, set up, test and revoke senders.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { ask } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { addToken, openWebhook, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';
import { checkPage } from './accessibility.ts';
import { openInboxPage, ROWS } from './inbox-page.ts';
import { KEYS } from './webdriver.ts';

const inbox = await openInboxPage({ WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' });
const { browser, list, listRows, put, show, sql, untilRows, url } = inbox;
const { untilText } = browser;
const github = await addToken(
  openWebhook({ after }, inbox.databaseUrl),
  'github',
  SIGNING_SECRETS.github,
);
const target = await startRecorder({ after });
target.answer(reply(200, { thanks: true }));
const { Tab, Enter, Escape, Space } = KEYS;
let dead = await inbox.putDead();
// More rows than the one that a filter finds.
await put({ event: 'page.updated', status: 'skipped', age: 100 });

/** How many of these events were delivered. */
async function countDone(ids: readonly string[]) {
  const done = sql`event_id in ${sql(ids)} and status = 'done'`;
  return (await sql`select from webhook.outcomes where ${done}`).length;
}
const putFailed = (event: string, count: number) =>
  Promise.all(
    Array.from({ length: count }, () => put({ event, status: 'dead', attempts: 3, age: 8 })),
  );

/** Puts another dead event in the place of the one that was redelivered. */
async function reset(): Promise<void> {
  await inbox.untilNoAttempt();
  await sql`delete from webhook.events where id = ${dead}`;
  dead = await inbox.putDead();
}

test('a failed event is found and redelivered in the list', async () => {
  await listRows('', 2);
  await browser.until('/dead\\s+1/.test(document.getElementById("status-dead")?.innerText)');
  await browser.click('status-dead');
  await untilRows(1);
  await browser.clickOn('#rows button');
  // It is no longer among the failed ones.
  await untilRows(0);
  await untilSql(async () => (await countDone([dead])) === 1, 'a redelivery');
  await reset();
});

test('without a connection, each action says so at its place, and is repeated by hand', async () => {
  const offline = /The service did not answer\. Check the connection/;
  await listRows('?status=dead', 1);
  await browser.setOffline(true);
  await untilText('list-problem', offline);
  await checkPage(browser, 'inbox-offline');
  await browser.clickOn('#rows button');
  await browser.until(`${offline}.test(document.querySelector('#rows .error').innerText)`);
  await browser.click('pause');
  await untilText('pause-problem', offline);
  await browser.click('again-all');
  await untilText('bulk-text', offline);
  await browser.setOffline(false);
  // What is read again by itself takes back its own message only.
  await browser.until('document.getElementById("list-problem").hidden');
  assert.match(await browser.text('pause-problem'), offline);
  assert.match(await browser.text('bulk-text'), offline);
  await show(dead);
  await browser.setOffline(true);
  await browser.click('again');
  await untilText('action-problem', offline);
  await untilText('one-problem', offline);
  await browser.setOffline(false);
  await browser.until('document.getElementById("one-problem").hidden');
  assert.match(await browser.text('action-problem'), offline);
  assert.equal((await sql`select from webhook.pause`).length, 0);
  assert.equal(await countDone([dead]), 0);
});

test('selected events, or all that match, are redelivered after a confirmation of their number', async () => {
  const ids = await putFailed('bulk', 3);
  await listRows('?event=bulk', 3);
  await browser.clickOn('#rows input');
  await browser.click('again-selected');
  await untilText('bulk-text', /^Redeliver 1 event\?/);
  await checkPage(browser, 'inbox-confirm');
  await browser.click('bulk-no');
  assert.equal(await countDone(ids), 0);
  await browser.click('again-selected');
  await browser.click('bulk-yes');
  await untilText('bulk-text', /^1 event will be delivered again\.$/);
  await untilSql(async () => (await countDone(ids)) === 1, 'one is delivered');
  await browser.click('again-all');
  await untilText('bulk-text', /^Redeliver 3 events\?/);
  assert.equal(await countDone(ids), 1, 'not before the confirmation');
  // Batches without an end: a cancelled loop must not go on while another one counts.
  await browser.holdFetch(
    `address.endsWith('/events/redeliver') && !JSON.parse(options.body).dry_run`,
    { data: { matched: 1, redelivered: 1, next: 'more' } },
  );
  await browser.click('bulk-yes');
  await browser.until('held.length === 1');
  await browser.click('bulk-no');
  await browser.click('again-all');
  await untilText('bulk-text', /^Redeliver 3 events\?/);
  await browser.run('held[0]()');
  await browser.until('answers === 1');
  assert.equal(await browser.run('return held.length'), 1);
  assert.match(await browser.text('bulk-text'), /^Redeliver 3 events\?/);
  await browser.run('window.fetch = realFetch');
  await browser.click('bulk-yes');
  await untilText('bulk-text', /^3 events will be delivered again\.$/);
  await untilSql(async () => (await countDone(ids)) === 3, 'all are delivered');
  await browser.until(`${ROWS}.every((row) => row.innerText.includes('done'))`);
  await sql`delete from webhook.events where event = 'bulk'`;
});

test('a count that ends late leaves the question in place, and two clicks send once', async () => {
  await putFailed('late', 2);
  await listRows('?event=late', 2);
  await browser.holdFetch(`address.endsWith('/events/redeliver')`);
  await browser.click('again-all');
  await browser.until('held.length === 1');
  await browser.clickOn('#rows input');
  await browser.click('again-selected');
  await browser.run('held[0]()');
  await browser.until('answers === 1');
  await untilText('bulk-text', /^Redeliver 1 event\?/);
  await browser.run(`
    const yes = document.getElementById('bulk-yes');
    yes.click();
    yes.click();`);
  assert.equal(await browser.isEnabled('bulk-yes'), false);
  assert.equal(await browser.run('return held.length'), 2);
  await browser.run('held[1]()');
  await untilText('bulk-text', /^1 event will be delivered again\.$/);
  await inbox.untilNoAttempt();
  await sql`delete from webhook.events where event = 'late'`;
});

test('the keyboard alone operates the page', async () => {
  await browser.load(`${url}/inbox`);
  await browser.press(Tab, Tab, Tab, ...OPERATOR_TOKEN, Enter);
  await untilRows(2);
  await browser.press('/', ...'not markup');
  await untilRows(1);
  await browser.press(Tab, 'j');
  // Letters in a field are text.
  assert.equal(await browser.run('return document.activeElement.tagName'), 'INPUT');
  await untilRows(0);
  await browser.fill('by-event', '');
  await browser.run('document.activeElement.blur()');
  await untilRows(1);
  await browser.press('j', Enter);
  await browser.untilVisible('again');
  await browser.press(Tab);
  assert.equal(await browser.focused(), 'again');
  await browser.press(Space);
  await untilText('one-badge', /^done$/);
  await untilText('attempts', /Redelivery 1[\s\S]*delivered[\s\S]*First delivery/);
  await browser.press(Escape);
  await browser.untilVisible('list');
  assert.equal(new URL(await browser.address()).search, '?text=not+markup');
  await reset();
});

const choose = (id: string, value: string) =>
  browser.run(
    `const field = document.getElementById(arguments[0]);
    field.value = arguments[1];
    field.dispatchEvent(new Event('change'));`,
    id,
    value,
  );
const openSender = async (id: string) => {
  await list(`?sender=${id}`);
  await browser.untilVisible('sender-found');
};

test('a sender is made, its address is shown once, and it sends', async () => {
  await list('?view=senders');
  await untilText('sender-rows', /github/);
  await checkPage(browser, 'inbox-senders');
  await browser.click('create-open');
  assert.equal(await browser.focused(), 'create-name');
  await browser.press(Enter);
  await untilText('create-name-error', /must not be empty/);
  await choose('create-source', 'stripe');
  await browser.fill('create-name', 'payments');
  await browser.press(Enter);
  await untilText('create-secret-error', /is needed for source stripe/);
  assert.equal(await browser.value('create-name'), 'payments', 'what was typed is kept');
  await choose('create-source', 'custom');
  assert.equal(await browser.isVisible('create-custom'), true);
  await choose('create-source', 'generic');
  await browser.click('create');
  await browser.untilVisible('made');
  const token = await browser.value('made-token');
  assert.match(await browser.value('made-address'), new RegExp(`/webhook\\?token=${token}$`));
  assert.ok(!(await browser.address()).includes(token));
  await checkPage(browser, 'inbox-sender-made');
  const body = { event: 'paid', data: { page_id: 'p' } };
  assert.equal((await ask('POST', `${inbox.url}/webhook`, { bearer: token, body })).status, 200);
  await browser.clickOn('#to-list');
  await untilText('rows', /paid/);
  await browser.back();
  await browser.untilVisible('sender-found');
  assert.equal(await browser.isVisible('made'), false, 'it is not shown again');
  await sql`delete from webhook.events where event = 'paid'`;
});

test('a target is filled in, changed, tested and removed, and keeps what is not changed', async () => {
  await openSender(github.id);
  await browser.fill('target-events', 'push, tag*');
  await browser.fill('target-timeout', 'soon');
  await browser.fill('target-url', 'http://user@example.org/');
  await browser.press(Enter);
  await untilText('target-url-error', /without a user name/);
  await untilText('target-timeout-error', /whole number|integer/);
  await browser.fill('target-timeout', '7');
  await browser.fill('target-url', `${target.url}/hook`);
  await choose('target-signing', 'set');
  await browser.fill('target-secret', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
  await browser.press(Enter);
  await untilText('sender-done', /The target is saved/);
  await untilText('target-state', /\/hook\. Gatehouse signs its requests\./);
  await browser.fill('target-url', `${target.url}/other`);
  await browser.press(Enter);
  await untilText('target-state', /\/other\. Gatehouse signs its requests\./);
  assert.equal(await browser.value('target-events'), 'push, tag*');
  await browser.click('target-test');
  await untilText('test', /delivered[\s\S]*status 200[\s\S]*thanks/);
  assert.ok(target.received.at(-1)?.headers['webhook-signature']);
  await checkPage(browser, 'inbox-sender', 'desktop');
  await browser.click('target-default');
  await untilText('target-state', /^The target of the service/);
});

test('a refused request is shown with its header and address, and a token is replaced', async () => {
  const refused = await ask('POST', `${inbox.url}/webhook`, { bearer: github.token, body: {} });
  assert.equal(refused.status, 401);
  await untilSql(
    async () => (await inbox.call('GET', '/tokens')).text.includes('"refused":1'),
    'it is counted',
  );
  await openSender(github.id);
  await untilText('sender-facts', /127\.0\.0\.1: The request lacks the header x-hub-signature-256/);
  await browser.setOffline(true);
  await browser.clickOn('#rotate-form button');
  await untilText('rotate-problem', /did not answer/);
  await browser.setOffline(false);
  await browser.clickOn('#rotate-form button');
  await browser.untilVisible('made');
  assert.equal(await browser.focused(), 'made-text');
  await browser.fill('rename-name', 'deploys');
  await browser.press(Enter);
  await untilText('sender-heading', /^deploys$/);
  await browser.clickOn('#revoke > summary');
  await browser.clickOn('#revoke-form button');
  await browser.untilVisible('senders');
  await browser.until('!document.getElementById("sender-rows").innerText.includes("deploys")');
});
