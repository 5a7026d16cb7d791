/**
 * Statements of the queue are planned once, usually while it is empty. They must not read all of it
 * when it is long.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
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
import { observe } from '../../support/plans.ts';
import { addToken, openWebhook } from '../../support/senders.ts';

const file = await createDatabase();
const { sql } = file;
const observatory = await observe({ after }, file);
const database = openWebhook({ after }, observatory.url);

const PAGES = 200;
const EVENTS = 4_000;
const CLAIMED = 5;
/** Rows of the queue that a statement may look at: those of its events, and a few beside them. */
const MOST = 100;
/** Probes look at a sample of the due events of each sender. */
const MOST_SAMPLED = 1_000;

/** Runs each statement of the queue. @returns the events under a lease at the end */
async function runAll(held: readonly Lease[]) {
  const results = new Map<string, number>();
  const measure = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
    observatory.scans();
    const result = await work();
    const scans = observatory.scans();
    const ofQueue = scans.filter(({ table }) => /^webhook\.(work|pages|page_tails)$/.test(table));
    results.set(
      name,
      ofQueue.reduce((sum, { rows }) => sum + rows, 0),
    );
    return result;
  };
  const claimed = await measure('claim', () => claimWork(database, CLAIMED));
  const [first = UNKNOWN, ...others] = claimed.length > 0 ? claimed : held;
  await measure('renewal', () => renewLeases(database, [first, ...others], LEASE_SECONDS));
  await measure('release', () => releaseWork(database, first, { error: 'failed' }, 60));
  await measure('end', () => endWork(database, others, 'done'));
  await measure('removal of pages', () => removeIdlePages(database, CLAIMED, ['page 1']));
  const probes = await measure('probes', () => claimProbes(database, 1, null));
  return { results, claimed, probes };
}

const UNKNOWN: Lease = {
  id: '00000000-0000-7000-8000-000000000000',
  lease: '00000000-0000-4000-8000-000000000000',
};

test('statements that were planned for an empty queue read few rows of a long one', async () => {
  const { id: token } = await addToken(database, 'generic');
  const { id: unordered } = await addToken(database, 'generic');
  for (const table of ['work', 'pages', 'page_tails', 'events'])
    await sql.unsafe(`alter table webhook.${table} set (autovacuum_enabled = off)`);
  await sql`vacuum analyze`;
  await runAll([UNKNOWN, UNKNOWN]);

  await sql`
    insert into webhook.events (id, token_id, source, event, body)
    select ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, ${token}, 'generic',
      'a', '{}'
    from generate_series(1, ${EVENTS}) n`;
  await sql`
    insert into webhook.work (event_id, token_id, received_at, order_key, seq)
    select id, token_id, received_at, 'page ' || n % ${PAGES}, n / ${PAGES} + 1
    from (
      select id, token_id, received_at, row_number() over (order by id) as n
      from webhook.events
    ) e`;
  await sql`
    insert into webhook.pages (order_key, token_id, head)
    select order_key, token_id, min(seq) from webhook.work group by order_key, token_id`;
  await sql`
    insert into webhook.page_tails (order_key, tail)
    select order_key, max(seq) from webhook.work group by order_key`;
  await sql`
    with event as (
      insert into webhook.events (id, token_id, event, body)
      select gen_random_uuid(), ${unordered}, 'a', ''
      from generate_series(1, ${EVENTS})
      returning id, token_id, received_at
    )
    insert into webhook.work (event_id, token_id, received_at)
    select id, token_id, received_at from event`;
  const { results, claimed, probes } = await runAll([]);
  assert.equal(claimed.length, CLAIMED);
  assert.equal(probes.length, 1);
  const { probes: sampled = 0, ...others } = Object.fromEntries(results);
  for (const [name, rows] of Object.entries(others)) assert.ok(rows <= MOST, `${name}: ${rows}`);
  assert.ok(sampled <= MOST_SAMPLED, `probes: ${sampled}`);
});

/** Stores due events of a token, each with a page of its own as well. */
const addEvents = (token: string, count: number) => sql`
  with event as (
    insert into webhook.events (id, token_id, event, body)
    select gen_random_uuid(), ${token}, 'a', ''
    from generate_series(1, ${count}::int4)
    returning id, token_id, received_at
  ), page as (
    insert into webhook.pages (order_key, token_id)
    select id::text, token_id from event
  )
  insert into webhook.work (event_id, token_id, received_at)
  select id, token_id, received_at from event`;

/** @returns how many rows of the queue a probe reads */
async function rowsOfProbe(except: string | null, on = database) {
  observatory.scans();
  await claimProbes(on, 1, except);
  return observatory
    .scans()
    .filter(({ table }) => table === 'webhook.work' || table === 'webhook.pages')
    .reduce((sum, { rows }) => sum + rows, 0);
}

test('probes that were planned when one sender had all events read few of them later', async () => {
  await sql`truncate webhook.work, webhook.pages, webhook.page_tails`;
  const { id: first } = await addToken(database, 'generic');
  const { id: second } = await addToken(database, 'generic');
  await addEvents(first, 20_000);
  await sql`vacuum analyze`;
  const planning = openWebhook({ after }, observatory.url);
  await claimProbes(planning, 1, null);
  await addEvents(second, 1);
  const rows = await rowsOfProbe(first, planning);
  assert.ok(rows <= MOST_SAMPLED, `${rows}`);
});

test('probes read a bounded part of the events of many senders', async () => {
  await sql`truncate webhook.work, webhook.pages, webhook.page_tails`;
  const tokens = await sql<Array<{ id: string }>>`
    insert into webhook.tokens (id, name, digest)
    select gen_random_uuid(), '', sha256(n::text::bytea)
    from generate_series(1, 300) n
    returning id`;
  for (const { id } of tokens) await addEvents(id, 100);
  const rows = await rowsOfProbe(null);
  assert.ok(rows >= 1_000 && rows <= 16_000, `${rows}`);
});
