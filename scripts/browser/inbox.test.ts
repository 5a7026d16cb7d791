/** The inbox page in a real Chromium: what an operator sees, keyboard, contrast, small screens. */
import assert from 'node:assert/strict';
import { after, afterEach, test } from 'node:test';
import { WEBHOOK_TOKEN } from '../../test/support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../test/support/inbox.ts';
import { untilSql } from '../../test/support/connections.ts';
import {
  assertFocusVisible, checkAppearance, enlargeText, openState, overflowing, type PageState,
} from './accessibility.ts';
import { checkAfterEach, clearProblem, focused, openPage, startChromium, untilProblem } from './setup.ts';
import { KEYS } from './webdriver.ts';

const inbox = await openInbox({ after }, {
  INBOX_PAGE: 'on',
  WEBHOOK_COMMAND: JSON.stringify([process.execPath, '-e', 'process.exit(0)']),
  // New events are not delivered: only a redelivery is.
  WEBHOOK_EVENTS: 'none',
});
const url = inbox.url.replace('127.0.0.1', 'localhost');
const { put, send, sql } = inbox;
const browser = await startChromium();
const { Tab, Enter, Shift, Space } = KEYS;

const LONG = `order.${'a-very-long-name-'.repeat(12)}`;
const body = '{\n  "event": "push",\n  "data": { "page_id": "<b>not markup</b> 名前" }\n}';
const errors = ['the target answered 500', 'the target answered 502', `the target answered ${'x'.repeat(200)}`];
const dead = await put({
  event: 'push', source: 'github', status: 'dead', attempts: 3, deliveryId: 'msg_dead', body, age: 20, errors,
});
await put({ event: '<img src=x onerror=alert(1)>', status: 'done', attempts: 1, age: 30 });
await put({ event: LONG, status: 'waiting', attempts: 1, age: 10, errors: ['was busy'] });
for (let i = 0; i < 45; i += 1) await put({ event: 'page.updated', status: 'skipped', age: 100 + i * 3 });

afterEach(async () => {
  await browser.run('const live = document.getElementById("live"); if (live?.checked) live.click()');
});
checkAfterEach(browser);

/** The buttons of the list, one for each event. */
const BUTTONS = '[...document.querySelectorAll("#events button")]';
const listed = (): Promise<string[]> => browser.run(`return ${BUTTONS}.map((button) => button.innerText)`);
const isListed = async (text: string): Promise<boolean> => (await listed()).some((event) => event.includes(text));
const untilListed = (text: string) =>
  browser.until(`${BUTTONS}.some((button) => button.innerText.includes(${JSON.stringify(text)}))`);
const untilStatus = (pattern: RegExp) => browser.until(`${pattern}.test(document.getElementById('status').innerText)`);
const clickFirst = (text: string) =>
  browser.run(`${BUTTONS}.find((button) => button.innerText.includes(arguments[0])).click()`, text);

async function list(token = OPERATOR_TOKEN): Promise<void> {
  await openPage(browser, `${url}/inbox`);
  await browser.fill('token', token);
  await browser.click('submit');
}

/** Opens the first event of the list that contains this text. */
async function show(text: string): Promise<void> {
  await untilListed(text);
  await clickFirst(text);
  await browser.untilVisible('one');
}

test('events are listed newest first, 20 at a time, to the last', async () => {
  await list();
  await untilStatus(/^20 events listed\.$/);
  const [first = '', second = '', third = ''] = await listed();
  assert.ok(first.includes(LONG) && first.endsWith('waiting, was busy'));
  assert.match(second, / – push \(github\): dead, the target answered x+$/);
  assert.match(third, / – <img src=x onerror=alert\(1\)> \(generic\): done$/);
  await browser.click('more');
  await untilStatus(/^40 events/);
  await browser.click('more');
  await untilStatus(/^48 events/);
  assert.equal(await browser.isVisible('more'), false);
  assert.equal(new Set(await listed()).size, 48);
});

