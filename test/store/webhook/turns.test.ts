/** The events of one sender, however many, do not delay those of another. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { claimWork } from '../../../src/webhook/store/work.ts';
import { test } from '../../support/until.ts';
import { fillQueue, openWorkQueue } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, clear } = queue;
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
