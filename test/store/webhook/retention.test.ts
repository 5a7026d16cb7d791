/**
 * What retention removes, and retention and redelivery of the same event at the same time: one of
 * them wins completely. Redelivery, repeated deliveries and acceptance leave other events and
 * tokens alone.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { replaceToken } from '../../../src/platform/db/tokens.ts';
import type { Service } from '../../../src/platform/process/service.ts';
import { accept } from '../../../src/webhook/accept.ts';
import { SCHEMA } from '../../../src/webhook/migrations.ts';
import { start } from '../../../src/webhook/start.ts';
import { redeliver, removeEnded } from '../../../src/webhook/store/events.ts';
import { endWork } from '../../../src/webhook/store/work.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { variables } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { quiet } from '../../support/service-context.ts';
import { readConfig } from '../../support/settings.ts';
import { test } from '../../support/until.ts';
import { FAILED, newEvent, openWorkQueue, store } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, clear } = queue;
/** Connections of its own, like another replica. */
const other = openConnections({ after }, queue.databaseUrl, SCHEMA.name);
const DAY = 86_400;

const config = readConfig(['webhook'], 'serve', variables(queue.databaseUrl)).webhook;
const service: Service = await start(config ?? assert.fail(), quiet());
after(() => service.storage?.database.close());
/** The service's jobs, like another replica's. @returns whether there is more to do */
async function batch(): Promise<boolean> {
  const jobs = (service.jobs ?? []).filter(({ name }) => name === 'remove from webhook.events');
  return (await Promise.all(jobs.map((job) => job.batch()))).includes(true);
}

async function endedEvent(
  status: 'done' | 'dead' | 'skipped',
  daysAgo: number,
  delivery_id: string | null = null,
): Promise<string> {
  const id = await queue.put({ status: 'stored', delivery_id });
  await sql`insert into webhook.outcomes (event_id, status, attempts, ended_at)
    values (${id}, ${status}, 1, now() - make_interval(days => ${daysAgo}))`;
  await sql`insert into webhook.failures (event_id, attempt, error) values (${id}, 1, 'an error')`;
  return id;
}
const deadEvent = (delivery_id?: string) => endedEvent('dead', 91, delivery_id);
const left = async (table = 'events', column = 'id') =>
  (await sql`select ${sql(column)} as id from webhook.${sql(table)}`).map(({ id }) => id).sort();

const plain = await queue.addToken('without a target');
const own = await queue.addToken('with a target');
const another = await queue.addToken('with another target');
for (const { id } of [own, another])
  await sql`update webhook.tokens set target = '{"url": "https://example.org/"}' where id = ${id}`;

test('done and skipped events are removed after EVENT_RETENTION, dead ones after DEAD_RETENTION', async () => {
  await endedEvent('done', 31);
  await endedEvent('skipped', 31);
  await endedEvent('dead', 91);
  const kept = [
    await endedEvent('done', 29),
    await endedEvent('skipped', 29),
    await endedEvent('dead', 89),
    await endedEvent('dead', 31),
  ].sort();
  // By the time of the end, not of the receipt.
  await sql`update webhook.events set received_at = now() - interval '1000 days'
    where id in ${sql(kept)}`;
  while (await batch());
  assert.deepEqual(await left(), kept);
  for (const table of ['outcomes', 'failures'])
    assert.deepEqual(await left(table, 'event_id'), kept, table);
});

test('an event that has not ended is never removed, however old', async () => {
  await clear();
  const again = await endedEvent('dead', 3_650, 'again');
  const repeated = await queue.send({ delivery_id: 'again' });
  assert.deepEqual(repeated, { id: again, status: 'duplicate' });
  const ids = [again, await queue.put({ status: 'stored' }), await queue.put(), await queue.put()];
  await sql`update webhook.events set received_at = now() - interval '4000 days'`;
  await sql`update webhook.work set attempts = 11, due_at = now() - interval '10 years'
    where event_id = ${ids[3] ?? ''}`;
  while (await batch());
  assert.deepEqual(await left(), ids.sort());
});

