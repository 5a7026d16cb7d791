/** The events of one sender, however many, do not delay those of another. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { claimWork } from '../../../src/webhook/store/work.ts';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { observe } from '../../support/plans.ts';
import { openWebhook } from '../../support/senders.ts';
import { latch, test } from '../../support/until.ts';
import { openWorkQueue } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database } = queue;
const SLOTS = 10;
const BACKLOG = 600;

/** Stores due events, the first ones first, each in a page of its own if it is ordered. */
const fill = (token: string, count: number, isOrdered = false, on = sql) => on`
  with event as (
    insert into webhook.events (id, token_id, event, body)
    select gen_random_uuid(), ${token}, n::text, ''
    from generate_series(1, ${count}::int4) n
    returning id, token_id, event
  ), page as (
    insert into webhook.pages (order_key, token_id, due_at)
    select id::text, token_id, now() - interval '1 hour' + event::int4 * interval '1 ms'
    from event
    where ${isOrdered}
  )
  insert into webhook.work (event_id, token_id, received_at, due_at, order_key, seq)
  select id, token_id, now(), now() - interval '1 hour' + event::int4 * interval '1 ms',
    case when ${isOrdered} then id::text end, case when ${isOrdered} then 1 end
  from event`;
const clear = () => sql`truncate webhook.work, webhook.pages, webhook.page_tails, webhook.events`;

const senders = async (count: number) =>
  Promise.all(Array.from({ length: count }, (_, n) => queue.addToken(`sender ${n}`)));

/** Claims as a worker does. */
function claims(limit: number) {
  let next: string | null = null;
  return async () => {
    const events = await claimWork(database, limit, undefined, next);
    if (events[0]) next = events[0].next_sender;
    return events;
  };
}

const countBy = (events: ReadonlyArray<{ token_id: string }>, { id }: { id: string }) =>
  events.filter(({ token_id }) => token_id === id).length;

for (const kind of ['events', 'pages'] as const) {
  const isOrdered = kind === 'pages';

  test(`behind the ${kind} of one sender, an event of another is in the next claim`, async () => {
    await clear();
    const [many, few] = await senders(2);
    assert.ok(many && few);
    await fill(many.id, BACKLOG, isOrdered);
    const claim = claims(SLOTS);
    assert.equal(countBy(await claim(), many), SLOTS, 'one sender alone gets every slot');
    await fill(few.id, 1, isOrdered);
    const events = await claim();
    assert.equal(countBy(events, few), 1);
    assert.ok(countBy(events, many) >= SLOTS / 2);
    assert.equal((await claim()).length, SLOTS, 'and then again');
  });

  test(`the ${kind} of a sender alone are claimed oldest first`, async () => {
    await clear();
    const [one] = await senders(1);
    assert.ok(one);
    await fill(one.id, 30, isOrdered);
    const claim = claims(SLOTS);
    for (const first of [1, 11, 21]) {
      const names = (await claim()).map(({ event }) => Number(event)).sort((a, b) => a - b);
      assert.deepEqual(
        names,
        Array.from({ length: SLOTS }, (_, n) => first + n),
      );
    }
    assert.equal((await claim()).length, 0);
  });
}

test('senders with a backlog get equal shares, also of events and pages together', async () => {
  await clear();
  const [first, second, third] = await senders(3);
  assert.ok(first && second && third);
  await fill(first.id, BACKLOG);
  await fill(second.id, BACKLOG, true);
  await fill(third.id, BACKLOG);
  await fill(third.id, BACKLOG, true);
  const claim = claims(SLOTS);
  const counts = [0, 0, 0];
  for (let round = 0; round < 30; round += 1) {
    const events = await claim();
    assert.equal(events.length, SLOTS);
    [first, second, third].forEach((sender, n) => {
      counts[n] = (counts[n] ?? 0) + countBy(events, sender);
    });
  }
  // Of ten slots, the last one goes to any of the three.
  for (const count of counts) assert.ok(count >= 90 && count < 120, String(counts));
});

