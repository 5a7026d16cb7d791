/**
 * Delivery in order: one event of a page at a time, in the order of commits, whatever waits behind
 * it.
 */
import assert from 'node:assert/strict';
import { after, type TestContext } from 'node:test';
import type { LeasedEvent } from '../../../src/webhook/model.ts';
import { redeliver } from '../../../src/webhook/store/events.ts';
import {
  endWork,
  LEASE_SECONDS,
  releaseWork,
  removeIdlePages,
  renewLeases,
} from '../../../src/webhook/store/work.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { createWaits, holdStatements } from '../../support/hold.ts';
import { latch, someTurns, test, until } from '../../support/until.ts';
import {
  FAILED,
  newEvent,
  openWorkQueue,
  type WorkQueue,
  store,
} from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, claim, clear, endLeases } = queue;
const names = (events: readonly LeasedEvent[]) => events.map(({ event }) => event).sort();
const countPages = async () =>
  (await sql`select from webhook.pages join webhook.page_tails using (order_key)`).length;

/** A further replica that stores events. */
function createReplica({ databaseUrl, token }: WorkQueue) {
  const replica = openConnections({ after }, databaseUrl, 'webhook');
  return (event: string, page: string) =>
    store(replica, newEvent(token, { event, order_key: page }));
}

/** Runs a statement before the commit of each event whose name matches. */
const delayCommits = ({ sql }: WorkQueue, pattern: string, statement: string) =>
  sql.unsafe(`
    create function delay() returns trigger language plpgsql as
      $$ begin ${statement}; return null; end $$;
    create constraint trigger delay after insert on webhook.events
    deferrable initially deferred
    for each row when (new.event like '${pattern}') execute function delay()`);

/** Keeps the commit of events named `late` from happening. */
async function holdCommits(t: TestContext, own: WorkQueue) {
  await createWaits(own.sql);
  await delayCommits(own, 'late', 'perform wait_for(1)');
  const isLocked = async () =>
    (
      await own.sql`
        select from pg_stat_activity
        where datname = current_database() and wait_event = 'transactionid'`
    ).length > 0;
  return { ...(await holdStatements(t, own.databaseUrl)), isLocked };
}

test('an event that commits late is never delivered at once with another of its page', async (t) => {
  const own = await openWorkQueue(t);
  const gate = await holdCommits(t, own);
  const finish = latch();
  const begun: string[] = [];
  const active = new Set<string>();
  let overlaps = 0;
  const worker = own.startWorker(async ({ event }) => {
    begun.push(event);
    overlaps += active.size;
    active.add(event);
    await finish.opened;
    active.delete(event);
    return null;
  });
  const late = createReplica(own)('late', 'page');
  await gate.met();
  let isStored = false;
  const next = createReplica(own)('next', 'page').then(() => {
    isStored = true;
  });
  await untilSql(
    async () => isStored || gate.isLocked(),
    'the second is stored, or waits for the first',
  );
  worker.notify();
  if (isStored) await until(() => begun.length > 0, 'its delivery begins');
  await gate.release();
  await Promise.all([late, next]);
  worker.notify();
  await until(() => begun.length > 0, 'a delivery begins');
  // Both are stored, so a claim that took the other one, too, would find it.
  assert.equal((await own.claim()).length, 0);
  finish.open();
  await own.nothingWaits();
  assert.deepEqual([overlaps, begun], [0, ['late', 'next']]);
  await worker.stop();
});

