/** The inbox page in a real Chromium: what an operator sees, of which events. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN } from '../../support/inbox.ts';
import { startBrowser } from './browsers.ts';
import { setViewport } from './accessibility.ts';
import { BODY, drivePage, openHeldInbox, putDead, ROWS } from './inbox-page.ts';
import { checkAfterEach, focused, openPage } from './setup.ts';

const inbox = await openHeldInbox();
const { put, send, sql } = inbox;
const browser = await startBrowser();
const { list, listed, listRows, show, untilListed, untilRows, untilText, url } = drivePage(
  inbox,
  browser,
);
await setViewport(browser, 'desktop');

const LONG = `order.${'a-very-long-name-'.repeat(12)}`;
const dead = await putDead(inbox);
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
  assert.equal(await browser.run('return document.getElementById("raw").textContent'), BODY);
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
  assert.equal(execFileSync('sh', ['-c', script], { encoding: 'utf8' }), BODY);
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