test('a removal removes the oldest events first, in batches, and says whether there are more', async () => {
  await clear();
  const newest = await endedEvent('done', 40);
  for (const daysAgo of [60, 50]) await endedEvent('done', daysAgo);
  assert.equal(await removeEnded(database, 'done', 30 * DAY, 2), 2);
  assert.deepEqual(await left(), [newest]);
  assert.equal(await removeEnded(database, 'done', 30 * DAY, 2), 1);
  await sql`
    with made as (
      insert into webhook.events (id, token_id, event, body)
      select gen_random_uuid(), ${queue.token.id}, 'e', '' from generate_series(1, 501)
      returning id
    )
    insert into webhook.outcomes (event_id, status, attempts, ended_at)
    select id, 'done', 1, now() - interval '40 days' from made`;
  const steps = [await batch(), (await left()).length, await batch(), (await left()).length];
  assert.deepEqual(steps, [true, 1, false, 0]);
});

test('a repeated delivery is delivered again if its event is dead, not if it waits or is done', async () => {
  let fails = true;
  const calls: string[] = [];
  const deliver = async ({ id, attempt }: { id: string; attempt: number }) => {
    calls.push(`${id} ${attempt}`);
    return fails ? FAILED : null;
  };
  const worker = queue.startWorker(deliver, { maxAttempts: 2 });
  const wish = { delivery_id: 'delivery-1', body: Buffer.from('{"a":1}') };
  const id = await queue.put(wish);
  const duplicate = { id, status: 'duplicate' };
  worker.notify();
  await queue.until(id, 'dead');
  assert.equal(await queue.send({ ...wish, body: Buffer.from('{"a":2}') }), 'conflict');
  assert.deepEqual(await queue.send({ ...wish, status: 'stored' }), duplicate);
  assert.equal((await queue.stateOf(id)).status, 'dead', 'neither is delivered');
  fails = false;
  const repeated = await Promise.all(Array.from({ length: 10 }, () => queue.send(wish)));
  assert.deepEqual(repeated, Array(10).fill(duplicate));
  worker.notify();
  await queue.until(id, 'done');
  assert.deepEqual(calls, [`${id} 1`, `${id} 2`, `${id} 1`], 'once more, from its first attempt');
  assert.deepEqual(await queue.send(wish), duplicate);
  assert.deepEqual(await left('work', 'event_id'), []);
  assert.equal((await queue.stateOf(id)).errors?.length, 2, 'earlier failures stay on record');
  await worker.stop();
});

/** Does its work in a transaction. @returns commits it */
async function hold(url: string, work: (on: Database) => Promise<unknown>) {
  const holder = connect(url);
  await holder`begin`;
  await work({ ...database, write: (statement) => statement(holder) });
  return async () => {
    await holder`commit`;
    await holder.end();
  };
}
/** The numbers of rows of an event, in these tables. */
async function rowsOf(id: string, at = sql): Promise<number[]> {
  const [rows] = await at<[{ counts: number[] }]>`
    select array[
      (select count(*) from webhook.events where id = ${id}),
      (select count(*) from webhook.work where event_id = ${id}),
      (select count(*) from webhook.outcomes where event_id = ${id}),
      (select count(*) from webhook.failures where event_id = ${id})]::int4[] as counts`;
  return rows.counts;
}
const GONE = [0, 0, 0, 0];
const WAITING = [1, 1, 0, 1];
const NEW = [1, 1, 0, 0];

/** Until so many statements wait for locks, or the work is done without waiting. */
async function untilWaiting(work: Promise<unknown>, count = 1, at = sql): Promise<void> {
  let isDone = false;
  void work.finally(() => {
    isDone = true;
  });
  const locked = () => at`
    select from pg_stat_activity
    where wait_event_type = 'Lock' and datname = current_database()`;
  await untilSql(async () => isDone || (await locked()).length === count, 'it waits');
}

type Work = (on: Database, id: string) => Promise<number | void>;
const remove: Work = (on) => removeEnded(on, 'dead', 90 * DAY, 500);
const drive: Work = (on, id) => redeliver(on, [id]);
const patient = connect(queue.databaseUrl);
after(() => patient.end());
/** On a connection that waits for a lock as long as it takes, with one view of the data. */
const drivePatiently: Work = (on, id) =>
  redeliver({ ...on, write: (statement) => statement(patient) }, [id]);