test('of more senders than slots, each has its turn once in a round', async () => {
  for (const slots of [1, 3, 5]) {
    await clear();
    const all = await senders(6);
    for (const { id } of all) await fill(id, 50);
    const claim = claims(slots);
    let claimed: Array<{ token_id: string }> = [];
    while (claimed.length < 60) claimed = [...claimed, ...(await claim())];
    const counts = all.map((sender) => countBy(claimed, sender));
    // The last slots of a round are those of the oldest events.
    assert.ok(Math.min(...counts) >= 7, `${slots} slots: ${counts.join()}`);
  }
});

test('senders that only wait for retries do not hide one with a due event', async () => {
  await clear();
  const waiting = await senders(150);
  for (const { id } of waiting) await fill(id, 1);
  await sql`update webhook.work set due_at = now() + interval '1 hour'`;
  const [due] = await senders(1);
  assert.ok(due);
  await fill(due.id, 3);
  assert.equal(countBy(await claims(SLOTS)(), due), 3);
});

test('a worker begins the event of another sender among its next attempts', async () => {
  await clear();
  const [many, few] = await senders(2);
  assert.ok(many && few);
  await fill(many.id, BACKLOG);
  const { opened, open } = latch();
  const begun: string[] = [];
  const worker = queue.startWorker(
    async ({ token_id }) => {
      begun.push(token_id);
      await opened;
      return null;
    },
    { concurrency: SLOTS },
  );
  await untilSql(async () => begun.length === SLOTS, 'every slot is taken');
  await queue.put({ token: few });
  open();
  await untilSql(
    async () => (await sql`select from webhook.work`).length === 0,
    'everything is delivered',
  );
  assert.equal(begun.length, BACKLOG + 1);
  const behind = begun.indexOf(few.id) - SLOTS;
  assert.ok(behind < 2 * SLOTS, `behind ${behind} later attempts`);
  await worker.stop();
});

test('a claim reads as much of a long queue of many senders as of a short one', async () => {
  const file = await createDatabase({ after });
  const observatory = await observe({ after }, file);
  const observed = openWebhook({ after }, observatory.url);
  for (const table of ['work', 'pages', 'events'])
    await file.sql.unsafe(`alter table webhook.${table} set (autovacuum_enabled = off)`);
  const read = async (limit: number, on = observed) => {
    observatory.scans();
    const events = await claimWork(on, limit);
    assert.equal(events.length, limit);
    return observatory
      .scans()
      .filter(({ table }) => table === 'webhook.work' || table === 'webhook.pages')
      .reduce((sum, { rows }) => sum + rows, 0);
  };
  const add = async (count: number) =>
    file.sql<Array<{ id: string }>>`
      insert into webhook.tokens (id, name, digest)
      select gen_random_uuid(), '', sha256(gen_random_uuid()::text::bytea)
      from generate_series(1, ${count})
      returning id`;
  const [first] = await add(1);
  assert.ok(first);
  await file.sql`vacuum analyze`;
  await fill(first.id, 20, false, file.sql);
  await fill(first.id, 20, true, file.sql);
  const short = await read(SLOTS);
  // Statistics by which one sender has every event.
  await fill(first.id, 20_000, false, file.sql);
  await fill(first.id, 20_000, true, file.sql);
  await file.sql`vacuum analyze`;
  const planned = openWebhook({ after }, observatory.url);
  const long = await read(SLOTS, planned);
  assert.ok(long <= short + SLOTS, `${long} rows of a long queue, ${short} of a short one`);
  for (const { id } of await add(300)) {
    await fill(id, 20, false, file.sql);
    await fill(id, 20, true, file.sql);
  }
  for (const on of [observed, planned]) {
    const rows = await read(SLOTS, on);
    assert.ok(rows <= 15 * SLOTS, `${rows} rows of 300 senders`);
  }
});
