/**
 * Every state of the inbox page: screen reader, the rules of axe, contrast, small screens, and a
 * picture of each.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { untilSql } from '../../support/connections.ts';
import { startBrowser } from './browsers.ts';
import {
  checkAppearance,
  enlargeText,
  openState,
  overflowing,
  type PageState,
  setViewport,
} from './accessibility.ts';
import { drivePage, ROWS } from './inbox-page.ts';
import { checkAfterEach, openPage } from './setup.ts';

const failing = JSON.stringify([
  process.execPath,
  '-e',
  'console.error("no route to the database"); process.exit(1)',
]);
const inbox = await openInbox(
  { after },
  {
    INBOX_PAGE: 'on',
    SITE_NAME: 'Example Ltd',
    WEBHOOK_EVENTS: 'none',
    WEBHOOK_COMMAND: failing,
  },
);
const empty = await openInbox({ after }, { INBOX_PAGE: 'on', SITE_NAME: 'Example Ltd' });
const { put, send, sql } = inbox;
const browser = await startBrowser();
const { list, listRows, show, untilRows, untilText, url } = drivePage(inbox, browser);
const emptyPage = drivePage(empty, browser);
checkAfterEach(browser);

const body = JSON.stringify({
  event: 'order.paid',
  data: {
    page_id: 'order 1042',
    customer: 'Zoë Ångström',
    items: [{ sku: 'A-1', count: 2 }, null],
  },
  amount: 129.9,
  is_test: false,
  comment: 'a long text without a break: '.repeat(8),
});
const errors = [
  'the target answered 503',
  'the target did not answer within 30 s',
  `exit status 1: ${'no route '.repeat(20)}`,
];
const dead = await put({
  event: 'order.paid',
  source: 'stripe',
  status: 'dead',
  attempts: 3,
  deliveryId: 'evt_1PqZ8x2eZvKYlo2C',
  body,
  age: 40,
  errors,
});
await sql`
  update webhook.failures
  set duration_ms = 1234, answer_status = 503, answer = 'Service Unavailable'
  where event_id = ${dead} and attempt = 1`;
const done = await put({
  event: 'page.updated',
  source: 'notion',
  status: 'done',
  attempts: 2,
  age: 50,
  errors: ['the target answered 502'],
});
const waiting = await put({
  event: 'push',
  source: 'github',
  status: 'waiting',
  attempts: 1,
  age: 30,
  errors: ['the target answered 500'],
});
const unformatted = await put({
  event: 'slash.command',
  source: 'slack',
  body: 'token=x&team_id=T1&text=hello+there',
  age: 60,
});
await put({ event: 'page.deleted', status: 'skipped', age: 65 });
await put({ event: `order.${'a-very-long-name-'.repeat(12)}`, status: 'skipped', age: 70 });
for (let i = 0; i < 60; i += 1)
  await put({ event: 'page.updated', status: 'done', attempts: 1, age: 100 + i * 75 });

// The state "failing" makes this failure of the target older.
await inbox.call('POST', `/events/${done}/redeliver`);
await untilSql(
  async () => (await sql`select from webhook.failing_targets`).length === 1,
  'a failure',
);

/** Fewer rows than a page of them, which are quicker to check. */
const RECENT = '?age=15m';

