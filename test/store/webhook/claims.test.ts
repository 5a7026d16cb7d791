/**
 * Whose events are next. Of a page, one at a time, in the order of commits, whatever waits behind
 * it. Of senders, each in its turn: the events of one, however many, do not delay those of another.
 */
import assert from 'node:assert/strict';
import { after, type TestContext } from 'node:test';
import type { LeasedEvent } from '../../../src/webhook/model.ts';
import { redeliver } from '../../../src/webhook/store/events.ts';
import {
  claimWork,
  endWork,
  LEASE_SECONDS,
  releaseWork,
  removeIdlePages,
  renewLeases,
} from '../../../src/webhook/store/work.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { createWaits, holdStatements } from '../../support/hold.ts';
import { someTurns, test } from '../../support/until.ts';
import {
  fillQueue,
  newEvent,
  openWorkQueue,
  type WorkQueue,
  store,
} from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, claim, clear, endLeases, stateOf } = queue;
const names = (events: readonly LeasedEvent[]) => events.map(({ event }) => event).sort();
const countPages = async () =>
  (await sql`select from webhook.pages join webhook.page_tails using (order_key)`).length;

/** Keeps the commit of events named `late` from happening. */
async function holdCommits(t: TestContext, { sql, databaseUrl }: WorkQueue) {
  await createWaits(sql);
  await sql`
    create constraint trigger delay after insert on webhook.events
    deferrable initially deferred
    for each row when (new.event = 'late') execute function wait_in_trigger(1)`;
  const isLocked = async () => {
    const waiting = await sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event = 'transactionid'`;
    return waiting.length > 0;
  };
  return { ...(await holdStatements(t, databaseUrl)), isLocked };
}

test('one event of a page is leased at a time, by its lease, its retry and its end', async () => {
  await clear();
  for (const event of ['a1', 'a2', 'a3', 'b1', 'b2'])
    await queue.put({ event, order_key: event.slice(0, 1) });
  await queue.put({ event: 'c' });
  assert.equal((await claim(2)).length, 2, 'at most as many as asked for');
  await endLeases();
  const first = await claim();
  assert.deepEqual(names(first), ['a1', 'b1', 'c']);
  assert.equal((await claim()).length, 0, 'while the leases hold');
  await endLeases();
  await renewLeases(database, first, LEASE_SECONDS);
  assert.equal((await claim()).length, 0, 'a renewal extends the lease of a page');
  await endLeases();
  const second = await claim();
  assert.deepEqual(names(second), ['a1', 'b1', 'c'], 'the same after the leases expire');
  const [a, b, c] = second.sort((one, other) => (one.event < other.event ? -1 : 1));
  assert.ok(a && b && c);
  await releaseWork(database, a, { error: 'failed' }, 3_600);
  await endWork(database, [{ ...b, result: { error: 'failed' } }], 'dead');
  const [placed] = await sql`
    select e.received_at = o.received_at as is_same
    from webhook.outcomes o join webhook.events e on e.id = o.event_id`;
  assert.equal(placed?.is_same, true, 'dead events are listed by the time they were received');
  assert.deepEqual(names(await claim()), ['b2'], 'a2 waits behind the retry of a1');
  assert.equal(await redeliver(database, [a.id]), 1);
  const again = await claim();
  assert.deepEqual(
    again.map(({ event, attempt }) => [event, attempt]),
    [['a1', 4]],
    'redelivered by hand, the event that waits is due now',
  );
});

test('delivery of a page continues after a deletion by hand, and idle pages are removed', async () => {
  await clear();
  for (const event of ['a1', 'a2', 'a3']) await queue.put({ event, order_key: 'a' });
  await sql`delete from webhook.work where seq = 1`;
  for (const expected of ['a2', 'a3']) {
    const events = await claim();
    assert.deepEqual(names(events), [expected]);
    assert.equal(await removeIdlePages(database, 10), 0);
    assert.equal(await countPages(), 1);
    await endWork(database, events, 'done');
  }
  assert.equal(await countPages(), 0);
  // The removal of the page fails, and the outcome is stored.
  const a4 = await queue.put({ event: 'a4', order_key: 'a' });
  const events = await claim();
  await sql`alter table webhook.page_tails rename to absent`;
  await endWork(database, events, 'done');
  await sql`alter table webhook.absent rename to page_tails`;
  assert.deepEqual(await stateOf(a4), { status: 'done', attempts: 1, errors: [] });
  await queue.put({ event: 'b1', order_key: 'b' });
  assert.deepEqual(names(await claim(1)), ['b1'], 'a page without events takes no place');
  assert.equal(await removeIdlePages(database, 10), 1);
  await queue.put({ event: 'b2', order_key: 'b' });
  await queue.put({ event: 'a5', order_key: 'a' });
  const last = await claim();
  assert.deepEqual(names(last), ['a5']);
  await endWork(database, last, 'done');
  assert.equal(await countPages(), 1, 'whatever waits in other pages');
});

test('an event that commits late delays those behind it, and the page is not removed meanwhile', async (t) => {
  const own = await openWorkQueue(t);
  const gate = await holdCommits(t, own);
  for (const event of ['first', 'second']) await own.put({ event, order_key: 'page' });
  /** Of a replica of its own. */
  const storing = () => {
    const replica = openConnections(t, own.databaseUrl, 'webhook');
    return (event: string, order_key: string) =>
      store(replica, newEvent(own.token, { event, order_key }));
  };
  const late = storing()('late', 'page');
  await gate.met();
  for (const event of ['first', 'second']) {
    const events = await own.claim();
    assert.deepEqual(names(events), [event]);
    await endWork(own.database, events, 'done');
  }
  assert.equal((await own.claim()).length, 0);
  assert.equal(await removeIdlePages(own.database, 10), 0, 'its tail is locked');
  const storeNext = storing();
  const next = Array.from({ length: 40 }, (_, number) => `next ${number}`);
  const others = next.map((event) => storeNext(event, 'page'));
  await untilSql(gate.isLocked, 'the others wait for it');
  await storeNext('other', 'another page');
  await gate.release();
  await Promise.all([late, ...others]);
  assert.deepEqual(names(await own.claim()), ['late', 'other']);
  const statements = await own.sql`
    select distinct xmin::text from webhook.events where event like 'next%'`;
  assert.ok(statements.length <= 4, `${statements.length} statements`);
  await own.endLeases();
  const delivered: string[] = [];
  const worker = own.startWorker(async ({ event }) => {
    delivered.push(event);
    await someTurns();
    return null;
  });
  await own.nothingWaits();
  await worker.stop();
  const ofPage = delivered.filter((event) => event !== 'other');
  assert.deepEqual(ofPage, ['late', ...next]);
});

// --- Turns of senders

const SLOTS = 10;
const BACKLOG = 600;

type Sender = Readonly<{ id: string }>;

const fill = ({ id }: Sender, count: number, isOrdered = false) =>
  fillQueue(sql, [id], count, { isOrdered });

/** New senders, without events of others. */
async function senders(count: number) {
  await clear();
  return Promise.all(Array.from({ length: count }, (_, n) => queue.addToken(`sender ${n}`)));
}

/** Claims as a worker does. */
function claims(limit: number) {
  let next: string | null = null;
  return async () => {
    const events = await claimWork(queue.database, limit, undefined, next);
    if (events[0]) next = events[0].next_sender;
    return events;
  };
}

const countBy = (events: ReadonlyArray<{ token_id: string }>, { id }: Sender) =>
  events.filter(({ token_id }) => token_id === id).length;

for (const kind of ['events', 'pages'] as const) {
  const isOrdered = kind === 'pages';

  test(`behind the ${kind} of one sender, an event of another is in the next claim`, async () => {
    const [many, few] = await senders(2);
    assert.ok(many && few);
    await fill(many, BACKLOG, isOrdered);
    const claim = claims(SLOTS);
    assert.equal(countBy(await claim(), many), SLOTS, 'one sender alone gets every slot');
    await fill(few, 1, isOrdered);
    const events = await claim();
    assert.equal(countBy(events, few), 1);
    assert.ok(countBy(events, many) >= SLOTS / 2);
    assert.equal((await claim()).length, SLOTS, 'and then again');
  });

  test(`the ${kind} of a sender alone are claimed oldest first`, async () => {
    const [one] = await senders(1);
    assert.ok(one);
    await fill(one, 30, isOrdered);
    const claim = claims(SLOTS);
    for (const first of [1, 11, 21]) {
      const names = (await claim()).map(({ event }) => Number(event)).sort((a, b) => a - b);
      const expected = Array.from({ length: SLOTS }, (_, n) => first + n);
      assert.deepEqual(names, expected);
    }
    assert.equal((await claim()).length, 0);
  });
}

test('senders with a backlog get equal shares, also of events and pages together', async () => {
  const all = await senders(3);
  const [first, second, third] = all;
  assert.ok(first && second && third);
  for (const one of [first, third]) await fill(one, BACKLOG);
  for (const one of [second, third]) await fill(one, BACKLOG, true);
  const claim = claims(SLOTS);
  const claimed: Array<{ token_id: string }> = [];
  for (let round = 0; round < 30; round += 1) claimed.push(...(await claim()));
  assert.equal(claimed.length, 30 * SLOTS);
  // Of ten slots, the last one goes to any of the three.
  const counts = all.map((one) => countBy(claimed, one));
  assert.ok(Math.min(...counts) >= 90, counts.join());
});

test('of more senders than slots, each has its turn once in a round', async () => {
  for (const slots of [1, 3, 5]) {
    const all = await senders(6);
    for (const one of all) await fill(one, 50);
    const claim = claims(slots);
    const claimed: Array<{ token_id: string }> = [];
    while (claimed.length < 60) claimed.push(...(await claim()));
    const counts = all.map((one) => countBy(claimed, one));
    // The last slots of a round are those of the oldest events.
    assert.ok(Math.min(...counts) >= 7, `${slots} slots: ${counts.join()}`);
  }
});

test('senders that only wait for retries do not hide one with a due event', async () => {
  const [due, ...waiting] = await senders(150);
  assert.ok(due);
  for (const one of waiting) await fill(one, 1);
  await sql`update webhook.work set due_at = now() + interval '1 hour'`;
  await fill(due, 3);
  assert.equal(countBy(await claims(SLOTS)(), due), 3);
});

test('a claim looks at a limited number of senders, and the next one goes on behind them', async () => {
  const ids = (await senders(150)).map(({ id }) => id).sort();
  const [first = ''] = ids;
  const last = ids.slice(-2 * SLOTS);
  await fillQueue(sql, ids.slice(1), 1);
  await sql`update webhook.work set due_at = now() + interval '1 hour'`;
  await fillQueue(sql, last, 1);
  // Its events are the oldest ones that are due, which every claim finds.
  await fillQueue(sql, [first], BACKLOG, { minutesAgo: 120 });
  const claim = claims(SLOTS);
  const claimed: Array<{ token_id: string }> = [];
  for (let round = 0; round < 5; round += 1) claimed.push(...(await claim()));
  const fromLast = claimed.filter(({ token_id }) => last.includes(token_id));
  assert.ok(fromLast.length >= SLOTS, String(fromLast.length));
});
