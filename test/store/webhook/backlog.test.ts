/** What the gauges of waiting and dead events measure, and how much it reads. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readBacklog } from '../../../src/webhook/store/events.ts';
import { openConnections } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { observe } from '../../support/plans.ts';

test('waiting and dead events are counted up to a limit, and no more are read', async (t) => {
  const file = await createDatabase(t);
  const { sql } = file;
  const { url, scans } = await observe(t, file);
  const database = openConnections(t, url, 'backlog');
  assert.deepEqual(await readBacklog(database, 5), { waiting: 0, oldest: 0, dead: 0, paused: 0 });

  await sql`
    insert into webhook.work (event_id, token_id, received_at)
    select gen_random_uuid(), gen_random_uuid(), now() - n * interval '1 hour'
    from generate_series(1, 30) as n`;
  await sql`
    insert into webhook.outcomes (event_id, status, attempts)
    select gen_random_uuid(), case when n <= 20 then 'dead' else 'done' end, 1
    from generate_series(1, 50) as n`;
  await sql`insert into webhook.pause (paused_by) values ('test')`;
  await sql`vacuum analyze`;

  const { oldest, ...all } = await readBacklog(database, 1_000);
  assert.deepEqual(all, { waiting: 30, dead: 20, paused: 1 });
  assert.equal(Math.floor(oldest / 3_600), 30);

  scans();
  const { waiting, dead } = await readBacklog(database, 5);
  assert.deepEqual({ waiting, dead }, { waiting: 5, dead: 5 });
  const read = scans();
  assert.deepEqual(
    read.map(({ table, rows }) => [table, rows]),
    [
      ['webhook.outcomes', 5],
      ['webhook.pause', 1],
      ['webhook.work', 5],
    ],
  );
});
