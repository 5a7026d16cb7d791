import assert from 'node:assert/strict';
import { after } from 'node:test';
import { readConfig } from '../../support/settings.ts';
import { start } from '../../../src/webhook/start.ts';
import { removeEnded } from '../../../src/webhook/store/events.ts';
import { variables } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { quiet } from '../../support/service-context.ts';
import { test } from '../../support/until.ts';
import type { Service } from '../../../src/platform/process/service.ts';
import { FAILED, openWorkQueue } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database } = queue;
const DAY = 86_400;

/** The service's job, like another replica's. */
const config = readConfig(['webhook'], 'serve', variables(queue.databaseUrl)).webhook;
assert.ok(config);
const service: Service = await start(config, quiet());
after(() => service.storage?.database.close());
const batch = async () =>
  (
    await Promise.all(
      (service.jobs ?? [])
        .filter(({ name }) => name === 'remove from webhook.events')
        .map((job) => job.batch()),
    )
  ).some(Boolean);

async function endedEvent(status: 'done' | 'dead' | 'skipped', daysAgo: number): Promise<string> {
  const id = await queue.put({ status: 'stored' });
  await sql`insert into webhook.outcomes (event_id, status, attempts, ended_at)
    values (${id}, ${status}, 1, now() - make_interval(days => ${daysAgo}))`;
  await sql`insert into webhook.failures (event_id, attempt, error) values (${id}, 1, 'an error')`;
  return id;
}
const agedBy = (id: string, days: number) =>
  sql`update webhook.events set received_at = now() - make_interval(days => ${days})
    where id = ${id}`;
const left = async () =>
  (await sql`select id from webhook.events`).map(({ id }) => String(id)).sort();

test('done and skipped events are removed after EVENT_RETENTION, dead ones after DEAD_RETENTION', async () => {
  const gone = [
    await endedEvent('done', 31),
    await endedEvent('skipped', 31),
    await endedEvent('dead', 91),
  ];
  const kept = [
    await endedEvent('done', 29),
    await endedEvent('skipped', 29),
    await endedEvent('dead', 89),
    await endedEvent('dead', 31),
  ];
  // By the time of the end, not of the receipt.
  for (const id of kept) await agedBy(id, 1_000);
  while (await batch());
  assert.deepEqual(await left(), kept.sort());
  for (const table of ['outcomes', 'failures'])
    assert.deepEqual(
      [...(await sql`select from webhook.${sql(table)} where event_id in ${sql(gone)}`)],
      [],
      table,
    );
  assert.equal((await sql`select from webhook.failures`).length, kept.length);
});

test('an event that has not ended is never removed, however old', async () => {
  await sql`truncate webhook.work, webhook.outcomes, webhook.failures, webhook.events`;
  const again = await queue.send({ delivery_id: 'again' });
  assert.ok(again !== 'conflict');
  await sql`delete from webhook.work where event_id = ${again.id}`;
  await sql`insert into webhook.outcomes (event_id, status, attempts, ended_at)
    values (${again.id}, 'dead', 12, now() - interval '10 years')`;
  assert.deepEqual(await queue.send({ delivery_id: 'again' }), {
    id: again.id,
    status: 'duplicate',
  });
  const ids = [
    again.id,
    await queue.put({ status: 'stored' }),
    await queue.put(),
    await queue.put(),
  ];
  for (const id of ids) await agedBy(id, 4_000);
  await sql`update webhook.work set attempts = 11, due_at = now() - interval '10 years'
    where event_id = ${ids[3] ?? ''}`;
  while (await batch());
  assert.deepEqual(await left(), ids.sort());
});

test('a removal removes the oldest events first, in batches, and says whether there are more', async () => {
  await sql`truncate webhook.work, webhook.outcomes, webhook.failures, webhook.events`;
  const newest = await endedEvent('done', 40);
  const oldest = await endedEvent('done', 60);
  const middle = await endedEvent('done', 50);
  assert.equal(await removeEnded(database, 'done', 30 * DAY, 2), 2);
  assert.deepEqual(await left(), [newest]);
  assert.ok(oldest && middle);
  assert.equal(await removeEnded(database, 'done', 30 * DAY, 2), 1);
  await sql`
    with made as (insert into webhook.events (id, token_id, event, body) select gen_random_uuid(),
      (select id
      from webhook.tokens), 'e', '' from generate_series(1, 501) returning id)
    insert into webhook.outcomes (event_id, status, attempts, ended_at)
      select id, 'done', 1, now() - interval '40 days' from made`;
  assert.equal(await batch(), true, 'a full batch');
  assert.equal((await left()).length, 1);
  assert.equal(await batch(), false);
  assert.deepEqual(await left(), []);
});

test('a repeated delivery is delivered again if its event is dead, not if it waits or is done', async () => {
  const outcome = { fails: true };
  const calls: string[] = [];
  const worker = queue.startWorker(
    async ({ id, attempt }) => {
      calls.push(`${id} ${attempt}`);
      return outcome.fails ? FAILED : null;
    },
    { maxAttempts: 2 },
  );
  const wish = { delivery_id: 'delivery-1', body: Buffer.from('{"a":1}') };
  const first = await queue.send(wish);
  assert.ok(first !== 'conflict');
  worker.notify();
  const is = (status: string) =>
    untilSql(async () => (await queue.stateOf(first.id)).status === status, `it is ${status}`);
  await is('dead');
  assert.equal(await queue.send({ ...wish, body: Buffer.from('{"a":2}') }), 'conflict');
  assert.equal((await queue.stateOf(first.id)).status, 'dead', 'another body drives nothing');
  const unread = await queue.send({ ...wish, status: 'stored' });
  assert.deepEqual(unread, { id: first.id, status: 'duplicate' });
  assert.equal((await queue.stateOf(first.id)).status, 'dead', 'nobody would deliver it');
  outcome.fails = false;
  assert.deepEqual(
    await Promise.all(Array.from({ length: 10 }, () => queue.send(wish))),
    Array.from({ length: 10 }, () => ({ id: first.id, status: 'duplicate' })),
  );
  worker.notify();
  await is('done');
  assert.deepEqual(
    calls,
    [`${first.id} 1`, `${first.id} 2`, `${first.id} 1`],
    'once more, from its first attempt',
  );
  assert.deepEqual(await queue.send(wish), { id: first.id, status: 'duplicate' });
  worker.notify();
  assert.deepEqual([...(await sql`select from webhook.work`)], []);
  assert.equal(
    (await queue.stateOf(first.id)).errors.length,
    2,
    'what failed before stays on record',
  );
  await worker.stop();
});

test('without a target, events stay stored, and no worker touches them', async () => {
  const stored = await queue.put({ status: 'stored' });
  const seen: string[] = [];
  const worker = queue.startWorker(async ({ id }) => {
    seen.push(id);
    return null;
  });
  const other = await queue.put();
  worker.notify();
  await untilSql(async () => (await queue.stateOf(other)).status === 'done', 'the other is done');
  await worker.stop();
  assert.deepEqual(seen, [other]);
  assert.deepEqual(await queue.stateOf(stored), { status: 'stored', attempts: 0, errors: [] });
  assert.ok(!('work' in service), 'nothing works where nothing is set');
});
