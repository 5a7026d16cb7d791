/** What an operator does on the inbox page in a real Chromium: redeliver, pause, with keys alone. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { OPERATOR_TOKEN } from '../../support/inbox.ts';
import { assertFocusVisible, setViewport } from './accessibility.ts';
import { startBrowser } from './browsers.ts';
import { drivePage, openHeldInbox, putDead, ROWS } from './inbox-page.ts';
import { checkAfterEach, focused, holdFetch, openPage } from './setup.ts';
import { KEYS } from './webdriver.ts';

const inbox = await openHeldInbox();
const { put, sql } = inbox;
const browser = await startBrowser();
const { listRows, show, untilRows, untilText, url } = drivePage(inbox, browser);
await setViewport(browser, 'desktop');
const { Tab, Enter, Escape, Space } = KEYS;
const dead = await putDead(inbox);
// More rows than the one that a filter finds.
await put({ event: 'page.updated', status: 'skipped', age: 100 });

checkAfterEach(browser);

/** Puts the dead event back to how it was. */
async function reset(): Promise<void> {
  await untilSql(
    async () => (await sql`select from webhook.work where lease is not null`).length === 0,
    'no attempt',
  );
  await sql`delete from webhook.work where event_id = ${dead}`;
  await sql`delete from webhook.failures where event_id = ${dead} and run > 1`;
  await sql`
    insert into webhook.outcomes (event_id, status, attempts) values (${dead}, 'dead', 3)
    on conflict (event_id) do update
    set status = 'dead', attempts = 3, run = 1, answer = null, answer_status = null`;
}

test('a first-time user enters the token, finds a failed event and redelivers it in four actions', async () => {
  await openPage(browser, `${url}/inbox`);
  browser.takeActions();
  await browser.fill('token', OPERATOR_TOKEN);
  await browser.click('open');
  await browser.until('/dead\\s+1/.test(document.getElementById("status-dead")?.innerText)');
  await browser.click('status-dead');
  await untilRows(1);
  await browser.clickOn('#rows button');
  assert.equal(browser.takeActions(), 4);
  // It is no longer among the failed ones.
  await untilRows(0);
  await untilSql(
    async () =>
      (
        await sql`
    select from webhook.outcomes where event_id = ${dead} and status = 'done' and run = 2`
      ).length === 1,
    'a redelivery',
  );
  await reset();
});

test('from the open list, a look at the failed event and its redelivery take three actions', async () => {
  await listRows();
  browser.takeActions();
  await browser.click('status-dead');
  await untilRows(1);
  await browser.clickOn('#rows a');
  await browser.untilVisible('again');
  await browser.click('again');
  assert.equal(browser.takeActions(), 3);
  await untilText('one-badge', /^done$/);
  await untilText('attempts', /Redelivery 1[\s\S]*delivered[\s\S]*First delivery/);
  await reset();
});

test('without a connection, each action says so at its place, and is repeated by hand', async () => {
  const offline = /The service did not answer\. Check the connection/;
  const errorsAt = (id: string) =>
    browser.run(`return document.getElementById(arguments[0]).innerText`, id);
  await listRows('?status=dead');
  await browser.setOffline(true);
  await browser.clickOn('#rows button');
  await browser.until(`${offline}.test(document.querySelector('#rows .error').innerText)`);
  await browser.click('pause');
  await untilText('pause-problem', offline);
  await browser.click('again-all');
  await untilText('bulk-text', offline);
  await browser.setOffline(false);
  // What is read again by itself takes back its own message only.
  await browser.until('document.getElementById("list-problem").hidden');
  assert.match(await errorsAt('pause-problem'), offline);
  assert.match(await errorsAt('bulk-text'), offline);
  await show(dead);
  await browser.setOffline(true);
  await browser.click('again');
  await untilText('action-problem', offline);
  await browser.setOffline(false);
  await browser.until('document.getElementById("one-problem").hidden');
  assert.match(await errorsAt('action-problem'), offline);
  assert.equal((await sql`select from webhook.pause`).length, 0);
  assert.equal(
    (await sql`select from webhook.outcomes where event_id = ${dead} and status = 'dead'`).length,
    1,
  );
});

