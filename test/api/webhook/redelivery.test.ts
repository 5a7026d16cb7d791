/** POST /events/{id}/redeliver, with a target. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { openInbox } from '../../support/inbox.ts';
import { untilSql } from '../../support/connections.ts';

// With a target: a program that fails for some events.
const working = await openInbox(
  { after },
  {
    WEBHOOK_COMMAND: JSON.stringify([
      process.execPath,
      '-e',
      'process.exit(process.env.EVENT_NAME === "ends badly" ? 1 : 0)',
    ]),
    WEBHOOK_RETRY_SCHEDULE: 'none',
    WEBHOOK_EVENTS: 'ends*',
  },
);

const again = (id: string) => working.call('POST', `/events/${id}/redeliver`);
const details = async (id: string) => (await working.call('GET', `/events/${id}`)).json;
const ended = (id: string, status: string) =>
  untilSql(async () => (await details(id)).event.status === status, `the event is ${status}`);

for (const status of ['stored', 'done', 'dead', 'skipped'] as const) {
  test(`an event with status ${status} is redelivered from its first attempt, with its failures`, async () => {
    const id = await working.put({
      status,
      attempts: status === 'dead' ? 12 : 0,
      errors: ['as before'],
      event: 'ends well',
    });
    const { status: code, json } = await again(id);
    assert.deepEqual([code, json], [200, { id, status: 'waiting' }]);
    await untilSql(
      async () =>
        (
          await working.sql`select from webhook.outcomes where event_id = ${id} and status = 'done' and attempts = 1`
        ).length === 1,
      'it is done, at the first attempt',
    );
    const { event, attempts } = await details(id);
    const errors = attempts.map(({ error }: { error: string | null }) => error);
    assert.deepEqual([event.status, event.attempts, errors], ['done', 1, ['as before', null]]);
    assert.equal(attempts[1].run, status === 'done' || status === 'dead' ? 2 : 1);
  });
}

test('an event that fails again is dead again, with one more failure', async () => {
  const id = await working.send('ends badly');
  await ended(id, 'dead');
  assert.equal((await again(id)).status, 200);
  await untilSql(async () => (await details(id)).attempts.length === 2, 'it has failed twice');
  await ended(id, 'dead');
});

test('redelivering a waiting event keeps its attempts and its lease', async () => {
  const id = await working.put({ status: 'waiting', attempts: 5 });
  await working.sql`update webhook.work set lease = ${randomUUID()} where event_id = ${id}`;
  const row = async () =>
    (await working.sql`select w::text as row from webhook.work w where event_id = ${id}`)[0]?.row;
  const before = await row();
  const { status, json } = await again(id);
  assert.deepEqual([status, json], [200, { id, status: 'waiting' }]);
  assert.equal(await row(), before);
});

test('concurrent redeliveries of one event all succeed', async () => {
  const id = await working.put({ status: 'dead', attempts: 3, event: 'ends well' });
  const answers = await Promise.all(Array.from({ length: 20 }, () => again(id)));
  assert.deepEqual(
    new Set(answers.map(({ status, json }) => `${status} ${json.status}`)),
    new Set(['200 waiting']),
  );
  await ended(id, 'done');
  assert.equal((await working.sql`select from webhook.work where event_id = ${id}`).length, 0);
});

test('a repetition by the sender redelivers a dead event, and no other', async () => {
  const once = { 'webhook-id': 'msg_repeated' };
  const id = await working.send('ends badly', once);
  await ended(id, 'dead');
  assert.equal(await working.send('ends badly', once), id);
  await untilSql(async () => (await details(id)).attempts.length === 2, 'it was driven again');
  await ended(id, 'dead');
  await working.sql`update webhook.outcomes set status = 'done' where event_id = ${id}`;
  assert.equal(await working.send('ends badly', once), id);
  const { event, attempts } = await details(id);
  const runs = attempts.map(({ run, error }: { run: number; error: string | null }) => [
    run,
    error === null,
  ]);
  // The row that was changed to done counts as a third, which was delivered.
  assert.deepEqual(
    [event.status, runs],
    [
      'done',
      [
        [1, false],
        [2, false],
        [2, true],
      ],
    ],
  );
});
