/** What the inbox shows of an event is its own, whatever other events went through. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { findEvent, listEvents, readBars, recentEvents } from '../../../src/webhook/store/inbox.ts';
import { test } from '../../support/until.ts';
import { openWorkQueue } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, put, putEnded } = queue;

/** The last one is the latest. */
async function addFailures(id: string, run: number, errors: ReadonlyArray<string | null>) {
  for (const [at, error] of errors.entries()) {
    await sql`
      insert into webhook.failures (event_id, run, attempt, error, failed_at)
      values (${id}, ${run}, ${at + 1}, ${error}, now() + make_interval(secs => ${at + run}))`;
  }
}

const leased = await put();
await queue.claim();
const waiting = await put();
const done = await putEnded('done', { run: 2 });
const dead = await putEnded('dead', { run: 3 });
const ended = await putEnded('done', { attempts: 0 }); // by another program
await addFailures(waiting, 1, ['of the waiting one']);
await addFailures(done, 1, ['before it was done', 'again']);
// It was delivered in its second run.
await addFailures(dead, 1, ['of the dead one']);
await addFailures(dead, 2, [null]);

test('a summary has the attempts and the last error of its event', async () => {
  const { events } = await listEvents(database, {}, 100);
  const summaries = events.map((event) => [
    event.id,
    [event.attempts, event.total_attempts, event.last_error, event.next_attempt_at !== null],
  ]);
  assert.deepEqual(Object.fromEntries(summaries), {
    [leased]: [1, 1, null, false],
    [waiting]: [0, 0, 'of the waiting one', true],
    [done]: [1, 3, null, false],
    [dead]: [1, 3, 'of the dead one', false],
    [ended]: [0, 0, null, false],
  });
});

test('of outcomes, only a delivery is an attempt', async () => {
  const errorsOf = async (id: string) =>
    (await findEvent(database, id))?.attempts.map(({ error }) => error);
  assert.deepEqual(await errorsOf(done), [null, 'before it was done', 'again']);
  assert.deepEqual(await errorsOf(dead), ['of the dead one', null]);
  assert.deepEqual(await errorsOf(ended), []);
});

test('recent events are those of the last seconds, oldest first', async () => {
  await sql`
    update webhook.events set received_at = now() - interval '11 seconds' where id = ${leased}`;
  const recent = await recentEvents(database, 10);
  assert.deepEqual(
    recent.map(({ id }) => id),
    [waiting, done, dead, ended],
  );
});

test('a bar counts what happened in its time', async () => {
  await sql`
    update webhook.events set received_at = now() - interval '3 minutes' where id = ${dead}`;
  await sql`
    update webhook.outcomes set ended_at = now() - interval '2 minutes' where event_id = ${dead}`;
  const bars = await readBars(database, 'minute', 5);
  const sum = (name: 'received' | 'dead') =>
    bars.reduce((total, { [name]: count }) => total + count, 0);
  assert.deepEqual([bars.length, sum('received'), sum('dead')], [5, 5, 1]);
});
