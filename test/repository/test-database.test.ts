import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, databaseUrl } from '../../scripts/postgres.ts';
import { createDatabase } from '../support/database.ts';

test('two databases of one file share nothing', async (t) => {
  const [one, other] = await Promise.all([createDatabase(t), createDatabase(t)]);
  await one.sql`create table mark (n integer)`;
  const [row] = await other.sql`select to_regclass('mark') as found`;
  assert.equal(row?.found, null);
});

test('a database that is still in use is dropped all the same', async (t) => {
  const database = await createDatabase(t);
  const name = new URL(database.url).pathname.slice(1);
  const straggler = connect(database.url);
  t.after(() => straggler.end());
  await straggler`select`;
  await database.drop();

  const administration = connect(databaseUrl(database.url, 'postgres'));
  t.after(() => administration.end());
  assert.deepEqual(
    [...(await administration`select from pg_database where datname = ${name}`)],
    [],
  );
});

test('it belongs to the file where no test is named', async () => {
  const database = await createDatabase();
  const [row] = await database.sql`select current_database() as name`;
  assert.equal(`/${row?.name}`, new URL(database.url).pathname);
});
