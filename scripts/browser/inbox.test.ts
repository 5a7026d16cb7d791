/** The inbox page in a real Chromium: what an operator sees, with a mouse, by keyboard alone, on a phone, at night. */
import assert from 'node:assert/strict';
import { after, afterEach, test } from 'node:test';
import { WEBHOOK_TOKEN } from '../../test/support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../test/support/inbox.ts';
import { untilSql } from '../../test/support/lanes.ts';
import { complaint, focused, hush, startChromium, takePicture, visit } from './house.ts';
import { faintest, overflowing, tooSmall } from './looks.ts';
import { type Browser, KEYS } from './webdriver.ts';

const inbox = await openInbox({ after }, {
  INBOX_PAGE: 'on',
  WEBHOOK_COMMAND: JSON.stringify([process.execPath, '-e', 'process.exit(0)']),
  // Delivered is what is delivered again here, and nothing else.
  WEBHOOK_EVENTS: 'none',
});
const url = inbox.url.replace('127.0.0.1', 'localhost');
const { put, send, sql } = inbox;
const browser = await startChromium();
const { Tab, Enter, Shift, Space } = KEYS;

const LONG = `order.${'a-very-long-name-'.repeat(12)}`;
const body = '{\n  "event": "push",\n  "data": { "page_id": "<b>not markup</b> 名前" }\n}';
const dead = await put({ event: 'push', source: 'github', status: 'dead', attempts: 3, deliveryId: 'msg_dead', body, age: 20, errors: ['the target answered 500', 'the target answered 502', `the target answered ${'x'.repeat(200)}`] });
await put({ event: '<img src=x onerror=alert(1)>', status: 'done', attempts: 1, age: 30 });
await put({ event: LONG, status: 'waiting', attempts: 1, age: 10, errors: ['was busy'] });
for (let number = 0; number < 45; number += 1) await put({ event: 'page.updated', status: 'skipped', age: 100 + number * 3 });

/** What the browser complains of, besides our own refusals. */
async function troubles({ log }: Browser): Promise<string[]> {
  const refusal = /\/events\S* - Failed to load resource: the server responded with a status of 4\d\d /;
  return (await log()).filter(({ source, message }) => source !== 'network' || !refusal.test(message)).map(({ level, message }) => `${level} ${message}`);
}
afterEach(async () => {
  await browser.run('const live = document.getElementById("live"); if (live?.checked) live.click()');
  assert.deepEqual(await troubles(browser), [], 'the browser complains of nothing');
  assert.deepEqual(await browser.run('return [...Object.entries(localStorage), ...Object.entries(sessionStorage), ...(document.cookie ? [document.cookie] : [])]'), [], 'nothing is left in the browser');
});

const lines = (): Promise<string[]> => browser.run('return [...document.querySelectorAll("#events button")].map((one) => one.innerText)');
const status = (words: RegExp) => browser.until(`${words}.test(document.getElementById('status').innerText)`);

async function list(token = OPERATOR_TOKEN): Promise<void> {
  await visit(browser, `${url}/inbox`);
  await browser.fill('token', token);
  await browser.click('submit');
}

/** Opens the first one whose line fits. */
async function show(words: string): Promise<void> {
  await browser.until(`[...document.querySelectorAll("#events button")].some((one) => one.innerText.includes(${JSON.stringify(words)}))`);
  await browser.run('[...document.querySelectorAll("#events button")].find((one) => one.innerText.includes(arguments[0])).click()', words);
  await browser.seen('one');
}

test('events are listed, newest first, a page at a time, until there are no more', async () => {
  await list();
  await status(/^20 events are listed\.$/);
  const [first = '', second = '', third = ''] = await lines();
  assert.ok(first.includes(LONG) && first.endsWith('waiting, was busy'));
  assert.match(second, / – push \(github\): dead, the target answered x+$/);
  assert.match(third, / – <img src=x onerror=alert\(1\)> \(generic\): done$/);
  await browser.click('more');
  await status(/^40 events/);
  await browser.click('more');
  await status(/^48 events/);
  assert.equal(await browser.isShown('more'), false);
  assert.equal(new Set(await lines()).size, 48);
});

test('a filter by status and by name holds for the first page and for all others', async () => {
  await list();
  await browser.run('document.getElementById("of-status").value = "skipped"');
  await browser.fill('of-event', ' page.* ');
  await browser.press(Enter);
  await browser.until('document.querySelectorAll("#events button").length === 20 && [...document.querySelectorAll("#events button")].every((one) => one.innerText.includes("skipped"))');
  await browser.click('more');
  await status(/^40 events/);
  await browser.click('more');
  await status(/^45 events/);
  await browser.fill('of-event', 'nothing like it');
  await browser.click('submit');
  await status(/^There are no such events\.$/);
  assert.deepEqual([await lines(), await browser.isShown('more')], [[], false]);
});

