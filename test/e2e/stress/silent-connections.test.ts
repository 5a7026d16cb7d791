/**
 * Healthy work that lasts longer than the silence that ends a connection. All connections run at
 * once, to save time.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../../support/database.ts';
import { ask, openConnections, PURPOSES } from '../../support/connections.ts';

const { url } = await createDatabase();

test('21 s of healthy work on every connection succeed', async (t) => {
  const database = openConnections(t, url, 'busy');
  const inTurn = PURPOSES.map(async (purpose) => {
    for (const seconds of [7, 7, 7, 0]) await ask(database, purpose, `select pg_sleep(${seconds})`);
  });
  // Each waits for the one before it.
  const other = openConnections(t, url, 'queued');
  const queued = [7, 2, 0].map((seconds) => ask(other, 'list', `select pg_sleep(${seconds})`));
  const long = database.transaction(async (sql) => {
    for (let statement = 0; statement < 3; statement += 1) await sql`select pg_sleep(7)`;
  });
  // No byte arrives for 17 s, but for the first 8 of them no statement is outstanding.
  const pausing = database.transaction(async (sql) => {
    await sql`select`;
    await sleep(8_000);
    await sql`select pg_sleep(9)`;
  });
  const outcomes = await Promise.allSettled([...inTurn, ...queued, long, pausing]);
  assert.deepEqual(
    outcomes.filter(({ status }) => status === 'rejected'),
    [],
  );
});
