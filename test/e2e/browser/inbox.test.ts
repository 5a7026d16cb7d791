/**
 * The inbox page in a real Chromium: what an operator sees and does, with the mouse and by
 * keyboard.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { untilSql } from '../../support/connections.ts';
import { startBrowser } from './browsers.ts';
import { assertFocusVisible, setViewport } from './accessibility.ts';
import { drivePage, ROWS } from './inbox-page.ts';
import { checkAfterEach, focused, openPage } from './setup.ts';
import { KEYS } from './webdriver.ts';

const inbox = await openInbox(
  { after },
  {
    INBOX_PAGE: 'on',
    WEBHOOK_COMMAND: JSON.stringify([process.execPath, '-e', 'console.log("taken over")']),
    // New events are not delivered: only a redelivery is.
    WEBHOOK_EVENTS: 'none',
  },
);
const { put, send, sql } = inbox;
const browser = await startBrowser();
const { list, listed, listRows, show, untilListed, untilRows, untilText, url } = drivePage(
  inbox,
  browser,
);
await setViewport(browser, 'desktop');
const { Tab, Enter, Escape, Space } = KEYS;

const LONG = `order.${'a-very-long-name-'.repeat(12)}`;
const body = `{\n  "event": "push",\n  "data": { "page_id": "<b>not markup</b> 名前", "it's": "a 'quote' $HOME \`id\` \\\\" },
  "n": 12345678901234567890, "list": [1.50, null]\n}`;
const errors = [
  'the target answered 500',
  'the target answered 502',
  `the target answered ${'x'.repeat(200)}`,
];
const dead = await put({
  event: 'push',
  source: 'github',
  status: 'dead',
  attempts: 3,
  deliveryId: 'msg_dead',
  body,
  age: 20,
  errors,
});
await sql`
  update webhook.failures set duration_ms = 1234, answer_status = 500, answer = '<i>oops</i>'
  where event_id = ${dead} and attempt = 2`;
const hostile = await put({
  event: '<img src=x onerror=alert(1)>',
  status: 'done',
  attempts: 1,
  age: 30,
});
await put({ event: LONG, status: 'waiting', attempts: 1, age: 10, errors: ['was busy'] });
for (let i = 0; i < 60; i += 1)
  await put({ event: 'page.updated', status: 'skipped', age: 100 + i * 3 });

checkAfterEach(browser);

const query = async () => new URL(await browser.address()).search;

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

test('a link to an event that was cut says so, and offers nothing to redeliver', async () => {
  const cut = /^The address of this event is incomplete or wrong\./;
  const unknown = /^There is no event with this id, or it is no longer kept\.$/;
  for (const [id, problem] of [
    [dead.slice(0, -1), cut],
    ['x', cut],
    [randomUUID(), unknown],
  ] as const) {
    await list(`?id=${id}`);
    await untilText('one-problem', problem);
    assert.equal(await browser.isVisible('found'), false);
  }
});

test('events are listed newest first, 50 at a time, to the last', async () => {
  await listRows();
  await untilRows(50);
  const [first = '', second = '', third = ''] = await listed();
  assert.ok(
    first.includes(LONG) &&
      first.includes('waiting') &&
      first.includes('was busy') &&
      /next in/.test(first),
  );
  assert.match(
    second,
    /ago push dead the target answered x+ 3 attempts Redeliver github msg_dead first/,
  );
  assert.match(third, /<img src=x onerror=alert\(1\)> done 1 attempt generic/);
  await browser.click('more');
  await untilRows(63);
  assert.equal(await browser.isVisible('more'), false);
  assert.equal(await browser.run(`return new Set(${ROWS}.map((row) => row.dataset.id)).size`), 63);
  assert.match(
    await browser.text('statuses'),
    /waiting\s+1\s+dead\s+1\s+done\s+1\s+skipped\s+60\s+stored\s+0/,
  );
  assert.match(
    await browser.run('return document.getElementById("chart").getAttribute("aria-label")'),
    /^63 events received and 1 dead in the last hour\.$/,
  );
  await browser.run('document.getElementById("span-day").click()');
  await browser.until('document.querySelectorAll("#chart g").length === 24');
});

const FILTERS: ReadonlyArray<readonly [id: string, value: string, search: string, count: number]> =
  [
    ['by-text', '<b>not', '?text=%3Cb%3Enot', 1],
    ['by-event', 'page.*', '?event=page.*', 50],
    ['by-delivery', 'msg_dead', '?delivery_id=msg_dead', 1],
    ['by-source', 'github', '?source=github', 1],
    ['by-age', '15m', '?age=15m', 50],
    ['by-event', 'no such name', '?event=no+such+name', 0],
  ];
for (const [id, value, search, count] of FILTERS) {
  test(`the filter ${id} applies at once, is in the address, and survives a reload`, async () => {
    await listRows();
    const type = await browser.run('return document.getElementById(arguments[0]).tagName', id);
    if (type === 'INPUT') await browser.fill(id, value);
    else
      await browser.run(
        `const field = document.getElementById(arguments[0]);
      field.value = arguments[1]; field.dispatchEvent(new Event('input'))`,
        id,
        value,
      );
    await browser.until(`location.search === ${JSON.stringify(search)}`);
    await untilRows(count);
    await listRows(search);
    await untilRows(count);
    assert.equal(await browser.isVisible('empty'), count === 0);
    await browser.click('clear');
    await untilRows(50);
    assert.equal(await query(), '');
    assert.equal(await focused(browser), 'by-text');
  });
}

test('the view and an event have addresses; Back and Forward lead through them', async () => {
  await listRows('?status=dead');
  await untilRows(1);
  assert.equal(
    await browser.run('return document.getElementById("status-dead").ariaPressed'),
    'true',
  );
  await browser.clickOn('#rows a');
  await browser.untilVisible('one');
  assert.equal(await query(), `?status=dead&id=${dead}`);
  assert.equal(await focused(browser), 'one-heading');
  await browser.back();
  await browser.untilVisible('list');
  assert.equal(await query(), '?status=dead');
  await untilRows(1);
  assert.ok(!(await browser.address()).includes(OPERATOR_TOKEN));
});

test('a missing, wrong or sender token is reported at its field', async () => {
  await openPage(browser, `${url}/inbox`);
  await browser.click('open');
  assert.equal(
    await browser.run('return document.getElementById("signin").checkValidity()'),
    false,
  );
  const messages = [
    ['wrong', /^This operator token is not valid:/],
    [WEBHOOK_TOKEN, /^This is the token of a sender\./],
  ] as const;
  for (const [token, message] of messages) {
    await list('', token);
    await untilText('token-error', message);
    assert.equal(await focused(browser), 'token');
    assert.equal(await browser.isVisible('list'), false);
  }
  await browser.fill('token', OPERATOR_TOKEN);
  await browser.click('open');
  await untilRows(50);
});

test('a token that is revoked while the page is open leads back to the sign-in', async () => {
  await listRows();
  await sql`update webhook.tokens set revoked_at = now() where role = 'operator'`;
  await browser.untilVisible('signin');
  await untilText(
    'token-error',
    /^This operator token is not valid: it is mistyped, revoked or replaced\.$/,
  );
  await sql`update webhook.tokens set revoked_at = null where role = 'operator'`;
});

test('an event shows its body, headers, and each attempt with its answer', async () => {
  await show(dead);
  const json = await browser.text('json');
  for (const text of [
    '"page_id": "<b>not markup</b> 名前"',
    '12345678901234567890',
    '1.50',
    'null',
  ]) {
    assert.ok(json.includes(text), `${text} in ${json}`);
  }
  await browser.run('document.getElementById("form-raw").click()');
  assert.equal(await browser.run('return document.getElementById("raw").textContent'), body);
  const facts = await browser.text('facts');
  for (const fact of ['github', dead, 'msg_dead', '192.0.2.7', 'first'])
    assert.ok(facts.includes(fact), fact);
  assert.match(await browser.text('headers'), /user-agent\s+a test/);
  await untilText(
    'schedule',
    /^At most 13 attempts\. Failed attempts are repeated after 5s, 30s, 2m, .*, 1d\.$/,
  );
  const attempts = await browser.text('attempts');
  assert.match(
    attempts,
    /Attempt 1[\s\S]*answered 500[\s\S]*Attempt 2[\s\S]*1\.2 s[\s\S]*status 500[\s\S]*Attempt 3/,
  );
  assert.equal(
    await browser.run('return document.querySelector("#attempts pre").textContent'),
    '<i>oops</i>',
  );
  await show(hostile);
  await untilText('one-heading', /^<img src=x onerror=alert\(1\)>$/);
});

test('an event that was removed meanwhile is reported', async () => {
  const id = await put({ event: 'gone soon', age: 15 });
  await show(id);
  await sql`delete from webhook.events where id = ${id}`;
  await untilText('one-problem', /no event with this id, or it is no longer kept/);
});

test('the body can be copied as curl, and a shell sends the same bytes', async () => {
  await browser.open(`${url}/inbox`);
  await browser.grantPermission('clipboard-read');
  await browser.grantPermission('clipboard-write');
  await show(dead);
  await browser.click('copy-curl');
  await untilText('copy-curl', /^Copied$/);
  const command: string = await browser.runAsync('return navigator.clipboard.readText()');
  assert.match(command, /^curl "\$\{URL:-localhost:3000\}"/);
  // A stand-in for curl that prints its last argument.
  const script = `curl() { for last; do :; done; printf %s "$last"; }\n${command}`;
  assert.equal(execFileSync('sh', ['-c', script], { encoding: 'utf8' }), body);
  await browser.click('copy-link');
  await untilText('copy-link', /^Copied$/);
  assert.equal(
    await browser.runAsync('return navigator.clipboard.readText()'),
    `${url}/inbox?id=${dead}`,
  );
});

test('rows change in place, new ones appear once, and the focus stays', async () => {
  const id = await put({ event: 'changes', status: 'waiting', attempts: 1, age: 5 });
  await listRows();
  await untilListed('changes');
  await browser.run(
    `${ROWS}.find((row) => row.innerText.includes('changes')).querySelector('a').focus()`,
  );
  await sql`
    with removed as (delete from webhook.work where event_id = ${id} returning event_id)
    insert into webhook.outcomes (event_id, status, attempts)
    select event_id, 'dead', 2 from removed`;
  await browser.until(
    `${ROWS}.some((row) => /changes\\s+dead\\s+2 attempts/.test(row.innerText.replace(/\\s+/g, ' ')))`,
  );
  assert.equal(await browser.run('return document.activeElement.innerText'), 'changes');
  for (const name of ['live one', 'a line\u2028separator', 'live two']) await send(name);
  await untilListed('live two');
  const rows = await listed();
  for (const name of ['live one', 'separator', 'live two']) {
    assert.equal(rows.filter((row) => row.includes(name)).length, 1, name);
  }
  assert.ok(
    rows.findIndex((row) => row.includes('live two')) <
      rows.findIndex((row) => row.includes('live one')),
  );
  assert.equal(await browser.run('return document.activeElement.innerText'), 'changes');
  await sql`delete from webhook.events where event in ('changes', 'live one', 'live two') or event like 'a line%'`;
});

test('a reader further down is not disturbed: new events wait behind a button', async () => {
  await listRows();
  await untilRows(50);
  await browser.run('scrollTo(0, document.body.scrollHeight)');
  const before = await listed();
  const id = await send('new above');
  await browser.untilVisible('newer');
  const names = (rows: string[]) => rows.map((row) => row.replace(/\S+ \S+ ago|now/, ''));
  assert.deepEqual(names(await listed()), names(before));
  await browser.click('newer');
  await untilListed('new above');
  await sql`delete from webhook.events where id = ${id}`;
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
    window.batches = 0;
    window.fetch = async (address, options) => {
      const isBatch = String(address).endsWith('/events/redeliver');
      if (!isBatch || JSON.parse(options.body).dry_run) return realFetch(address, options);
      window.batches += 1;
      await new Promise((resolve) => setTimeout(resolve, 300));
      const headers = { 'content-type': 'application/json' };
      const text = '{"data":{"matched":1,"redelivered":1,"next":"more"}}';
      return new Response(text, { headers });
    };`);
  await browser.click('bulk-yes');
  await browser.until('batches === 1');
  await browser.click('bulk-no');
  await browser.click('again-all');
  await untilText('bulk-text', /^Redeliver 3 events\?/);
  await sleep(1_000);
  assert.equal(await browser.run('return batches'), 1);
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
  await browser.run(`
    const send = fetch;
    window.held = [];
    window.fetch = async (address, options) => {
      if (!String(address).endsWith('/events/redeliver')) return send(address, options);
      await new Promise((resolve) => held.push(resolve));
      return send(address, options);
    };`);
  await browser.click('again-all');
  await browser.until('held.length === 1');
  await browser.clickOn('#rows input');
  await browser.click('again-selected');
  await browser.run('held[0]()');
  await sleep(500);
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
  await untilRows(50);
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
  assert.equal(await query(), '?text=not+markup');
  await reset();
});
