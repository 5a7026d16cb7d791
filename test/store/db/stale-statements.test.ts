/**
 * Prepared statements that the server rejects or has forgotten: each call gets its own result, and
 * none fails.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import type { Database, Sql } from '../../../src/platform/db/pool.ts';
import { createDatabase } from '../../support/database.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { latch, until } from '../../support/until.ts';

const file = await createDatabase();
const CALLERS = 40;

before(async () => {
  await file.sql`create table things (id integer primary key, name text)`;
  await file.sql`insert into things select id, 'name ' || id from generate_series(0, 999) id`;
  await file.sql`create table log (call text primary key, kind text)`;
});

const insert = (sql: Sql, call: string) =>
  sql`insert into log values (${call}, 'written') returning *`;

/** Statements return their parameters, and columns whose types change. */
const CALLS = {
  read: (database: Database, call: string, id: number) =>
    database.read((sql) => sql`select ${call} as call, name from things where id = ${id}`),
  list: (database: Database, call: string, id: number) =>
    database.list((sql) => sql`select *, ${call} as call from things where id = ${id}`),
  update: (database: Database, call: string, id: number) =>
    database.write(
      (sql) => sql`update things set name = name where id = ${id} returning name, ${call} as call`,
    ),
  write: (database: Database, call: string) => database.write((sql) => insert(sql, call)),
  transaction: (database: Database, call: string, id: number) =>
    database.transaction(async (sql) => [
      ...(await sql`select name, ${call} as call from things where id = ${id}`),
      ...(await insert(sql, call)),
    ]),
};

/**
 * Calls of every kind until `disturb` has ended. Each must succeed, and what was written must be
 * stored once.
 */
async function underLoad(
  database: Database,
  disturb: (untilCalled: () => Promise<void>) => Promise<void>,
) {
  await file.sql`delete from log`;
  let isOver = false;
  let finished = 0;
  const written: string[] = [];
  const kinds = Object.entries(CALLS);
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    for (let number = 0; !isOver; number += 1) {
      const [kind, run] = kinds[(caller + number) % kinds.length] ?? assert.fail();
      const call = `${kind} ${caller}.${number}`;
      const id = (caller * 37 + number) % 1_000;
      for (const row of await run(database, call, id)) {
        assert.equal(row.call, call);
        assert.equal(row.name ?? row.kind, row.kind ?? `name ${id}`);
      }
      if (kind === 'write' || kind === 'transaction') written.push(call);
      finished += 1;
    }
  });
  const all = Promise.all(callers);
  const untilCalled = () => {
    const goal = finished + 2 * CALLERS;
    return until(() => finished >= goal, 'more calls have ended');
  };
  const disturbed = disturb(untilCalled).finally(() => {
    isOver = true;
  });
  await Promise.all([all, Promise.race([all, disturbed])]);
  const logged = await file.sql`select call from log`;
  assert.deepEqual(logged.map(({ call }) => call).sort(), written.sort());
}

test('column types change six times under load: each call gets its own result', async (t) => {
  const database = openConnections(t, file.url, 'altered');
  await underLoad(database, async (untilCalled) => {
    for (let change = 0; change < 6; change += 1) {
      const type = change % 2 ? 'text' : 'varchar(400)';
      await file.sql.unsafe(`alter table things alter name type ${type};
        alter table log alter call type ${type}, alter kind type ${type}`);
      await untilCalled();
    }
  });
});

test('the server forgets six times under load: each call gets its own result', async (t) => {
  const database = openConnections(t, file.url, 'forgotten');
  await underLoad(database, async (untilCalled) => {
    for (let time = 0; time < 6; time += 1) {
      const statement = time % 2 ? 'deallocate all' : 'discard all';
      for (const purpose of ['read', 'write', 'list'] as const)
        await database[purpose]((sql) => sql.unsafe(statement));
      await untilCalled();
    }
  });
});

test('a transaction that is told to have committed is stored, also after "deallocate all"', async (t) => {
  const database = openConnections(t, file.url, 'committed');
  await database.transaction((sql) => sql`select 1`);
  await database.transaction(async (sql) => {
    await sql.unsafe('deallocate all');
    await sql.unsafe(`insert into log values ('committed', 'transaction')`);
  });
  assert.equal((await file.sql`select from log where call = 'committed'`).length, 1);
});

test('a parameter type changes: the statement is prepared again', async (t) => {
  const database = openConnections(t, file.url, 'parameter');
  const find = () => database.read((sql) => sql`select name from things where id = ${7}`);
  for (const type of ['integer', 'text', 'integer using id::integer']) {
    await file.sql.unsafe(`alter table things alter id type ${type}`);
    assert.equal((await find())[0]?.name, 'name 7', type);
  }
});

test('a connection that is replaced finishes its call', async (t) => {
  const database = openConnections(t, file.url, 'finishes');
  const find = () =>
    database.transaction(async (sql) => {
      const [row] = await sql`select name, pg_backend_pid() as pid from things where id = 7`;
      assert.equal(row?.name, 'name 7');
      return Number(row?.pid);
    });
  const before = await find();
  const { opened: gate, open: goOn } = latch();
  const slow = database.transaction(async (sql) => {
    await gate;
    const [row] = await sql`select pg_backend_pid() as pid`;
    return Number(row?.pid);
  });
  // On another connection, whose statement is stale.
  const prepared = await find();
  await file.sql`alter table things alter name type varchar(401)`;
  assert.notEqual(await find(), prepared);
  goOn();
  assert.equal(await slow, before);
  const isClosed = async () =>
    (await file.sql`select from pg_stat_activity where pid = ${before}`).length === 0;
  await untilSql(isClosed, 'the old connection is closed');
});
