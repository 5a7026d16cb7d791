/** The inbox page in a real browser: what an operator sees, of which events. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN } from '../../support/inbox.ts';
import { checkPage } from './accessibility.ts';
import { BODY, openInboxPage, ROWS, TARGET } from './inbox-page.ts';

const inbox = await openInboxPage({ SITE_NAME: 'Example Ltd' });
const { browser, list, listed, listRows, put, send, show, sql, untilListed, untilRows, url } =
  inbox;
await browser.open(`${url}/inbox`);
await browser.grantPermission('clipboard-read');

const LONG = `order.${'a-very-long-name-'.repeat(12)}`;
const HOSTILE = '<img src=x onerror=alert(1)>';
const dead = await inbox.putDead();
await sql`
  update webhook.failures set duration_ms = 1234, answer_status = 500, answer = '<i>oops</i>'
  where event_id = ${dead} and attempt = 2`;
const once = { attempts: 1 } as const;
const hostile = await put({ ...once, event: HOSTILE, status: 'done', age: 30, body: 'a=x&b=y' });
const waiting = await put({ ...once, event: LONG, status: 'waiting', age: 10, errors: ['busy'] });
for (let i = 0; i < 60; i += 1)
  await put({ event: 'page.updated', status: 'skipped', age: 2_000 + i * 10 });
/** Those of the last minutes. */
const RECENT = '?age=15m';

const query = async () => new URL(await browser.address()).search;
const textOf = (selector: string) =>
  browser.run(`return document.querySelector('${selector}').textContent`);
const removeEvents = (...events: string[]) =>
  sql`delete from webhook.events where event in ${sql(events)}`;

test('a token that is missing, wrong, of a sender or revoked is reported at its field', async () => {
  await browser.load(`${url}/inbox`);
  assert.equal(await browser.run('return document.forms.signin.checkValidity()'), false);
  for (const [token, message] of [
    ['wrong', /^This operator token is not valid:/],
    [WEBHOOK_TOKEN, /^This is the token of a sender\./],
  ] as const) {
    await list('', token);
    await browser.untilText('token-error', message);
    assert.deepEqual([await browser.focused(), await browser.isVisible('list')], ['token', false]);
  }
  await checkPage(browser, 'inbox-signin');
  await browser.setOffline(true);
  await browser.fill('token', OPERATOR_TOKEN);
  await browser.click('open');
  await browser.untilText('token-error', /did not answer/);
  await browser.setOffline(false);
  await browser.click('open');
  await untilRows(50);
  await sql`update webhook.tokens set revoked_at = now() where role = 'operator'`;
  await browser.untilVisible('signin');
  await browser.untilText('token-error', /^This operator token is not valid:/);
  await sql`update webhook.tokens set revoked_at = null where role = 'operator'`;
});

test('events are listed newest first, 50 at a time, to the last', async () => {
  await listRows('', 50);
  const [first = '', second = '', third = ''] = await listed();
  assert.match(first, new RegExp(`${LONG} waiting busy 1 attempt next in`));
  const failed = /ago push dead the target answered 504 3 attempts Redeliver github msg_dead first/;
  assert.match(second, failed);
  assert.match(third, /<img src=x onerror=alert\(1\)> done 1 attempt generic/);
  await browser.click('more');
  await untilRows(63);
  assert.equal(await browser.isVisible('more'), false);
  assert.equal(await browser.run(`return new Set(${ROWS}.map((row) => row.dataset.id)).size`), 63);
  await browser.untilText(
    'statuses',
    /waiting\s+1\s+dead\s+1\s+done\s+1\s+skipped\s+60\s+stored\s+0/,
  );
  await browser.untilText('chart-text', /^63 events received and 1 dead in the last hour\./);
  await browser.run('document.getElementById("span-day").click()');
  await browser.until('document.querySelectorAll("#chart g").length === 24');
});

