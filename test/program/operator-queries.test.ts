/** The queries of docs/postgresql.md, while a statement waits for a lock. */
import assert from 'node:assert/strict';
import { withConnection } from '../../scripts/postgres.ts';
import { createDatabase } from '../support/database.ts';
import { readDocument } from '../support/documents.ts';
import { pause, test } from '../support/until.ts';

const { sql, url } = await createDatabase();
const QUERIES = [...readDocument('docs/postgresql.md').matchAll(/```sql\n([^]*?)```/g)].map(
  ([, text = '']) => text,
);
const [locks = ''] = QUERIES.filter((text) => text.includes('pg_blocking_pids'));

test('each query for an operator runs', async () => {
  await sql`create extension pgstattuple`;
  await sql`create extension pg_stat_statements`;
  assert.ok(QUERIES.length >= 12);
  for (const text of QUERIES) {
    const failed = await sql.unsafe(text).then(
      () => null,
      (error: { code: string }) => error.code,
    );
    // The server of the tests does not preload it: then only the names in the query are checked.
    const isPreloaded = !text.includes('pg_stat_statements');
    assert.equal(failed, isPreloaded ? null : '55000', text);
  }
});

test('the query for locks says who waits for whom', async () => {
  await withConnection(url, async (holder) => {
    const [{ pid } = { pid: 0 }] = await holder`select pg_backend_pid() as pid`;
    await holder`begin`;
    await holder`lock table identity.users in access exclusive mode`;
    const waiting = withConnection(url, async (other) => other`select from identity.users`);
    const begun = Date.now();
    // Tests of other databases of the server also wait for locks.
    const findRow = async () => (await sql.unsafe(locks)).find((row) => row.holder === pid);
    let row = await findRow();
    while (row === undefined) {
      await pause(begun, () => 'for the lock');
      row = await findRow();
    }
    assert.equal(row.state, 'idle in transaction');
    assert.match(row.query, /^select from identity\.users/);
    await holder`rollback`;
    await waiting;
  });
});