async function endAll(on: Database): Promise<void> {
  await endWork(on, await queue.claim(), 'done');
}
async function driveToEnd(on: Database, id: string): Promise<void> {
  await drive(on, id);
  await on.write((at) => at`delete from webhook.work where event_id = ${id}`);
  await on.write(
    (at) => at`insert into webhook.outcomes (event_id, status, attempts) values (${id}, 'done', 1)`,
  );
}

for (const [what, put, first, second, rows] of [
  ['an event under removal is not redelivered', deadEvent, remove, drive, GONE],
  ['an event under redelivery is not removed', deadEvent, drive, remove, WAITING],
  ['an event whose delivery ends is not redelivered', queue.put, endAll, drive, [1, 0, 1, 0]],
  ['an event whose redelivery ends stays', deadEvent, driveToEnd, drivePatiently, [1, 0, 1, 1]],
] as const)
  test(what, async () => {
    await clear();
    const id = await put();
    const end = await hold(queue.databaseUrl, (on) => first(on, id));
    const met = second(database, id);
    await untilWaiting(met);
    await end();
    assert.equal(await met, 0);
    assert.deepEqual(await rowsOf(id), rows);
  });

test('a redelivery of dead events leaves others as they are', async () => {
  await clear();
  const ids = [await queue.put(), await queue.put({ status: 'stored' })];
  ids.push(await endedEvent('done', 1), await endedEvent('skipped', 1), await deadEvent());
  await sql`update webhook.work set due_at = 'infinity'`;
  assert.equal(await redeliver(database, ids, true, 'dead'), 1);
  const due = await sql`select event_id from webhook.work where due_at <= now()`;
  assert.deepEqual([due[0]?.event_id, due.length], [ids.at(-1), 1]);
  assert.equal((await left('outcomes', 'event_id')).length, 2);
});

test('a removal and a redelivery that wait for each other do not fail, and one does its work', async () => {
  const id = await deadEvent();
  // The reader's lock on the event makes the removal wait, which holds the outcome.
  const reader = connect(queue.databaseUrl);
  await reader`begin`;
  await reader`select from webhook.events where id = ${id} for key share`;
  const removed = remove(other, id);
  await untilWaiting(removed);
  const driven = drive(database, id);
  await untilWaiting(driven, 2);
  await reader`commit`;
  await reader.end();
  const counts = [await removed, await driven];
  assert.equal(counts.join(), counts[0] === 1 ? '1,0' : '0,1');
  assert.deepEqual(await rowsOf(id), counts[0] === 1 ? GONE : WAITING);
});

test('POST /events/{id}/redeliver of an event under removal is answered 404', async (t) => {
  const inbox = await openInbox(t, { WEBHOOK_COMMAND: '["/bin/true"]' });
  const id = await inbox.put({ status: 'dead', errors: ['an error'] });
  await inbox.sql`update webhook.outcomes set ended_at = now() - interval '91 days'`;
  const end = await hold(inbox.databaseUrl, (on) => remove(on, id));
  const answer = inbox.call('POST', `/events/${id}/redeliver`);
  await untilWaiting(answer, 1, inbox.sql);
  await end();
  assert.equal((await answer).status, 404);
  assert.deepEqual(await rowsOf(id, inbox.sql), GONE);
});

test('a repeated delivery is accepted as new while the first event is removed', async () => {
  const first = await deadEvent('repeated');
  const end = await hold(queue.databaseUrl, (on) => remove(on, first));
  const repeated = queue.put({ delivery_id: 'repeated' });
  await untilWaiting(repeated);
  await end();
  assert.deepEqual(await rowsOf(first), GONE);
  assert.deepEqual(await rowsOf(await repeated), NEW);
});

