/**
 * A shutdown returns attempts in progress, for each kind of target, and the next start repeats
 * them.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { holdTimers } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { root } from '../../support/process.ts';
import { startRecorder } from '../../support/recorder.ts';
import { test, until } from '../../support/until.ts';
import { stateOf, untilEnded, sendEvent } from '../../support/webhook-store.ts';

/** How long a shutdown lets attempts go on. */
const SHUTDOWN_MS = 5_000;
const directory = mkdtempSync(join(tmpdir(), 'gatehouse-shutdown-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const file = (name: string) => join(directory, name);

test('an attempt that a shutdown interrupts does not count, for each kind of target', async (t) => {
  const recorder = await startRecorder(t);
  recorder.answer(() => {});
  const PATH = process.env.PATH ?? '';
  const script =
    'echo "$EVENT_ATTEMPT" >> "$DIRECTORY/attempts"; [ -f "$DIRECTORY/go" ] || exec sleep 1000';
  const targets: Readonly<Record<string, Record<string, string>>> = {
    command: {
      WEBHOOK_COMMAND: JSON.stringify(['/bin/sh', '-c', script]),
      PATH,
      DIRECTORY: directory,
    },
    handler: { WEBHOOK_HANDLER: join(root, 'test/support/handler.mjs'), TOLD: file('told') },
    forward: { WEBHOOK_FORWARD_URL: recorder.url, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' },
  };
  const endGrace = holdTimers(t, SHUTDOWN_MS);
  await Promise.all(
    Object.entries(targets).map(async ([name, target]) => {
      const { url, sql } = await createDatabase(t);
      // The only attempt: if it counted, the event would be dead.
      const environment = {
        ...target,
        WEBHOOK_RETRY_SCHEDULE: 'none',
        WEBHOOK_TIMEOUT: '300',
      };
      const gatehouse = await startGatehouse(t, ['webhook'], url, environment);
      const id = await sendEvent(gatehouse.url.webhook, 'never ends');
      await untilSql(
        async () => (await stateOf(sql, id)).attempts === 1,
        `${name}: it is under way`,
      );
      if (name === 'command') await until(() => existsSync(file('attempts')), 'the command runs');
      let isStopped = false;
      void gatehouse.stop().then(() => {
        isStopped = true;
      });
      await until(() => {
        endGrace();
        return isStopped;
      }, `${name}: the service has ended`);
      assert.deepEqual(
        await stateOf(sql, id),
        { status: 'waiting', attempts: 0, errors: [] },
        name,
      );
      assert.deepEqual(
        [...(await sql`select lease, due_at <= now() as due from webhook.work`)],
        [{ lease: null, due: true }],
        `${name}: nobody waits for a lease to end`,
      );
      if (name !== 'command') return;
      writeFileSync(file('go'), '');
      const again = await startGatehouse(t, ['webhook'], url, environment);
      await untilEnded(sql, id);
      assert.deepEqual(await stateOf(sql, id), { status: 'done', attempts: 1, errors: [] });
      assert.equal(readFileSync(file('attempts'), 'utf8'), '1\n1\n', 'its first attempt, twice');
      await again.stop();
    }),
  );
});