const FILTERS = [
  ['by-text', '<b>not', '?text=%3Cb%3Enot', 1],
  ['by-event', 'page.*', '?event=page.*', 50],
  ['by-delivery', 'msg_dead', '?delivery_id=msg_dead', 1],
  ['by-source', 'github', '?source=github', 1],
  ['by-age', '15m', RECENT, 3],
  ['by-event', 'no such name', '?event=no+such+name', 0],
] as const;
test('a filter applies at once, is in the address, and survives a reload', async () => {
  await listRows('', 50);
  for (const [id, value, search, count] of FILTERS) {
    await browser.run(
      `const [id, value] = arguments;
      Object.assign(document.getElementById(id), { value }).dispatchEvent(new Event('input'));`,
      id,
      value,
    );
    await browser.until(`location.search === ${JSON.stringify(search)}`);
    await untilRows(count);
    await listRows(search, count);
    await browser.until(`document.getElementById('empty').hidden === ${count > 0}`);
    if (id === 'by-age' || count === 0) await checkPage(browser, `inbox-${count}`);
    await browser.click('clear');
    await untilRows(50);
    assert.deepEqual([await query(), await browser.focused()], ['', 'by-text']);
  }
});

test('the view and an event have addresses; Back leads through them', async () => {
  await listRows('?status=dead', 1);
  await browser.clickOn('#rows a');
  await browser.untilVisible('one');
  assert.equal(await query(), `?status=dead&id=${dead}`);
  assert.equal(await browser.focused(), 'one-heading');
  await browser.back();
  await browser.untilVisible('list');
  await untilRows(1);
  assert.equal(await browser.address(), `${url}/inbox?status=dead`);
});

test('a link to an event that was cut or removed says so', async () => {
  await list(`?id=${dead.slice(0, -1)}`);
  await browser.untilText('one-problem', /^The address of this event is incomplete or wrong\./);
  assert.equal(await browser.isVisible('found'), false);
  await show(await put({ event: 'gone soon', age: 15 }));
  await removeEvents('gone soon');
  const removed = /^There is no event with this id, or it is no longer kept\.$/;
  await browser.untilText('one-problem', removed);
});

test('an event shows its body, headers, and each attempt with its answer', async () => {
  await show(dead);
  const json = await browser.text('json');
  const members = ['"page_id": "<b>not markup</b> 名前"', '12345678901234567890', '1.50', 'null'];
  for (const text of members) assert.ok(json.includes(text), `${text} in ${json}`);
  const facts = await browser.text('facts');
  for (const fact of ['github', dead, 'msg_dead', '192.0.2.7', 'first'])
    assert.ok(facts.includes(fact), fact);
  assert.match(await browser.text('headers'), /user-agent\s+a test/);
  await browser.untilText('schedule', /^At most 13 attempts\. Failed .* after 5s, 30s, .*, 1d\.$/);
  assert.match(
    await browser.text('attempts'),
    /Attempt 1[\s\S]*answered 500[\s\S]*Attempt 2[\s\S]*1\.2 s[\s\S]*status 500[\s\S]*Attempt 3/,
  );
  assert.equal(await textOf('#attempts pre'), '<i>oops</i>');
  await checkPage(browser, 'inbox-event');
  await browser.run('document.getElementById("form-raw").click()');
  assert.equal(await textOf('#raw'), BODY);
  // What is no JSON is shown as it is.
  await show(hostile);
  await browser.untilText('one-heading', /^<img src=x onerror=alert\(1\)>$/);
  assert.equal(await browser.text('raw'), 'a=x&b=y');
});

test('the body can be copied as curl, and a shell sends the same bytes', async () => {
  await show(dead);
  await browser.click('copy-curl');
  await browser.untilText('copy-curl', /^Copied$/);
  const command = await browser.clipboard();
  assert.match(command, /^curl "\$\{URL:-localhost:3000\}"/);
  // A stand-in for curl that prints its last argument.
  const script = `curl() { for last; do :; done; printf %s "$last"; }\n${command}`;
  assert.equal(execFileSync('sh', ['-c', script], { encoding: 'utf8' }), BODY);
  await browser.click('copy-link');
  await browser.untilText('copy-link', /^Copied$/);
  assert.equal(await browser.clipboard(), `${url}/inbox?id=${dead}`);

  await browser.run('navigator.clipboard.writeText = async () => { throw new Error("denied"); }');
  await browser.click('copy-body');
  await browser.untilVisible('by-hand-text');
  assert.equal(await browser.value('by-hand-text'), BODY);
  await checkPage(browser, 'inbox-copy-by-hand');
});