const STATES: readonly PageState[] = [
  [
    'signin',
    () => openPage(browser, `${url}/inbox`),
    {
      token: ['textbox', 'Operator token'],
      open: ['button', 'Open inbox'],
    },
  ],
  [
    'refused',
    () => list('', 'wrong').then(() => untilText('token-error', /./)),
    { 'token-error': ['alert', ''] },
  ],
  [
    'expired',
    async () => {
      await listRows(RECENT);
      await sql`update webhook.tokens set revoked_at = now() where role = 'operator'`;
      await untilText('token-error', /./);
      await sql`update webhook.tokens set revoked_at = null where role = 'operator'`;
    },
    { token: ['textbox', 'Operator token'] },
  ],
  [
    'unreachable',
    async () => {
      await openPage(browser, `${url}/inbox`);
      await browser.fill('token', OPERATOR_TOKEN);
      await browser.setOffline(true);
      await browser.click('open');
      await untilText('token-error', /did not answer/);
    },
    { 'token-error': ['alert', ''] },
  ],
  ['empty', () => emptyPage.listRows(), {}],
  [
    'list',
    () => listRows(),
    {
      'by-text': ['searchbox', 'Text in the body'],
      'by-event': ['searchbox', 'Event name'],
      'by-source': ['combobox', 'Source'],
      'by-age': ['combobox', 'Received'],
      pause: ['button', 'Pause delivery'],
      'again-all': ['button', 'Redeliver all that match…'],
      more: ['button', 'Load older events'],
    },
  ],
  [
    'list-day',
    async () => {
      await listRows(RECENT);
      await browser.run('document.getElementById("span-day").click()');
      await browser.until('document.querySelectorAll("#chart g").length === 24');
    },
    {},
  ],
  [
    'second-page',
    async () => {
      await listRows();
      await browser.click('more');
      await browser.until(`${ROWS}.length > 60`);
      await browser.run('scrollTo(0, document.body.scrollHeight)');
    },
    {},
  ],
  [
    'live',
    async () => {
      await listRows();
      await untilRows(50);
      await browser.run('scrollTo(0, document.body.scrollHeight)');
      await send('new above');
      await browser.untilVisible('newer');
    },
    { newer: ['button', 'Show new events'] },
  ],
  [
    'no-match',
    () => listRows('?event=nothing').then(() => browser.untilVisible('empty')),
    {
      clear: ['button', 'Clear filters'],
    },
  ],
  [
    'selected',
    async () => {
      await listRows(RECENT);
      await browser.clickOn('#rows tr:nth-child(2) input');
      await browser.clickOn('#rows tr:nth-child(3) input');
    },
    { 'again-selected': ['button', 'Redeliver 2 selected'] },
  ],
  [
    'confirm',
    async () => {
      await listRows('?status=dead');
      await browser.click('again-all');
      await untilText('bulk-text', /^Redeliver 1 event\?/);
    },
    { 'bulk-yes': ['button', 'Redeliver 1 event'], 'bulk-no': ['button', 'Cancel'] },
  ],
  [
    'confirmed',
    async () => {
      await listRows('?status=skipped');
      await sql`insert into webhook.pause (paused_by) values ('command') on conflict do nothing`;
      await browser.click('again-all');
      await untilText('bulk-text', /^Redeliver \d events\?/);
      await browser.click('bulk-yes');
      await untilText('bulk-text', /^\d events will be delivered again\.$/);
    },
    {},
  ],
  [
    'paused',
    async () => {
      await sql`insert into webhook.pause (paused_by) values ('command') on conflict do nothing`;
      await listRows(RECENT);
      await browser.untilVisible('held');
    },
    { pause: ['button', 'Resume delivery'] },
  ],
  [
    'failing',
    async () => {
      await sql`
        update webhook.failing_targets
        set failures = 12, failing_since = now() - interval '10 minutes',
          probe_at = now() + interval '50 seconds'`;
      await listRows(RECENT);
      await untilText('held', /The next probe is/);
    },
    { held: ['status', ''] },
  ],
  [
    'list-offline',
    async () => {
      await listRows(RECENT);
      await browser.setOffline(true);
      await untilText('list-problem', /did not answer/);
    },
    { 'list-problem': ['alert', ''] },
  ],
  [
    'event-dead',
    () => show(dead),
    {
      again: ['button', 'Redeliver'],
      'copy-link': ['button', 'Copy link'],
      'copy-curl': ['button', 'Copy as curl'],
      'copy-body': ['button', 'Copy body'],
      download: ['button', 'Download body'],
      back: ['link', '← All events'],
    },
  ],
  ['event-waiting', () => show(waiting).then(() => untilText('one-state', /^Next: attempt 2/)), {}],
  [
    'event-paused',
    async () => {
      await sql`insert into webhook.pause (paused_by) values ('command') on conflict do nothing`;
      await show(waiting);
      await untilText('one-state', /paused/);
    },
    {},
  ],
  [
    'event-redelivered',
    () => show(done).then(() => untilText('attempts', /Redelivery 1[\s\S]*First delivery/)),
    {},
  ],
  [
    'event-raw',
    () => show(unformatted).then(() => browser.untilVisible('raw')),
    { 'form-raw': ['radio', 'Raw'] },
  ],
  [
    'event-copy-by-hand',
    async () => {
      await show(dead);
      await browser.run(
        'navigator.clipboard.writeText = async () => { throw new Error("denied"); }',
      );
      await browser.click('copy-body');
      await browser.untilVisible('by-hand-text');
    },
    {
      'by-hand-text': [
        'textbox',
        'The browser does not allow copying. Press Ctrl+C to copy this text.',
      ],
    },
  ],
  [
    'event-removed',
    async () => {
      const id = await put({ event: 'gone soon', age: 15 });
      await show(id);
      await sql`delete from webhook.events where id = ${id}`;
      await untilText('one-problem', /no longer kept/);
    },
    { 'one-problem': ['alert', ''] },
  ],
  [
    'event-unknown',
    async () => {
      await list('?id=00000000-0000-4000-8000-000000000000');
      await untilText('one-problem', /no longer kept/);
    },
    {},
  ],
];

/** Takes back what a state has changed for the others. */
async function restore(): Promise<void> {
  await browser.setOffline(false);
  await sql`delete from webhook.pause`;
  await untilSql(
    async () => (await sql`select from webhook.work where lease is not null`).length === 0,
    'no attempt',
  );
  await sql`update webhook.failing_targets set failures = 1, failing_since = now(), probe_at = now()`;
}

for (const state of STATES) {
  const [name] = state;
  test(`inbox, ${name}: screen reader, axe, contrast, target size and reflow`, async () => {
    await restore();
    await openState(browser, state);
    await checkAppearance(browser, `inbox-${name}`);
    await enlargeText(browser);
    assert.deepEqual(
      await overflowing(browser),
      [],
      'nothing overflows on a phone at twice the text size',
    );
    await setViewport(browser, 'desktop');
  });
}
