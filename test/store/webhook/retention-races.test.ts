/** Retention and redelivery of the same event at the same time: one of them wins completely. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import type { Sql } from 'postgres';
import { connect } from '../../../scripts/postgres.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { SCHEMA } from '../../../src/webhook/migrations.ts';
import { redeliver, removeEnded } from '../../../src/webhook/store/events.ts';
import { claimWork, endWork } from '../../../src/webhook/store/work.ts';
import { openInbox } from '../../support/inbox.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { test } from '../../support/until.ts';
import { newEvent, openWorkQueue, store, type TestToken } from '../../support/webhook-store.ts';
import { rounds } from '../../support/rounds.ts';

const queue = await openWorkQueue({ after });
const { sql, database } = queue;
/** Connections of its own, like another replica. */
const other = openConnections({ after }, queue.databaseUrl, SCHEMA.name);

const DAY = 86_400;
const remove = (on: Database) => removeEnded(on, 'dead', 90 * DAY, 500);
const locksWaitedFor = async (at: Sql) =>
  (
    await at`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
  ).length;

async function deadEvent(deliveryId?: string): Promise<string> {
  const id = await queue.put({
    status: 'stored',
    ...(deliveryId === undefined ? {} : { delivery_id: deliveryId }),
  });
  await sql`insert into webhook.outcomes (event_id, status, attempts, ended_at)
    values (${id}, 'dead', 12, now() - interval '91 days')`;
  await sql`insert into webhook.failures (event_id, attempt, error) values (${id}, 12, 'an error')`;
  return id;
}

/** Does its work in a transaction. @returns commits it */
async function hold(
  url: string,
  work: (on: Database) => Promise<unknown>,
): Promise<() => Promise<void>> {
  const holder = connect(url);
  await holder`begin`;
  await work({ ...database, write: (statement) => statement(holder) });
  return async () => {
    await holder`commit`;
    await holder.end();
  };
}

/** Until so many statements wait for locks, or the work is done without waiting. */
async function untilWaiting(work: Promise<unknown>, count: number): Promise<void> {
  let isDone = false;
  void work.finally(() => {
    isDone = true;
  });
  await untilSql(async () => isDone || (await locksWaitedFor(sql)) === count, 'it waits');
}

/** The number of rows of an event, by table. */
async function rowsOf(id: string, at = sql): Promise<Record<string, number>> {
  const rows: Record<string, number> = {
    events: (await at`select from webhook.events where id = ${id}`).length,
  };
  for (const table of ['work', 'outcomes', 'failures'])
    rows[table] = (await at`select from webhook.${at(table)} where event_id = ${id}`).length;
  return rows;
}
const GONE = { events: 0, work: 0, outcomes: 0, failures: 0 };
const WAITING = { events: 1, work: 1, outcomes: 0, failures: 1 };

test('an event under removal is not redelivered, and no work is left of it', async () => {
  const id = await deadEvent();
  const end = await hold(queue.databaseUrl, remove);
  const driven = redeliver(database, [id]);
  await untilSql(
    async () => (await locksWaitedFor(sql)) === 1,
    'the redelivery waits for the removal',
  );
  await end();
  assert.equal(await driven, 0);
  assert.deepEqual(await rowsOf(id), GONE);
});

test('an event under redelivery is not removed and keeps its failures', async () => {
  const id = await deadEvent();
  const end = await hold(queue.databaseUrl, (on) => redeliver(on, [id]));
  const removed = remove(database);
  await untilSql(
    async () => (await locksWaitedFor(sql)) === 1,
    'the removal waits for the redelivery',
  );
  await end();
  assert.equal(await removed, 0);
  assert.deepEqual(await rowsOf(id), WAITING);
});

test('an event whose delivery ends is not redelivered at the same time', async () => {
  const id = await queue.put();
  const claimed = (await claimWork(database, 100)).filter((event) => event.id === id);
  assert.equal(claimed.length, 1);
  const delivered = claimed.map((event) => ({ ...event, result: { error: null } }));
  const end = await hold(queue.databaseUrl, (on) => endWork(on, delivered, 'done'));
  const driven = redeliver(database, [id]);
  await untilWaiting(driven, 1);
  await end();
  assert.equal(await driven, 0);
  assert.deepEqual(await rowsOf(id), { events: 1, work: 0, outcomes: 1, failures: 0 });
});

test('a removal and a redelivery that wait for each other do not fail, and one does its work', async () => {
  const id = await deadEvent();
  // The reader's lock on the event makes the removal wait, which holds the outcome.
  const reader = connect(queue.databaseUrl);
  await reader`begin`;
  await reader`select from webhook.events where id = ${id} for key share`;
  const removed = remove(other);
  await untilSql(async () => (await locksWaitedFor(sql)) === 1, 'the removal waits');
  // The redelivery locks the event, and waits for the outcome until the removal, tired of
  // waiting, starts again.
  const driven = redeliver(database, [id]);
  await untilWaiting(driven, 2);
  await reader`commit`;
  await reader.end();
  const outcome = [await removed, await driven];
  assert.ok(outcome[0] !== outcome[1], `one of both has it: ${outcome.join()}`);
  assert.deepEqual(await rowsOf(id), outcome[0] === 1 ? GONE : WAITING);
});

test('POST /events/{id}/redeliver of an event under removal is answered 404', async (t) => {
  const inbox = await openInbox(t, { WEBHOOK_COMMAND: '["/bin/true"]' });
  const id = await inbox.put({ status: 'dead', errors: ['an error'] });
  await inbox.sql`update webhook.outcomes set ended_at = now() - interval '91 days'`;
  const end = await hold(inbox.databaseUrl, remove);
  const answer = inbox.call('POST', `/events/${id}/redeliver`);
  await untilSql(
    async () => (await locksWaitedFor(inbox.sql)) === 1,
    'the redelivery waits for the removal',
  );
  await end();
  assert.equal((await answer).status, 404);
  assert.deepEqual(await rowsOf(id, inbox.sql), GONE);
});

test('a repeated delivery is accepted as new while the first event is removed', async () => {
  const first = await deadEvent('repeated');
  const end = await hold(queue.databaseUrl, remove);
  const repeated = queue.send({ delivery_id: 'repeated' });
  await untilSql(
    async () => (await locksWaitedFor(sql)) === 1,
    'the repetition waits for the removal',
  );
  await end();
  const accepted = await repeated;
  assert.ok(accepted !== 'conflict' && accepted.status === 'accepted' && accepted.id !== first);
  assert.deepEqual(await rowsOf(first), GONE);
  assert.deepEqual(await rowsOf(accepted.id), { ...WAITING, failures: 0 });
});

for (const [when, removeBefore] of [
  ['after it was met, and before it is looked at', true],
  ['after it was found dead, and before it is driven again', false],
] as const) {
  test(`a repeated delivery whose event is removed ${when} is accepted as new`, async () => {
    const first = await deadEvent(`removed ${when}`);
    // The removal runs between two statements of one call.
    const slow: Database = {
      ...database,
      async read(statement) {
        if (removeBefore) await remove(other);
        const found = await database.read(statement);
        if (!removeBefore) await remove(other);
        return found;
      },
    };
    const [token] = await sql<[TestToken]>`select id, digest from webhook.tokens`;
    const answer = await store(slow, newEvent(token, { delivery_id: `removed ${when}` }));
    assert.ok(answer !== 'conflict');
    assert.deepEqual(await rowsOf(first), GONE);
    assert.deepEqual(
      await rowsOf(answer.id),
      { ...WAITING, failures: 0 },
      `what was answered "${answer.status}" is there, and waits`,
    );
  });
}

test('of events removed, redelivered and delivered at once, each is removed or delivered once', async () => {
  await sql`truncate webhook.work, webhook.outcomes, webhook.failures, webhook.events`;
  const done: string[] = [];
  const worker = queue.startWorker(async ({ id }) => {
    done.push(id);
    return null;
  });
  const driven = new Set<string>();
  const drive = async (id: string) => (await redeliver(database, [id])) === 1 && driven.add(id);
  const removeSome = () => removeEnded(other, 'dead', 90 * DAY, 3);
  for (let round = 0; round < rounds(4, 10); round += 1) {
    const [first = '', ...ids] = await Promise.all(Array.from({ length: 30 }, () => deadEvent()));
    // One of each is certain; then they meet from the same end or from both ends.
    await drive(first);
    await removeSome();
    const removing = (async () => {
      while ((await removeSome()) > 0);
    })();
    await Promise.all([removing, ...(round % 2 === 0 ? ids : ids.reverse()).map(drive)]);
    worker.notify();
  }
  await untilSql(async () => (await sql`select from webhook.work`).length === 0, 'nothing waits');
  const left = (await sql<Array<{ id: string }>>`select id from webhook.events`)
    .map(({ id }) => id)
    .sort();
  assert.deepEqual(
    left,
    [...driven].sort(),
    'what is left was driven again, and the other way round',
  );
  assert.deepEqual([...done].sort(), left);
  for (const table of ['outcomes', 'failures'])
    assert.deepEqual(
      (
        await sql<
          Array<{ id: string }>
        >`select event_id as id from webhook.${sql(table)} order by 1`
      )
        .map(({ id }) => id)
        .sort(),
      left,
      table,
    );
  await worker.stop();
});
