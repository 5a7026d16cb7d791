/** Work that only one replica may do at a time. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Database, Sql } from '../../../src/platform/db/pool.ts';
import type { Data } from '../../../src/platform/runtime/errors.ts';
import { takeNamedLock } from '../../../src/identity/store/rights.ts';
import { openConnections } from '../../support/connections.ts';
import { createDatabase, type TestDatabase } from '../../support/database.ts';

async function createTables(t: TestContext): Promise<TestDatabase> {
  const file = await createDatabase(t);
  await file.sql`create table identity.firsts (who integer)`;
  return file;
}

const open = (t: TestContext, { url }: TestDatabase) => openConnections(t, url, 'identity');

const withNamedLock = <T extends Data>(
  database: Database,
  name: string,
  work: (sql: Sql) => Promise<T>,
) =>
  database.transaction(async (sql) => {
    await takeNamedLock(sql, name);
    return work(sql);
  });

test('holders of a named lock see what the previous holder committed', async (t) => {
  const file = await createTables(t);
  const replicas = Array.from({ length: 6 }, () => open(t, file));
  const turn = (replica: number) => {
    const database = replicas[replica % replicas.length];
    assert.ok(database);
    return withNamedLock(database, 'first', async (sql) => {
      if ((await sql`select from identity.firsts`).length > 0) return false;
      await sql`insert into identity.firsts values (${replica})`;
      return true;
    });
  };
  // In the first round nobody has ever taken a turn; in the second, somebody has.
  for (const round of ['first', 'second']) {
    const wins = await Promise.all(Array.from({ length: 24 }, (_, index) => turn(index)));
    assert.equal(wins.filter(Boolean).length, 1, `${round} round`);
    assert.equal((await file.sql`delete from identity.firsts`).count, 1);
  }
});

test('a failed holder of a named lock leaves nothing behind and frees the lock', async (t) => {
  const file = await createTables(t);
  const database = open(t, file);
  const failed = withNamedLock(database, 'first', async (sql) => {
    await sql`insert into identity.firsts values (99)`;
    throw new RangeError('on purpose');
  });
  await assert.rejects(failed, RangeError);
  assert.equal((await file.sql`select from identity.firsts`).length, 0);
  assert.equal(await withNamedLock(database, 'first', async () => 'in'), 'in');
});
