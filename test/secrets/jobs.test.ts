import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readConfig } from '../../src/config.ts';
import { migrate } from '../../src/db/migrate.ts';
import { createLog } from '../../src/runtime/log.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { secrets } from '../../src/secrets/start.ts';
import { createDatabase } from '../support/database.ts';
import { AUTH_TOKEN, SERVER_SECRET } from '../support/gatehouse.ts';

const { url, sql } = await createDatabase();
const config = readConfig(['secrets'], 'serve', { DATABASE_URL: url, SERVER_SECRET, AUTH_TOKEN }).secrets ?? assert.fail();
const surroundings = {
  log: createLog('silent', () => {}),
  metrics: createMetrics(),
  isServing: () => true,
  announce: () => {},
  print: async () => {},
};
const { jobs, storage } = secrets({ ...config, serverSecret: SERVER_SECRET, authToken: AUTH_TOKEN }, surroundings);
after(() => storage.database.close());
await migrate(storage.database, storage.schema, storage.migrations);
const [job] = jobs;

/** A kind of row, and how it ends: `expires_at` relative to now, and whether its content is still there. */
const insert = (kind: string, rows: number, expiry: string | null, content: boolean) => sql`
  insert into secrets.secrets (id, key_id, commitment, blob, expires_at, max_reads)
  select gen_random_uuid(), ${kind}, b, b, now() + ${expiry}::interval, 1
  from generate_series(1, ${rows}), (select case when ${content} then decode('00', 'hex') end as b) content`;

const count = async (): Promise<Record<string, number>> => {
  const rows = await sql`select key_id as kind, count(*)::int as rows from secrets.secrets group by key_id`;
  return Object.fromEntries(rows.map(({ kind, rows: number }) => [kind, number]));
};

test('what has expired or is used up is removed, and nothing else', async () => {
  await insert('lives for ever', 3, null, true);
  await insert('lives another minute', 3, '1 minute', true);
  await insert('expired', 3, '-1 second', true);
  await insert('used up', 3, '1 minute', false);
  await insert('used up, for ever', 3, null, false);
  await insert('used up and expired', 3, '-1 minute', false);
  assert.equal(jobs.length, 1);
  assert.equal(await job?.batch(), false, 'there is no more to do');
  assert.deepEqual(await count(), { 'lives for ever': 3, 'lives another minute': 3 });
  assert.equal(await job?.batch(), false);
  assert.deepEqual(await count(), { 'lives for ever': 3, 'lives another minute': 3 });
});

test('a large number goes in batches, and the job says so until all is done', async () => {
  await sql`truncate secrets.secrets`;
  await insert('expired', 1_200, '-1 second', true);
  await insert('used up', 700, null, false);
  await insert('lives', 10, null, true);
  let batches = 0;
  for (let more = true; more; batches += 1) {
    const { expired: before = 0 } = await count();
    more = (await job?.batch()) ?? false;
    const { expired: left = 0 } = await count();
    assert.ok(before - left <= 500, 'a batch is small');
    assert.ok(batches < 20);
  }
  assert.deepEqual(await count(), { lives: 10 });
});
