import assert from 'node:assert/strict';
import { untilSql } from '../../support/connections.ts';
import { holdTimers } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { startRecorder } from '../../support/recorder.ts';
import { test, until } from '../../support/until.ts';
import { stateOf, untilStatus, sendEvent } from '../../support/webhook-store.ts';

/** How long a shutdown lets attempts go on. */
const SHUTDOWN_MS = 5_000;

test('a shutdown returns an attempt in progress, which does not count, and the next start repeats it', async (t) => {
  const recorder = await startRecorder(t);
  recorder.answer(() => {});
  const { url, sql } = await createDatabase(t);
  // The only attempt: if it counted, the event would be dead.
  const settings = {
    WEBHOOK_FORWARD_URL: recorder.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RETRY_SCHEDULE: 'none',
    WEBHOOK_TIMEOUT: '300',
  };
  const endGrace = holdTimers(t, SHUTDOWN_MS);
  const gatehouse = await startGatehouse(t, ['webhook'], url, settings);
  const id = await sendEvent(gatehouse.url.webhook);
  await until(() => recorder.received.length === 1, 'it is under way');
  let isStopped = false;
  void gatehouse.stop().then(() => {
    isStopped = true;
  });
  await until(() => {
    endGrace();
    return isStopped;
  }, 'the service has ended');
  assert.deepEqual(await stateOf(sql, id), { status: 'waiting', attempts: 0, errors: [] });
  const due = () => sql`select from webhook.work where lease is null and due_at <= now()`;
  await untilSql(async () => (await due()).length === 1, 'nobody waits for a lease to end');
  recorder.answer((response) => response.end());
  const again = await startGatehouse(t, ['webhook'], url, settings);
  await untilStatus(sql, id, 'done');
  const attempts = recorder.received.map(({ headers }) => headers['gatehouse-attempt']);
  assert.deepEqual(attempts, ['1', '1'], 'its first attempt, twice');
  await again.stop();
});