for (const [when, isBefore] of [
  ['after it was met, and before it is looked at', true],
  ['after it was found dead, and before it is driven again', false],
] as const) {
  test(`a repeated delivery whose event is removed ${when} is accepted as new`, async () => {
    const first = await deadEvent(when);
    // The removal runs between two statements of one call.
    const slow: Database = {
      ...database,
      async read(statement) {
        if (isBefore) await remove(other, first);
        const found = await database.read(statement);
        if (!isBefore) await remove(other, first);
        return found;
      },
    };
    const answer = await store(slow, newEvent(queue.token, { delivery_id: when }));
    assert.deepEqual(await rowsOf(first), GONE);
    assert.deepEqual(await rowsOf(answer === 'conflict' ? '' : answer.id), NEW);
  });
}

// --- Other events and tokens

const queueOf = async (id: string) =>
  (await sql`select queue from webhook.work where event_id = ${id}`)[0]?.queue;

test('an event waits for the target of its token, or for that of the process if there is one', async () => {
  await clear();
  const ids = [];
  for (const token of [another, own, plain]) ids.push(await queue.putEnded('dead', { token }));
  const waiting = await queue.put({ token: own });
  assert.equal(await redeliver(database, [...ids, waiting], false), 3);
  assert.equal((await queue.stateOf(ids[2] ?? '')).status, 'dead');
  assert.equal(await redeliver(database, ids), 3);
  const queues = await Promise.all(ids.map(queueOf));
  assert.deepEqual(queues.slice(0, 2), [another.id, own.id]);
  assert.match(queues[2] ?? '', /^[0-]+$/);
});

test('a stored event is delivered, and a waiting one keeps the outcome that a program wrote', async () => {
  await clear();
  await queue.putEnded('done');
  const id = await queue.put();
  assert.equal(await redeliver(database, [await queue.put({ status: 'stored' })]), 1);
  await sql`insert into webhook.outcomes (event_id, status, attempts) values (${id}, 'done', 1)`;
  assert.equal(await redeliver(database, [id]), 1);
  assert.equal((await sql`select from webhook.outcomes where event_id = ${id}`).length, 1);
});

test('a page is due if its first event is redelivered', async () => {
  await clear();
  const first = await queue.put({ order_key: 'a' });
  const second = await queue.put({ order_key: 'a' });
  await queue.put({ order_key: 'b' });
  const duePages = async () => {
    const rows = await sql`select order_key from webhook.pages where due_at <= now()`;
    return rows.map(({ order_key }) => order_key);
  };
  await sql`update webhook.pages set due_at = 'infinity'`;
  await redeliver(database, [second]);
  assert.deepEqual(await duePages(), []);
  await redeliver(database, [first]);
  assert.deepEqual(await duePages(), ['a']);
});

for (const [by, values] of [
  ['delivery id', { delivery_id: 'one' }],
  ['body', { body_digest: sha256('{}') }],
] as const) {
  test(`a repetition by its ${by} is of the same token, and other dead events stay dead`, async () => {
    await clear();
    const dead = await queue.putEnded('dead', { token: plain });
    const ids = [];
    for (const token of [plain, own]) {
      const first = await accept(database, newEvent(token, values));
      const again = await accept(database, newEvent(token, values));
      assert.ok('id' in first);
      assert.deepEqual(again, { id: first.id, status: 'duplicate' });
      ids.push(first.id);
    }
    assert.notEqual(ids[0], ids[1]);
    assert.equal((await queue.stateOf(dead)).status, 'dead');
  });
}

test('an event is stored only with a token of its sender that is valid at that moment', async () => {
  const { id, digest: before } = await queue.addToken('rotated');
  const now = sha256(randomUUID());
  await replaceToken(database, SCHEMA.name, id, now, 60);
  const send = async (digest: Buffer) => (await accept(database, newEvent({ id, digest }))).status;
  const sent = [now, before, sha256('another'), plain.digest];
  const expected = ['accepted', 'accepted', 'rejected', 'rejected'];
  assert.deepEqual(await Promise.all(sent.map(send)), expected);
  await sql`update webhook.tokens set previous_until = now() where id = ${id}`;
  assert.deepEqual(await Promise.all([now, before].map(send)), ['accepted', 'rejected']);
});