test('filters by status and name apply to every page', async () => {
  await list();
  await browser.run('document.getElementById("of-status").value = "skipped"');
  await browser.fill('of-event', ' page.* ');
  await browser.press(Enter);
  const isSkipped = '(button) => button.innerText.includes("skipped")';
  await browser.until(`${BUTTONS}.length === 20 && ${BUTTONS}.every(${isSkipped})`);
  await browser.click('more');
  await untilStatus(/^40 events/);
  await browser.click('more');
  await untilStatus(/^45 events/);
  await browser.fill('of-event', 'no such name');
  await browser.click('submit');
  await untilStatus(/^No events match\.$/);
  assert.deepEqual([await listed(), await browser.isVisible('more')], [[], false]);
});

test('a missing, wrong or sender token is reported', async () => {
  await openPage(browser, `${url}/inbox`);
  await browser.click('submit');
  assert.equal(await browser.run('return document.getElementById("list").checkValidity()'), false);
  for (const token of ['wrong', WEBHOOK_TOKEN]) {
    await browser.fill('token', token);
    await browser.click('submit');
    await untilProblem(browser, /operator/);
    await clearProblem(browser);
    await browser.click('live');
    await untilProblem(browser, /^Live updates stopped: .* Check the token/);
    assert.equal(await browser.run('return document.getElementById("live").checked'), false);
    await clearProblem(browser);
  }
  await browser.fill('token', OPERATOR_TOKEN);
  await browser.click('submit');
  await untilStatus(/^20 events/);
  assert.equal(await browser.isVisible('problem'), false);
});

test('an event shows its body and failed attempts, and can be redelivered', async () => {
  await list();
  await show('push');
  assert.equal(await focused(browser), 'one-heading');
  assert.equal(await browser.value('body'), body);
  const facts = await browser.text('facts');
  const expected = ['push', 'dead', 'github', dead, 'msg_dead', '192.0.2.7', 'a test'];
  for (const fact of [...expected, 'Attempt 1', 'the target answered 500', 'Attempt 2', 'Attempt 3']) {
    assert.ok(facts.includes(fact), fact);
  }
  await browser.click('again');
  await untilStatus(/^The event will be delivered again\.$/);
  assert.match(await browser.text('facts'), /Status\s+(waiting|done)/);
  const isDone = async () =>
    (await sql`select from webhook.outcomes where event_id = ${dead} and status = 'done'`).length === 1;
  await untilSql(isDone, 'the delivery');
  await browser.click('back');
  await browser.untilVisible('list');
  assert.equal(await focused(browser), 'list-heading');
  await browser.until(`${BUTTONS}.some((button) => /push .*(waiting|done)/.test(button.innerText))`);
});

test('opening an event that was deleted meanwhile reports it', async () => {
  const id = await put({ event: 'gone soon' });
  await list();
  await untilListed('gone soon');
  await sql`delete from webhook.events where id = ${id}`;
  await clickFirst('gone soon');
  await untilProblem(browser, /no event with this id, or it is no longer kept/);
  assert.equal(await browser.isVisible('list'), true);
});

async function follow(): Promise<void> {
  await browser.click('live');
  await untilStatus(/^New events appear here as they arrive\.$/);
  // The reply has started. An event in the list shows that the service has begun to poll.
  while (!(await isListed('first live event'))) {
    await send('first live event');
    await sql`select pg_sleep(0.2)`;
  }
}

test('new events are shown live, once each, until switched off', async () => {
  await list();
  await untilStatus(/^20 events/);
  await follow();
  // U+2028 ends a line in JavaScript, but not in an event stream.
  for (const name of ['live one', 'a line\u2028separator', 'data: {}\n\n', 'live two']) await send(name);
  await untilListed('live two');
  const events = await listed();
  for (const name of ['live one', 'separator', 'data: {}', 'live two']) {
    assert.equal(events.filter((event) => event.includes(name)).length, 1, name);
  }
  const position = (name: string) => events.findIndex((event) => event.includes(name));
  assert.ok(position('live two') < position('live one'), 'the newest is on top');
  assert.equal(await browser.run('return document.getElementById("live").checked'), true);
  await show('live one');
  assert.match(await browser.value('body'), /"live one"/);
  await browser.click('back');
  await browser.untilVisible('list');
  await browser.click('live');
  const last = await send('after that');
  await sql`select pg_sleep(1.5)`;
  assert.equal(await isListed('after that'), false);
  await sql`delete from webhook.events where id = ${last}`;
});

