/** The coordinator dies between the two phases of a commit on both workers. */
import assert from 'node:assert/strict';
import { type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { useUpRead } from '../../../src/secrets/store/secrets.ts';
import { changeSettings, openConnections, untilSql } from '../../support/connections.ts';
import { test } from '../../support/until.ts';
import { NAME, portsOf, preparedOn, startSecrets } from './cluster.ts';

async function start(t: TestContext) {
  const { citus, url, client } = await startSecrets(t);
  const keep = () => client.keep('text', { max_reads: 1 });
  const kept = await Promise.all(Array.from({ length: 12 }, keep));
  const ports = await portsOf(citus, kept);
  const ids = citus.workers.map(({ port }) => {
    const found = kept.find(({ id }) => ports.get(id) === port);
    return found?.id ?? assert.fail('a worker has no secret');
  });
  return { citus, url, ids };
}

/** What is written there then waits for a standby that does not exist. */
const HOLD = `alter system set synchronous_standby_names = 'none'`;
const RELEASE = 'alter system reset synchronous_standby_names';

type Row = Readonly<{ id: string; commitment: Buffer; reads: number; ending: string | null }>;

const rowsOf = (url: string, ids: readonly string[]) =>
  withConnection(
    url,
    (sql) => sql<Row[]>`
      select id, commitment, reads::int4 as reads, ending from secrets.secrets
      where id in ${sql(ids)} order by id`,
  );

for (const [when, isCommitted, what] of [
  ['after its own commit', true, 'both reads count'],
  ['before its own commit', false, 'neither read counts'],
] as const) {
  test(`the coordinator dies between the phases, ${when}: ${what}`, async (t) => {
    const { citus, url, ids } = await start(t);
    const { coordinator, workers } = citus;
    const held = isCommitted ? coordinator : workers[1];
    const rows = await rowsOf(url, ids);
    const administrator = held.url('postgres', NAME);
    await changeSettings(administrator, HOLD);
    const database = openConnections(t, url, 'reader');
    const given = { isLate: () => false, until: new Date(Date.now() + 60_000) };
    // In the same turn, so that one statement is for both.
    const reads = rows.map((row) => useUpRead(database, { ...row, ...given }));
    const outcomes = Promise.allSettled(reads);
    const areBoth = async () => (await preparedOn(citus)).every((count) => count === 1);
    await untilSql(areBoth, 'both workers have prepared the commit');
    // Effective with the next start, or with a reload.
    await withConnection(administrator, (sql) => sql.unsafe(RELEASE));
    await coordinator.kill();
    for (const { status } of await outcomes) assert.equal(status, 'rejected');
    if (!isCommitted) await changeSettings(administrator);

    await coordinator.start();
    const isResolved = async () => (await preparedOn(citus)).every((count) => count === 0);
    await untilSql(isResolved, 'no commit is in doubt');
    const after = await rowsOf(url, ids);
    assert.deepEqual(
      after.map(({ reads: count, ending }) => [count, ending]),
      ids.map(() => (isCommitted ? [1, 'read'] : [0, null])),
    );
  });
}