test('selected events, or all that match, are redelivered after a confirmation of their number', async () => {
  const ids = await Promise.all(
    [1, 2, 3].map(() => put({ event: 'bulk', status: 'dead', attempts: 3, age: 8 })),
  );
  const done = async () =>
    (
      await sql`
    select from webhook.outcomes where event_id in ${sql(ids)} and status = 'done'`
    ).length;
  await listRows('?event=bulk');
  await untilRows(3);
  await browser.clickOn('#rows input');
  await browser.click('again-selected');
  await untilText('bulk-text', /^Redeliver 1 event\?/);
  await browser.click('bulk-no');
  assert.equal(await done(), 0);
  await browser.click('again-selected');
  await browser.click('bulk-yes');
  await untilText('bulk-text', /^1 event will be delivered again\.$/);
  assert.equal(await browser.text('bulk-no'), 'Close');
  await untilSql(async () => (await done()) === 1, 'one is delivered');
  await browser.click('again-all');
  await untilText('bulk-text', /^Redeliver 3 events\?/);
  assert.equal(await done(), 1, 'not before the confirmation');
  // Batches without an end: a cancelled loop must not go on while another one counts.
  await browser.run(`
    window.realFetch = fetch;
    window.batches = [];
    window.answers = 0;
    window.fetch = async (address, options) => {
      const isBatch = String(address).endsWith('/events/redeliver');
      if (!isBatch || JSON.parse(options.body).dry_run) return realFetch(address, options);
      await new Promise((resolve) => batches.push(resolve));
      const answer = new Response('', { headers: { 'content-type': 'application/json' } });
      answer.json = async () => {
        setTimeout(() => { window.answers += 1; }); // by then, the page has used the answer
        return { data: { matched: 1, redelivered: 1, next: 'more' } };
      };
      return answer;
    };`);
  await browser.click('bulk-yes');
  await browser.until('batches.length === 1');
  await browser.click('bulk-no');
  await browser.click('again-all');
  await untilText('bulk-text', /^Redeliver 3 events\?/);
  await browser.run('batches[0]()');
  await browser.until('answers === 1');
  assert.equal(await browser.run('return batches.length'), 1);
  assert.match(await browser.text('bulk-text'), /^Redeliver 3 events\?/);
  await browser.run('window.fetch = realFetch');
  await browser.click('bulk-yes');
  await untilText('bulk-text', /^3 events will be delivered again\.$/);
  await untilSql(async () => (await done()) === 3, 'all are delivered');
  await browser.until(`${ROWS}.every((row) => row.innerText.includes('done'))`);
  await sql`delete from webhook.events where event = 'bulk'`;
});

test('a count that ends late leaves the question in place, and two clicks send once', async () => {
  const ids = await Promise.all(
    [1, 2].map(() => put({ event: 'late', status: 'dead', attempts: 3, age: 8 })),
  );
  await listRows('?event=late');
  await untilRows(2);
  await holdFetch(browser, '/events/redeliver');
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
  await sql`delete from webhook.events where id in ${sql(ids)}`;
});

test('delivery can be paused and resumed; a banner says so', async () => {
  await listRows();
  await browser.click('pause');
  await untilText('held', /^Delivery has been paused since .* by an operator\./);
  assert.equal((await sql`select from webhook.pause`).length, 1);
  await browser.click('pause');
  await browser.until('document.getElementById("held").hidden');
  assert.equal((await sql`select from webhook.pause`).length, 0);
  await untilText('target', /^Delivered to: command [^.]*\.$/);
});

test('the keyboard alone operates the page', async () => {
  await openPage(browser, `${url}/inbox`);
  await browser.press(Tab, Tab, Tab, ...OPERATOR_TOKEN, Enter);
  await untilRows(2);
  await browser.press('/', ...'not markup');
  await untilRows(1);
  await browser.press(Tab, 'j');
  assert.equal(
    await browser.run('return document.activeElement.tagName'),
    'INPUT',
    'letters in a field are text',
  );
  await untilRows(0);
  await browser.fill('by-event', '');
  await browser.run('document.activeElement.blur()');
  await untilRows(1);
  await browser.press('j');
  await assertFocusVisible(browser, 'the link of the row');
  await browser.press(Enter);
  await browser.untilVisible('again');
  await browser.press(Tab);
  assert.equal(await focused(browser), 'again');
  await browser.press(Space);
  await untilText('one-badge', /^done$/);
  await browser.press(Escape);
  await browser.untilVisible('list');
  assert.equal(new URL(await browser.address()).search, '?text=not+markup');
  await reset();
});
