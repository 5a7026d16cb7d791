/** Notices to operators count what happened in the given time. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readNotices } from '../../../src/webhook/store/notices.ts';
import { openWorkQueue } from '../../support/webhook-store.ts';

const { sql, database } = await openWorkQueue({ after });
const SINCE = '2030-01-01T00:00:00Z';
const UNTIL = '2030-01-02T00:00:00Z';
const read = () => readNotices(database, SINCE, UNTIL);
const addDead = (at: string, status = 'dead') => sql`
  insert into webhook.outcomes (event_id, status, attempts, ended_at)
  values (gen_random_uuid(), ${status}, 1, ${at})`;
const addRefused = (at: string, reason: string) => sql`
  insert into webhook.unstored (token_id, reason, hour, count, first_at)
  values (gen_random_uuid(), ${reason}, ${at}, 1, ${at})`;

test('what happened before or after, or is no failure, is not told', async () => {
  for (const at of [SINCE, '2030-01-02T00:00:01Z']) {
    await addDead(at);
    await addRefused(at, 'unauthorized');
  }
  await addDead(UNTIL, 'done');
  await addRefused(UNTIL, 'handshake');
  assert.deepEqual(await read(), []);
});

test('what happened is counted, up to the end of the time', async () => {
  for (const at of ['2030-01-01T00:00:01Z', UNTIL]) {
    await addDead(at);
    await addRefused(at, 'invalid_signature');
  }
  const told = ['events given up (dead): 2', 'senders refused: 2 (invalid_signature)'];
  assert.deepEqual(await read(), told);
});
