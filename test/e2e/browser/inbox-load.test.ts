/** The inbox page with 10,000 events, and with 50 new ones a second. Prints what it measures. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { startBrowser, testsExcept } from './browsers.ts';
import { setViewport } from './accessibility.ts';
import { checkAfterEach, openPage } from './setup.ts';
import { KEYS } from './webdriver.ts';

const test = testsExcept([[/./, 'Marionette does not tell how much memory a page uses']]);

const SECONDS = Number(process.env.LIVE_SECONDS ?? 20);
const RATE = 50;
const STORED = 10_000;
const TOTAL = SECONDS * RATE;

const inbox = await openInbox({ after }, { INBOX_PAGE: 'on' });
const { sql } = inbox;
const browser = await startBrowser();
await setViewport(browser, 'desktop');
checkAfterEach(browser);

await sql`
  with new as (
    insert into webhook.events (id, token_id, delivery_id, event, headers, ip, body, received_at)
    select gen_random_uuid(), (select id from webhook.tokens limit 1), 'stored-' || n,
      'page.updated', '{}', '192.0.2.7',
      convert_to('{"event":"page.updated","data":{"page_id":"' || n || '"}}', 'UTF8'),
      now() - interval '1 hour' - n * interval '1 second'
    from generate_series(1, ${STORED}::int) n returning id, received_at
  )
  insert into webhook.outcomes (event_id, status, attempts, ended_at)
  select id, 'done', 1, received_at from new`;

/** KiB that the page's script holds and nodes of its documents, after a collection. */
async function usage(): Promise<{ readonly heap: number; readonly nodes: number }> {
  await browser.devtools('HeapProfiler.collectGarbage', {});
  const { usedSize } = await browser.devtools('Runtime.getHeapUsage', {});
  return {
    heap: Math.round(usedSize / 1024),
    nodes: (await browser.devtools('Memory.getDOMCounters', {})).nodes,
  };
}

/** The numbers of those live events that were shown in a row at some time. */
const shownNumbers = (): Promise<number[]> =>
  browser.run('return [...window.seen.keys()].filter((at) => window.seen[at])');

/** How many rows say "waiting" of events that were delivered more than ten seconds ago. */
async function countStale(): Promise<number> {
  const waiting: string[] = await browser.run(`
    const rows = [...document.querySelectorAll('#rows tr')];
    return rows.filter((row) => row.innerText.includes('waiting')).map((row) => row.dataset.id);`);
  if (waiting.length === 0) return 0;
  return (
    await sql`
    select from webhook.outcomes
    where event_id in ${sql(waiting)} and ended_at < now() - interval '10 seconds'`
  ).length;
}

async function open(): Promise<void> {
  await openPage(browser, `${inbox.url.replace('127.0.0.1', 'localhost')}/inbox`);
  await browser.fill('token', OPERATOR_TOKEN);
  // Notes when the first rows are there, and from then on every row that appears.
  await browser.run(`
    const rows = document.getElementById('rows');
    // Numbers take no memory of the page's: it would grow if it kept names or ids.
    window.seen = new Uint8Array(${TOTAL});
    const note = () => {
      if (rows.children.length > 0) window.firstMs ??= performance.now() - window.startedAt;
      for (const row of rows.children) {
        const number = parseInt(row.children[2].textContent.slice(5));
        window.seen[number] = 1;
      }
    };
    new MutationObserver(note).observe(rows, { childList: true });
    document.getElementById('signin').addEventListener('submit', () => {
window.startedAt = performance.now();
});`);
  await browser.press(KEYS.Enter);
  await browser.until('document.querySelectorAll("#rows tr").length === 50');
}

test('10,000 events: the first rows, and the way to older ones', async () => {
  const times: number[] = [];
  // The first time, the service opens its connection for lists.
  for (let turn = 0; turn < 4; turn += 1) {
    await open();
    times.push(Math.round(await browser.run('return window.firstMs')));
  }
  process.stdout.write(
    `first rows of ${STORED} events after the sign-in: ${times.join(', ')} ms\n`,
  );
  await browser.run('document.getElementById("overview").open = true');
  await browser.fill('by-delivery', `stored-${STORED}`);
  await browser.until('document.querySelectorAll("#rows tr").length === 1');
  await browser.fill('by-delivery', '');
  await browser.fill('by-text', `"page_id":"${STORED}"`);
  await browser.until('document.querySelectorAll("#rows tr").length === 1');
});

test(`${RATE} new events a second: each is shown, none is stale, and the page does not grow`, async () => {
  await open();
  const ids: string[] = [];
  const store = async () => {
    const rows = await sql<Array<{ id: string }>>`
      with new as (
        insert into webhook.events (id, token_id, event, body)
        select gen_random_uuid(), (select id from webhook.tokens limit 1), 'live ' || n, ''
        from generate_series(${ids.length}::int, ${ids.length + 4}) n
        returning id, token_id, received_at
      ), work as (
        insert into webhook.work (event_id, token_id, received_at, due_at)
        select id, token_id, received_at, now() + interval '1 hour' from new
      ) select id from new`;
    ids.push(...rows.map(({ id }) => id));
  };
  /** What waits for longer than a second is delivered. */
  const deliver = () => sql`
    with ended as (
      delete from webhook.work where received_at < now() - interval '1 second' returning event_id
    )
    insert into webhook.outcomes (event_id, status, attempts)
    select event_id, 'done', 1 from ended`;
  const before = await usage();
  const report = async (minute: number) => {
    const { heap, nodes } = await usage();
    const stale = await countStale();
    process.stdout.write(
      `minute ${minute}: heap ${heap} KiB, ${nodes} nodes, ${stale} stale rows\n`,
    );
    return stale;
  };
  let stale = await report(0);
  const startedAt = performance.now();
  for (let turn = 0; turn < TOTAL / 5; turn += 1) {
    await store();
    if (turn % 10 === 0) await deliver();
    if (turn % 600 === 599) stale += await report((turn + 1) / 600);
    await sleep(Math.max(0, startedAt + turn * (5_000 / RATE) - performance.now()));
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  await sleep(1_000);
  await deliver();
  const newest: string[] = ids.slice(-5);
  const areShown = '(id) => document.querySelector(`#rows tr[data-id="${id}"]`)';
  await browser.until(`${JSON.stringify(newest)}.every(${areShown})`);
  const isDone = '(row) => row.innerText.includes("done")';
  await browser.until(`[...document.querySelectorAll("#rows tr")].every(${isDone})`);
  const seen = new Set(await shownNumbers());
  const missed = ids.filter((_id, number) => !seen.has(number));
  const shown: string[] = await browser.run(
    'return [...document.querySelectorAll("#rows tr")].map((row) => row.dataset.id)',
  );
  const stored = await sql<Array<{ id: string }>>`
    select id from webhook.events order by received_at desc, id desc limit ${shown.length}`;
  const { heap, nodes } = await usage();
  process.stdout.write(
    `${ids.length} events in ${seconds.toFixed(1)} s, ${missed.length} never shown, ${stale} stale; ` +
      `${shown.length} rows at the end; heap ${before.heap} to ${heap} KiB, ${before.nodes} to ${nodes} nodes\n`,
  );
  assert.deepEqual(missed, []);
  assert.equal(stale, 0, 'no row is stale');
  assert.deepEqual(
    shown,
    stored.map(({ id }) => id),
  );
  assert.ok(shown.length <= 500, 'the number of rows is bounded');
});