test('no token is asked for by the browser, and a wrong one or that of a sender is told in clear words', async () => {
  await visit(browser, `${url}/inbox`);
  await browser.click('submit');
  assert.equal(await browser.run('return document.getElementById("list").checkValidity()'), false);
  for (const token of ['wrong', WEBHOOK_TOKEN]) {
    await browser.fill('token', token);
    await browser.click('submit');
    await complaint(browser, /operator/);
    await hush(browser);
    await browser.click('live');
    await complaint(browser, /no longer shown: .* Check the token/);
    assert.equal(await browser.run('return document.getElementById("live").checked'), false);
    await hush(browser);
  }
  await browser.fill('token', OPERATOR_TOKEN);
  await browser.click('submit');
  await status(/^20 events/);
  assert.equal(await browser.isShown('problem'), false);
});

test('an event is shown with its body and every attempt that failed, and is delivered again', async () => {
  await list();
  await show('push');
  assert.equal(await focused(browser), 'one-heading');
  assert.equal(await browser.value('body'), body);
  const facts = await browser.text('facts');
  for (const fact of ['push', 'dead', 'github', dead, 'msg_dead', '192.0.2.7', 'Attempt 1', 'the target answered 500', 'Attempt 2', 'Attempt 3', 'a test']) assert.ok(facts.includes(fact), fact);
  await browser.click('again');
  await status(/^It will be delivered again\.$/);
  assert.match(await browser.text('facts'), /Status\s+(waiting|done)/);
  await untilSql(async () => (await sql`select from webhook.outcomes where event_id = ${dead} and status = 'done'`).length === 1, 'it was delivered');
  await browser.click('back');
  await browser.seen('list');
  assert.equal(await focused(browser), 'list-heading');
  await browser.until('[...document.querySelectorAll("#events button")].some((one) => /push .*(waiting|done)/.test(one.innerText))');
});

test('an event that is gone by the time it is opened is told in clear words', async () => {
  const id = await put({ event: 'gone soon' });
  await list();
  await browser.until('[...document.querySelectorAll("#events button")].some((one) => one.innerText.includes("gone soon"))');
  await sql`delete from webhook.events where id = ${id}`;
  await browser.run('[...document.querySelectorAll("#events button")].find((one) => one.innerText.includes("gone soon")).click()');
  await complaint(browser, /no event with this id, or it is no longer kept/);
  assert.equal(await browser.isShown('list'), true);
});

async function follow(): Promise<void> {
  await browser.click('live');
  await status(/^New events are shown as they come\.$/);
  // The answer has come; the service's first look is over once something is shown.
  for (let number = 0; !(await lines()).some((line) => line.includes('is anybody there')); number += 1) {
    await send('is anybody there');
    await sql`select pg_sleep(0.2)`;
  }
}

test('new events are shown as they come, each once, whatever their names hold, until that is switched off', async () => {
  await list();
  await status(/^20 events/);
  await follow();
  // Of these, JavaScript takes one for the end of a line, and the stream does not.
  for (const name of ['live one', 'a line\u2028separator', 'data: {}\n\n', 'live two']) await send(name);
  await browser.until('[...document.querySelectorAll("#events button")].some((one) => one.innerText.includes("live two"))');
  const shown = await lines();
  for (const name of ['live one', 'separator', 'data: {}', 'live two']) assert.equal(shown.filter((line) => line.includes(name)).length, 1, name);
  assert.ok(shown.findIndex((line) => line.includes('live two')) < shown.findIndex((line) => line.includes('live one')), 'the newest is on top');
  assert.equal(await browser.run('return document.getElementById("live").checked'), true);
  await show('live one');
  assert.match(await browser.value('body'), /"live one"/);
  await browser.click('back');
  await browser.seen('list');
  await browser.click('live');
  const last = await send('after that');
  await sql`select pg_sleep(1.5)`;
  assert.ok(!(await lines()).some((line) => line.includes('after that')));
  await sql`delete from webhook.events where id = ${last}`;
});

test('what is listed and then comes live as well is one line', async () => {
  await list();
  await status(/^20 events/);
  await follow();
  for (let number = 0; number < 3; number += 1) {
    await send(`both ways ${number}`);
    await browser.click('submit');
  }
  await send('the end');
  await browser.until('[...document.querySelectorAll("#events button")].some((one) => one.innerText.includes("the end"))');
  const shown = (await lines()).filter((line) => line.includes('both ways'));
  assert.equal(new Set(shown.map((line) => line.replace(/^.* – /, ''))).size, shown.length, shown.join('\n'));
});