test('an event that is both listed and streamed appears once', async () => {
  await list();
  await untilStatus(/^20 events/);
  await follow();
  for (let i = 0; i < 3; i += 1) {
    await send(`both ways ${i}`);
    await browser.click('submit');
  }
  await send('the end');
  await untilListed('the end');
  const events = (await listed()).filter((event) => event.includes('both ways'));
  assert.equal(new Set(events.map((event) => event.replace(/^.* – /, ''))).size, events.length, events.join('\n'));
});

test('the live view applies the filter', async () => {
  await list();
  await browser.fill('of-event', 'wanted*');
  await browser.click('submit');
  await untilStatus(/^No events match\.$/);
  await browser.click('live');
  await untilStatus(/^New events appear here/);
  while (!(await isListed('wanted'))) {
    await send('unwanted');
    await send('wanted.one');
    await sql`select pg_sleep(0.2)`;
  }
  assert.equal(await isListed('unwanted'), false);
});

test('no event name stops the live view with a filter of many stars', async () => {
  await list();
  await browser.fill('of-event', '*a*a*a*a*b');
  await browser.click('submit');
  await untilStatus(/^No events match\.$/);
  await browser.click('live');
  await untilStatus(/^New events appear here/);
  while (!(await isListed('aaaab'))) {
    await send('a'.repeat(1_024));
    await send('aaaab');
    await sql`select pg_sleep(0.2)`;
  }
});

const FORM = ['token', 'of-status', 'of-event', 'submit', 'live'];

test('the keyboard alone operates the page, with a visible focus that follows', async () => {
  await put({ event: 'by keyboard', status: 'dead', attempts: 1, errors: ['it failed'] });
  await openPage(browser, `${url}/inbox`);
  for (const id of FORM) {
    await browser.press(Tab);
    assert.equal(await focused(browser), id);
    await assertFocusVisible(browser, id);
  }
  await openPage(browser, `${url}/inbox`);
  await browser.press(Tab, ...OPERATOR_TOKEN, Tab, ...'dead', Tab, ...'by keyb*', Enter);
  await untilStatus(/^1 event listed\.$/);
  assert.equal(await focused(browser), 'of-event');
  await browser.press(Tab, Tab, Tab, Enter);
  await browser.untilVisible('one');
  assert.equal(await focused(browser), 'one-heading');
  await browser.press(Tab, Tab, Tab, Space);
  await untilStatus(/^The event will be delivered again\.$/);
  await browser.press(Tab, Enter);
  await browser.untilVisible('list');
  assert.equal(await focused(browser), 'list-heading');
  await browser.press([Shift, Tab], Tab);
});

const STATES: readonly PageState[] = [
  ['inbox-empty', () => openPage(browser, `${url}/inbox`), {
    token: ['textbox', 'Operator token'], 'of-status': ['combobox', 'Status'], 'of-event': ['textbox', 'Event name'],
    submit: ['button', 'Load events'], live: ['checkbox', 'Show new events live'],
  }],
  ['inbox-refused', () => list('wrong').then(() => untilProblem(browser, /./)), { problem: ['alert', ''] }],
  ['inbox-list', () => list().then(() => untilStatus(/listed/)), {
    events: ['list', 'Events, newest first'], more: ['button', 'Load older events'],
  }],
  ['inbox-event', async () => {
    await list();
    await browser.fill('of-event', 'push');
    await browser.click('submit');
    await show(': dead');
  }, {
    body: ['textbox', 'Body'], copy: ['button', 'Copy body'], again: ['button', 'Redeliver'],
    back: ['button', 'Back to list'],
  }],
];

for (const state of STATES) {
  const [name] = state;
  test(`page state ${name}: screen reader, contrast, target size and reflow`, async () => {
    await sql`
      insert into webhook.outcomes (event_id, status, attempts) values (${dead}, 'dead', 3)
      on conflict (event_id) do update set status = 'dead'`;
    await openState(browser, state);
    await checkAppearance(browser, name, () => ['desktop', 'phone']);
    await enlargeText(browser);
    assert.deepEqual(await overflowing(browser), [], 'nothing overflows on a phone at twice the text size');
  });
}