test('what delivery waits for is said: the next attempt, a pause, a target that fails', async () => {
  await show(waiting);
  await browser.untilText('one-state', /^Next: attempt 2/);
  await sql`insert into webhook.pause (paused_by) values ('command')`;
  await browser.untilText('one-state', /paused/);
  await sql`
    insert into webhook.failing_targets (target, failures, failing_since, probe_at)
    values (${TARGET}, 12, now() - interval '10 minutes', now() + interval '50 seconds')`;
  await listRows(RECENT, 3);
  await browser.untilText('held', /paused since .* on the command line.*The next probe is/);
  await checkPage(browser, 'inbox-held');
  await sql`delete from webhook.pause`;
  await sql`delete from webhook.failing_targets`;
});

test('rows change in place, new ones appear once, and the focus stays', async () => {
  const id = await put({ event: 'changes', status: 'waiting', attempts: 1, age: 5 });
  await listRows(RECENT, 4);
  await browser.run(
    `${ROWS}.find((row) => row.innerText.includes('changes')).querySelector('a').focus()`,
  );
  await sql`
    with removed as (delete from webhook.work where event_id = ${id} returning event_id)
    insert into webhook.outcomes (event_id, status, attempts)
    select event_id, 'dead', 2 from removed`;
  await browser.until(`${ROWS}.some((row) => /changes\\s+dead\\s+2 attempts/.test(row.innerText))`);
  const focusedText = () => browser.run('return document.activeElement.innerText');
  assert.equal(await focusedText(), 'changes');
  const names = ['live one', 'a line\u2028separator', 'live two'];
  for (const name of names) await send(name);
  await untilListed('live two');
  const rows = await listed();
  const at = (name: string) => rows.flatMap((row, index) => (row.includes(name) ? [index] : []));
  assert.deepEqual(['live two', 'separator', 'live one'].map(at), [[0], [1], [2]]);
  assert.equal(await focusedText(), 'changes');
  await removeEvents('changes', ...names);
});

test('a reader further down is not disturbed: new events wait behind a button', async () => {
  await listRows('', 50);
  await browser.run('scrollTo(0, document.body.scrollHeight)');
  const names = async () => (await listed()).map((row) => row.replace(/\S+ \S+ ago|now/, ''));
  const before = await names();
  await send('new above');
  await browser.untilVisible('newer');
  assert.deepEqual(await names(), before);
  await browser.click('newer');
  await untilListed('new above');
  await removeEvents('new above');
});

test('of 300 events between two refreshes each is shown, none stays stale, and the page does not grow', async () => {
  await listRows('', 50);
  await browser.run(`
    const rows = document.getElementById('rows');
    window.seen = new Set();
    new MutationObserver(() => {
      for (const { children } of rows.children) seen.add(children[2].textContent);
    }).observe(rows, { childList: true });`);
  await sql`begin`;
  for (let n = 1; n <= 300; n += 1) await put({ event: `live ${n}`, status: 'waiting' });
  await sql`commit`;
  await browser.until('[...seen].filter((name) => name.startsWith("live")).length === 300');
  await untilRows(50);
  await sql`
    with ended as (
      delete from webhook.work where event_id <> ${waiting} returning event_id
    )
    insert into webhook.outcomes (event_id, status, attempts)
    select event_id, 'done', 1 from ended`;
  await browser.until(`${ROWS}.every((row) => row.innerText.includes('done'))`);
  const newest = await sql<Array<{ id: string }>>`
    select id from webhook.events order by received_at desc, id desc limit 50`;
  assert.deepEqual(
    await browser.run(`return ${ROWS}.map((row) => row.dataset.id)`),
    newest.map(({ id }) => id),
  );
  await sql`delete from webhook.events where event like 'live %'`;
});

test('a text is searched in the newest 10,000 events, and on request in older ones', async () => {
  await sql`
    insert into webhook.events (id, token_id, event, body, received_at)
    select gen_random_uuid(), (select token_id from webhook.events limit 1), 'stored',
      convert_to('{"n":"' || n || '"}', 'UTF8'), now() - interval '1 hour' - n * interval '1 s'
    from generate_series(1, 10000) n`;
  await listRows('', 50);
  await browser.fill('by-text', '"n":"10000"');
  await browser.untilText('more', /^Search older events$/);
  await untilRows(0);
  await browser.click('more');
  await untilRows(1);
  await removeEvents('stored');
});
