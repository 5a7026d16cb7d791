/** What statements of webhook read, by the plans that PostgreSQL really ran. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readBacklog } from '../../../src/webhook/store/events.ts';
import { claimProbes } from '../../../src/webhook/store/probes.ts';
import {
  claimWork,
  endWork,
  type Lease,
  LEASE_SECONDS,
  releaseWork,
  removeIdlePages,
  renewLeases,
} from '../../../src/webhook/store/work.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { observe, type Scan } from '../../support/plans.ts';
import { rounds } from '../../support/rounds.ts';
import { openWebhook } from '../../support/senders.ts';
import { fillQueue } from '../../support/webhook-store.ts';

const lists = await createDatabase();
const observedLists = await observe({ after }, lists);
const { webhook } = (await startGatehouse({ after }, ['webhook'], observedLists.url)).url;
await addOperator(lists.sql);
const queue = await createDatabase();
const { sql } = queue;
const observatory = await observe({ after }, queue);
const database = openWebhook({ after }, observatory.url);

const rowsOf = (scans: readonly Scan[], ...tables: readonly string[]) =>
  scans
    .filter(({ table }) => tables.some((one) => `webhook.${one}` === table))
    .reduce((sum, { rows }) => sum + rows, 0);

const DONE = 20_000;
const DEAD = 3_000;
const WAITING = 3_000;
const STORED = 200;
const PAGE = 100;
/** Besides the page: the event after it, and a row in each of the tables of what became of it. */
const READ = 110;

