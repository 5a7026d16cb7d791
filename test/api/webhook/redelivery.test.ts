/** POST /events/{id}/redeliver, with a target: a program that fails for some events. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { openInbox } from '../../support/inbox.ts';

const SCRIPT = 'process.exit(process.env.EVENT_NAME === "ends badly" ? 1 : 0)';
const { sql, call, put, send } = await openInbox(
  { after },
  {
    WEBHOOK_COMMAND: JSON.stringify([process.execPath, '-e', SCRIPT]),
    WEBHOOK_RETRY_SCHEDULE: 'none',
    WEBHOOK_EVENTS: 'ends*',
  },
);

async function again(id: string) {
  const { status, json } = await call('POST', `/events/${id}/redeliver`);
  assert.deepEqual([status, json], [200, { id, status: 'waiting' }]);
}
const details = async (id: string) => (await call('GET', `/events/${id}`)).json;
/** The run and the error of each attempt. */
const attemptsOf = async (id: string): Promise<unknown[][]> =>
  (await details(id)).attempts.map((one: Record<string, unknown>) => [one.run, one.error]);
const ended = (id: string, status: string, attempts: number) =>
  untilSql(async () => {
    const { event, attempts: made } = await details(id);
    return event.status === status && made.length === attempts;
  }, `the event is ${status}`);

for (const status of ['stored', 'done', 'dead', 'skipped'] as const) {
  test(`an event with status ${status} is redelivered from its first attempt, with its failures`, async () => {
    const attempts = status === 'dead' ? 12 : 0;
    const id = await put({ status, attempts, errors: ['as before'], event: 'ends well' });
    await again(id);
    const isDone = async () =>
      (
        await sql`select from webhook.outcomes
          where event_id = ${id} and status = 'done' and attempts = 1`
      ).length === 1;
    await untilSql(isDone, 'it is done, at the first attempt');
    const run = status === 'done' || status === 'dead' ? 2 : 1;
    assert.deepEqual(await attemptsOf(id), [
      [1, 'as before'],
      [run, null],
    ]);
  });
}

test('redelivering a waiting event keeps its attempts and its lease', async () => {
  const id = await put({ status: 'waiting', attempts: 5 });
  await sql`update webhook.work set lease = ${randomUUID()} where event_id = ${id}`;
  const row = async () =>
    (await sql`select w::text as row from webhook.work w where event_id = ${id}`)[0]?.row;
  const before = await row();
  await again(id);
  assert.equal(await row(), before);
});

test('concurrent redeliveries of one event all succeed', async () => {
  const id = await put({ status: 'dead', attempts: 3, event: 'ends well' });
  await Promise.all(Array.from({ length: 20 }, () => again(id)));
  await untilSql(async () => (await details(id)).event.status === 'done', 'the event is done');
  assert.equal((await sql`select from webhook.work where event_id = ${id}`).length, 0);
});

test('an event that fails again is dead again; a repetition redelivers a dead event, and no other', async () => {
  const once = { 'webhook-id': 'msg_repeated' };
  const id = await send('ends badly', once);
  await ended(id, 'dead', 1);
  await again(id);
  await ended(id, 'dead', 2);
  assert.equal(await send('ends badly', once), id);
  await ended(id, 'dead', 3);
  await sql`update webhook.outcomes set status = 'done' where event_id = ${id}`;
  assert.equal(await send('ends badly', once), id);
  const runs = (await attemptsOf(id)).map(([run, error]) => [run, error === null]);
  // The row that was changed to done counts as one more, which was delivered.
  assert.deepEqual(runs, [
    [1, false],
    [2, false],
    [3, false],
    [3, true],
  ]);
});