test('new events are shown only where they fit the filter', async () => {
  await list();
  await browser.fill('of-event', 'wanted*');
  await browser.click('submit');
  await status(/^There are no such events/);
  await browser.click('live');
  await status(/^New events are shown/);
  for (let number = 0; !(await lines()).some((line) => line.includes('wanted')); number += 1) {
    await send('unwanted');
    await send('wanted.one');
    await sql`select pg_sleep(0.2)`;
  }
  assert.deepEqual((await lines()).filter((line) => line.includes('unwanted')), []);
});

const FORM = ['token', 'of-status', 'of-event', 'submit', 'live'];

test('all of it is done with the keyboard alone, and the focus shows and moves to what is new', async () => {
  await put({ event: 'by keyboard', status: 'dead', attempts: 1, errors: ['as always'] });
  await visit(browser, `${url}/inbox`);
  const stops: string[] = [];
  for (const _ of FORM) {
    await browser.press(Tab);
    stops.push(await focused(browser));
    const [style, width] = await browser.run('const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement); return [outlineStyle, parseFloat(outlineWidth)]');
    assert.ok(style === 'solid' && width >= 2, `${stops.at(-1)} shows that it has the focus`);
  }
  assert.deepEqual(stops, FORM);
  await visit(browser, `${url}/inbox`);
  await browser.press(Tab, ...OPERATOR_TOKEN, Tab, ...'dead', Tab, ...'by keyb*', Enter);
  await status(/^1 events? (is|are) listed\.$/);
  assert.equal(await focused(browser), 'of-event');
  await browser.press(Tab, Tab, Tab, Enter);
  await browser.seen('one');
  assert.equal(await focused(browser), 'one-heading');
  await browser.press(Tab, Tab, Tab, Space);
  await status(/^It will be delivered again\.$/);
  await browser.press(Tab, Enter);
  await browser.seen('list');
  assert.equal(await focused(browser), 'list-heading');
  await browser.press([Shift, Tab], Tab);
});

const SIZES = {
  desk: { width: 1_280, height: 900, deviceScaleFactor: 1, mobile: false },
  phone: { width: 320, height: 640, deviceScaleFactor: 2, mobile: true },
} as const;
const size = (name: keyof typeof SIZES) => browser.chromium('Emulation.setDeviceMetricsOverride', SIZES[name]);
const colours = (scheme: 'light' | 'dark') => browser.chromium('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });

const STATES: ReadonlyArray<readonly [state: string, go: () => Promise<unknown>, controls: Readonly<Record<string, readonly [role: string, name: string]>>]> = [
  ['inbox-empty', () => visit(browser, `${url}/inbox`), {
    token: ['textbox', 'Operator token'], 'of-status': ['combobox', 'Status'], 'of-event': ['textbox', 'Event'], submit: ['button', 'Show the events'], live: ['checkbox', 'Show new ones as they come'],
  }],
  ['inbox-refused', () => list('wrong').then(() => complaint(browser, /./)), { problem: ['alert', ''] }],
  ['inbox-list', () => list().then(() => status(/listed/)), { events: ['list', 'Events, newest first'], more: ['button', 'Show older ones'] }],
  ['inbox-event', () => list().then(async () => {
    await browser.fill('of-event', 'push');
    await browser.click('submit');
    await show(': dead');
  }), { body: ['textbox', 'Body'], copy: ['button', 'Copy the body'], again: ['button', 'Deliver it again'], back: ['button', 'Back to the list'] }],
];
for (const [state, go, controls] of STATES) {
  test(`the page can be read by everybody: ${state}`, async () => {
    await sql`insert into webhook.outcomes (event_id, status, attempts) values (${dead}, 'dead', 3) on conflict (event_id) do update set status = 'dead'`;
    await size('desk');
    await colours('light');
    await go();
    assert.equal(await browser.run('return [...document.querySelectorAll("h1")].filter((one) => one.checkVisibility()).length'), 1, 'one heading');
    for (const [id, expected] of Object.entries(controls)) assert.deepEqual([await browser.roleOf(id), await browser.nameOf(id)], expected, id);
    for (const scheme of ['light', 'dark'] as const) {
      await colours(scheme);
      const { texts, lines: edges } = await faintest(browser);
      // WCAG 2.2: 1.4.3 and 1.4.11.
      assert.ok(texts.ratio >= 4.5, `${scheme}: ${texts.what} has ${texts.ratio}:1`);
      assert.ok(edges.ratio >= 3, `${scheme}: ${edges.what} has ${edges.ratio}:1`);
      for (const name of ['desk', 'phone'] as const) {
        await size(name);
        await takePicture(browser, `${state}-${scheme}-${name}`);
        assert.deepEqual(await overflowing(browser), [], `${name}: nothing sticks out`);
        assert.deepEqual((await tooSmall(browser)), [], `${name}: everything can be touched`);
      }
    }
    await browser.run('document.documentElement.style.fontSize = "200%"');
    assert.deepEqual(await overflowing(browser), [], 'letters of twice the size fit on a phone');
  });
}