async function fillLists(): Promise<void> {
  await ask('POST', `${webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event: 'a', data: { page_id: 'p' } },
  });
  // Dead and waiting events are spread over all times.
  await lists.sql`
    insert into webhook.events (id, token_id, delivery_id, event, body, received_at)
    select gen_random_uuid(), t.id, 'delivery-' || n, 'page.updated', '{}',
      now() - n * interval '1 minute'
    from generate_series(1, ${DONE + DEAD + WAITING + STORED}) n,
      (select id from webhook.tokens where role = 'sender' limit 1) t`;
  await lists.sql`
    create temporary table placed as
    select id, token_id, received_at, row_number() over (order by md5(id::text)) as n
    from webhook.events`;
  await lists.sql`
    insert into webhook.outcomes (event_id, status, attempts, received_at)
    select id, case when n <= ${DEAD} then 'dead' else 'done' end, 1, received_at
    from placed where n <= ${DONE + DEAD}`;
  await lists.sql`
    insert into webhook.work (event_id, token_id, received_at)
    select id, token_id, received_at
    from placed where n between ${DONE + DEAD + 1} and ${DONE + DEAD + WAITING}`;
  await lists.sql`vacuum analyze`;
}
await fillLists();

const list = (path: string) => ask('GET', webhook + path, { bearer: OPERATOR_TOKEN });

/**
 * A statement is planned for its values five times before PostgreSQL may settle on one plan for
 * all.
 * @returns what the last one read
 */
async function readBy(query: string, found = PAGE): Promise<Scan[]> {
  let scans: Scan[] = [];
  for (let round = rounds(2, 7); round > 0; round -= 1) {
    observedLists.scans();
    const { status, text, json } = await list(`/events?limit=${PAGE}${query}`);
    assert.deepEqual([status, json.length], [200, found], `${query}: ${text.slice(0, 300)}`);
    scans = observedLists.scans().filter(({ statement }) => statement.includes('webhook.events'));
  }
  assert.ok(scans.length > 0);
  return scans;
}

test('a page of events, or of dead events, reads only the rows that it shows, by indexes', async () => {
  const dead = await list('/events?limit=100&status=dead');
  const { id, received_at: at } = dead.json.at(-1);
  for (const query of [
    '',
    '&status=dead',
    `&status=dead&after=${id}`,
    `&status=dead&until=${at}`,
    '&status=dead&since=2020-01-01T00:00:00Z',
  ]) {
    const scans = await readBy(query);
    for (const { node, table, rows, statement } of scans)
      assert.ok(
        (rows <= READ && node !== 'Seq Scan') || rows <= 3,
        `${query}: ${node} of ${rows} rows of ${table} for ${statement}`,
      );
    assert.ok(rowsOf(scans, 'outcomes') <= READ * (query === '' ? 1 : 2), query);
  }
});

test('a page of waiting events reads the table of these, and only its own of the others', async () => {
  const scans = await readBy('&status=waiting');
  assert.ok(rowsOf(scans, 'work') <= WAITING + READ);
  for (const table of ['events', 'outcomes', 'failures'])
    assert.ok(rowsOf(scans, table) <= READ, table);
});

test('the page of an event is found by its delivery id', async () => {
  for (const { table, rows } of await readBy('&delivery_id=delivery-77', 1))
    assert.ok(rows <= 3, `${rows} rows of ${table}`);
});

test('waiting and dead events are counted up to a limit, and no more are read', async () => {
  const nothing = { waiting: 0, oldest: 0, dead: 0, paused: 0 };
  assert.deepEqual(await readBacklog(database, 5), nothing);
  await sql`
    insert into webhook.work (event_id, token_id, received_at)
    select gen_random_uuid(), gen_random_uuid(), now() - n * interval '1 hour'
    from generate_series(1, 30) as n`;
  await sql`
    insert into webhook.outcomes (event_id, status, attempts)
    select gen_random_uuid(), case when n <= 20 then 'dead' else 'done' end, 1
    from generate_series(1, 50) as n`;
  await sql`insert into webhook.pause (paused_by) values ('test')`;
  await sql`vacuum analyze`;
  const { oldest, ...all } = await readBacklog(database, 1_000);
  const hours = Math.floor(oldest / 3_600);
  assert.deepEqual({ ...all, hours }, { waiting: 30, dead: 20, paused: 1, hours: 30 });
  observatory.scans();
  const { waiting, dead } = await readBacklog(database, 5);
  const scans = observatory.scans();
  const read = ['work', 'outcomes', 'pause'].map((table) => rowsOf(scans, table));
  assert.deepEqual([waiting, dead, ...read], [5, 5, 5, 5, 1]);
  await sql`truncate webhook.work, webhook.outcomes, webhook.pause`;
});

const CLAIMED = 5;
const UNKNOWN: Lease = {
  id: '00000000-0000-7000-8000-000000000000',
  lease: '00000000-0000-4000-8000-000000000000',
};

/** @returns how many rows of the queue each of its statements reads */
async function readByQueue(on = database, except: string | null = null) {
  const measure = async <T>(work: Promise<T>) => {
    const result = await work;
    return { result, rows: rowsOf(observatory.scans(), 'work', 'pages', 'page_tails') };
  };
  observatory.scans();
  const claimed = await measure(claimWork(on, CLAIMED));
  const [first = UNKNOWN, ...others] = claimed.result;
  const held = [first, ...(others.length > 0 ? others : [UNKNOWN])];
  const work = [
    claimed,
    await measure(renewLeases(on, held, LEASE_SECONDS)),
    await measure(releaseWork(on, first, { error: 'failed' }, 60)),
    await measure(endWork(on, held.slice(1), 'done')),
    await measure(removeIdlePages(on, CLAIMED, ['deep page'])),
  ];
  const probes = await measure(claimProbes(on, 1, except));
  return {
    found: [claimed.result.length, probes.result.length],
    most: Math.max(...work.map(({ rows }) => rows)),
    sampled: probes.rows,
  };
}

const addSenders = async (count: number) => {
  const rows = await sql<Array<{ id: string }>>`
    insert into webhook.tokens (id, name, digest)
    select gen_random_uuid(), '', sha256(gen_random_uuid()::text::bytea)
    from generate_series(1, ${count})
    returning id`;
  return rows.map(({ id }) => id);
};

/** Due events, so many without a page and so many in a page of their own each. */
async function addEvents(tokens: readonly string[], count: number): Promise<void> {
  for (const isOrdered of [false, true]) await fillQueue(sql, tokens, count, { isOrdered });
}

/** Many events wait behind the first one of a page. */
async function addDeepPage(token: string): Promise<void> {
  await sql`
    with event as (
      insert into webhook.events (id, token_id, event, body)
      select gen_random_uuid(), ${token}, n::text, '' from generate_series(1, 3000) n
      returning id, token_id, received_at, event::int4 as seq
    )
    insert into webhook.work (event_id, token_id, received_at, order_key, seq)
    select id, token_id, received_at, 'deep page', seq from event`;
  await sql`
    insert into webhook.pages (order_key, token_id, due_at)
    values ('deep page', ${token}, now() - interval '1 hour')`;
  await sql`insert into webhook.page_tails (order_key, tail) values ('deep page', 3000)`;
}

test('statements of the queue read few rows of a long one, whenever they were planned', async () => {
  for (const table of ['work', 'pages', 'page_tails', 'events'])
    await sql.unsafe(`alter table webhook.${table} set (autovacuum_enabled = off)`);
  await sql`vacuum analyze`;
  // Planned for an empty queue.
  assert.deepEqual((await readByQueue()).found, [0, 0]);
  const [first = ''] = await addSenders(1);
  await addEvents([first], 20_000);
  await addDeepPage(first);
  const ofEmpty = await readByQueue();
  await sql`vacuum analyze`;
  // Planned when one sender has all events.
  const planned = openWebhook({ after }, observatory.url);
  const ofLong = await readByQueue(planned);
  for (const { found, most, sampled } of [ofEmpty, ofLong]) {
    assert.deepEqual(found, [CLAIMED, 1]);
    assert.ok(most <= 100 && sampled <= 1_000, `${most} rows, and ${sampled} by probes`);
  }
  await addEvents(await addSenders(1), 1);
  const { sampled } = await readByQueue(planned, first);
  assert.ok(sampled <= 1_000, `${sampled} rows for probes of the other sender`);
  await addEvents(await addSenders(300), 50);
  for (const on of [database, planned]) {
    const { most, sampled } = await readByQueue(on);
    assert.ok(
      most <= 150 && sampled >= 1_000 && sampled <= 16_000,
      `${most}, ${sampled} by probes`,
    );
  }
});