test('events of three replicas with slow commits are delivered in their order by two workers', async (t) => {
  const own = await openWorkQueue(t);
  await delayCommits(own, '%', 'perform from generate_series(0, (random() * 1e5)::integer)');
  const PAGES = ['p', 'q', 'r'];
  /** A clock of this process. */
  let time = 0;
  const tick = () => {
    time += 1;
    return time;
  };
  const sent = new Map<string, { from: number; to: number }>();
  const begun = new Map<string, number>();
  const active = new Map<string, number>();
  let overlaps = 0;
  const deliver = async ({ event, attempt }: LeasedEvent) => {
    const page = event.slice(0, 1);
    active.set(page, (active.get(page) ?? 0) + 1);
    if (active.get(page) !== 1) overlaps += 1;
    if (!begun.has(event)) begun.set(event, tick());
    await someTurns();
    active.set(page, (active.get(page) ?? 0) - 1);
    const isDead = event.startsWith('q') && event.endsWith('7');
    return isDead || (attempt === 1 && event.endsWith('5')) ? FAILED : null;
  };
  const workers = [1, 2].map(() => own.startWorker(deliver, { concurrency: 4 }));
  await Promise.all(
    [1, 2, 3].map(async (number) => {
      const store = createReplica(own);
      const send = async (page: string, index: number) => {
        const event = `${page} ${number} ${index}`;
        const span = { from: tick(), to: Infinity };
        sent.set(event, span);
        await store(event, page);
        span.to = tick();
        for (const { notify } of workers) notify();
      };
      for (let index = 0; index < 10; index += 1)
        await Promise.all(PAGES.map((page) => send(page, index)));
    }),
  );
  await own.nothingWaits();
  await Promise.all(workers.map((worker) => worker.stop()));
  const dead = await own.sql`select from webhook.outcomes where status = 'dead'`;
  assert.deepEqual([overlaps, begun.size, dead.length], [0, 90, 3]);
  for (const page of PAGES) {
    const order = [...begun.keys()]
      .filter((event) => event.startsWith(page))
      .map((event) => ({ event, ...sent.get(event) }));
    for (const [index, { event, from = 0 }] of order.entries()) {
      const overtaken = order.slice(index + 1).find(({ to = 0 }) => to < from);
      assert.equal(overtaken, undefined, `${event} overtook ${overtaken?.event}`);
    }
  }
});

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
  await endWork(database, first, 'done');
  await renewLeases(database, first, 3_600);
  for (const event of first) await releaseWork(database, event, { error: 'from an old lease' }, 0);
  assert.equal((await claim()).length, 0, 'an old lease ends nothing');
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
  // As if the process had ended before it removed the page.
  await queue.put({ event: 'a4', order_key: 'a' });
  await sql`update webhook.pages set head = 2`;
  await sql`delete from webhook.work`;
  assert.equal(await removeIdlePages(database, 10), 1);
  await queue.put({ event: 'a5', order_key: 'a' });
  assert.deepEqual(names(await claim()), ['a5']);
});

test('events are stored while idle pages are removed, and each is delivered', async () => {
  await clear();
  const removing = { goesOn: true };
  const delivered: string[] = [];
  const worker = queue.startWorker(async ({ event }) => {
    delivered.push(event);
    return null;
  });
  const removed = (async () => {
    while (removing.goesOn) await removeIdlePages(database, 10);
  })();
  const store = createReplica(queue);
  const events = Array.from({ length: 200 }, (_, number) => String(number));
  for (const event of events) {
    await store(event, 'page');
    worker.notify();
    if (Number(event) % 3 === 0) await someTurns();
  }
  await queue.nothingWaits();
  removing.goesOn = false;
  await removed;
  assert.deepEqual(delivered, events);
  await worker.stop();
  assert.equal(await countPages(), 0);
});

test('while events of a page are being stored, deliveries continue, and the page is not removed', async (t) => {
  const own = await openWorkQueue(t);
  const gate = await holdCommits(t, own);
  for (const event of ['first', 'second']) await own.put({ event, order_key: 'page' });
  const late = createReplica(own)('late', 'page');
  await gate.met();
  for (const event of ['first', 'second']) {
    const events = await own.claim();
    assert.deepEqual(names(events), [event]);
    await endWork(own.database, events, 'done');
  }
  assert.equal((await own.claim()).length, 0);
  assert.equal(await removeIdlePages(own.database, 10), 0, 'its tail is locked');
  // Those that wait for the commit of another replica are then stored together.
  const store = createReplica(own);
  const others = Array.from({ length: 40 }, (_, number) => store(`next ${number}`, 'page'));
  await untilSql(gate.isLocked, 'the others wait for it');
  await store('other', 'another page');
  await gate.release();
  await Promise.all([late, ...others]);
  assert.deepEqual(names(await own.claim()), ['late', 'other']);
  const statements = await own.sql`
    select distinct xmin::text from webhook.events where event like 'next%'`;
  assert.ok(statements.length <= 4, `${statements.length} statements`);
});
