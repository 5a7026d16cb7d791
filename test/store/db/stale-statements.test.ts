/**
 * Prepared statements that the server rejects or has forgotten: each call gets its own result, and
 * none fails.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import type { Database } from '../../../src/platform/db/pool.ts';
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

/** Both kinds of statements return their parameters, and columns whose types change. */
const calls = {
  read: async (database: Database, call: string, id: number) => {
    const [row] = await database.read(
      (sql) => sql`select ${call}::text as call, id, name from things where id = ${id}`,
    );
    assert.deepEqual({ ...row }, { call, id, name: `name ${id}` });
  },
  list: async (database: Database, call: string, id: number) => {
    const [row] = await database.list(
      (sql) => sql`select *, ${call}::text as call from things where id = ${id}`,
    );
    assert.deepEqual({ ...row }, { call, id, name: `name ${id}` });
  },
  write: async (database: Database, call: string) => {
    const [row] = await database.write(
      (sql) => sql`insert into log values (${call}, 'write') returning *, 1 as one`,
    );
    assert.deepEqual({ ...row }, { call, kind: 'write', one: 1 });
  },
  update: async (database: Database, call: string, id: number) => {
    const [row] = await database.write(
      (sql) =>
        sql`update things set name = name where id = ${id} returning name, ${call}::text as call`,
    );
    assert.deepEqual({ ...row }, { call, name: `name ${id}` });
  },
  transaction: async (database: Database, call: string, id: number) => {
    const rows = await database.transaction(async (sql) => [
      ...(await sql`select name, ${call}::text as call from things where id = ${id}`),
      ...(await sql`insert into log values (${call}, 'transaction') returning kind, call`),
    ]);
    assert.deepEqual(
      rows.map((row) => ({ ...row })),
      [
        { call, name: `name ${id}` },
        { call, kind: 'transaction' },
      ],
    );
  },
};

/**
 * Calls of every kind until `disturb` has ended. Each must succeed, and what was written must be
 * stored once.
 */
async function underLoad(
  database: Database,
  disturb: (untilCalled: () => Promise<void>) => Promise<void>,
): Promise<void> {
  await file.sql`delete from log`;
  let isOver = false;
  let finished = 0;
  const written = new Set<string>();
  const problems = new Map<string, number>();
  const kinds = Object.entries(calls);
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    for (let number = 0; !isOver; number += 1) {
      const [kind, run] = kinds[(caller + number) % kinds.length] ?? assert.fail();
      const call = `${kind} ${caller}.${number}`;
      if (kind === 'write' || kind === 'transaction') written.add(call);
      await run(database, call, (caller * 37 + number) % 1_000).catch((error: unknown) => {
        const problem =
          error instanceof assert.AssertionError
            ? `${kind}: wrong result`
            : `${kind}: ${String(error)}`;
        problems.set(problem, (problems.get(problem) ?? 0) + 1);
      });
      finished += 1;
    }
  });
  const untilCalled = () => {
    const goal = finished + 2 * CALLERS;
    return until(() => finished >= goal, 'more calls have ended');
  };
  await disturb(untilCalled).finally(() => {
    isOver = true;
  });
  await Promise.all(callers);
  assert.deepEqual(Object.fromEntries(problems), {});
  const logged = await file.sql`select call from log`;
  assert.deepEqual(new Set(logged.map(({ call }) => call)), written);
}

test('column types change 20 times under load: each call gets its own result', async (t) => {
  const database = openConnections(t, file.url, 'altered');
  await underLoad(database, async (untilCalled) => {
    for (let change = 0; change < 20; change += 1) {
      const type = change % 2 ? 'text' : 'varchar(400)';
      await file.sql.unsafe(`alter table things alter column name type ${type}`);
      await file.sql.unsafe(
        `alter table log alter column call type ${type}, alter column kind type ${type}`,
      );
      await untilCalled();
    }
  });
});

for (const statement of ['deallocate all', 'discard all']) {
  test(`"${statement}" 20 times under load: each call gets its own result`, async (t) => {
    const database = openConnections(t, file.url, 'forgotten');
    await underLoad(database, async (untilCalled) => {
      for (let time = 0; time < 20; time += 1) {
        for (const purpose of ['read', 'write', 'list'] as const)
          await database[purpose]((sql) => sql.unsafe(statement));
        await untilCalled();
      }
    });
  });
}

test('a transaction that is told to have committed is stored, also after "deallocate all"', async (t) => {
  const database = openConnections(t, file.url, 'committed');
  await database.transaction(async (sql) => {
    await sql`select 1`;
  });
  await database.transaction(async (sql) => {
    await sql.unsafe('deallocate all');
    await sql.unsafe(`insert into log values ('committed', 'transaction')`);
  });
  const stored = await file.sql`select from log where call = 'committed'`;
  assert.equal(stored.length, 1);
});

test('a parameter type changes: the statement is prepared again', async (t) => {
  const database = openConnections(t, file.url, 'parameter');
  const find = () => database.read((sql) => sql`select name from things where id = ${7}`);
  assert.equal((await find())[0]?.name, 'name 7');
  await file.sql`alter table things alter column id type text`;
  assert.equal((await find())[0]?.name, 'name 7');
  await file.sql`alter table things alter column id type integer using id::integer`;
  assert.equal((await find())[0]?.name, 'name 7');
});

test('a connection that is replaced finishes its call', async (t) => {
  const database = openConnections(t, file.url, 'finishes');
  const find = () =>
    database.transaction(async (sql) => {
      const [row] =
        await sql`select name as marked, pg_backend_pid() as pid from things where id = 7`;
      return { marked: row?.marked, pid: Number(row?.pid) };
    });
  const before = await find();
  const { opened: gate, open: goOn } = latch();
  const slow = database.transaction(async (sql) => {
    const [row] = await sql`select pg_backend_pid() as pid`;
    await gate;
    return { pid: Number(row?.pid), rows: [...(await sql`select 1 as one`)] };
  });
  // On another connection, whose statement is stale.
  const prepared = await find();
  await file.sql`alter table things alter column name type varchar(401)`;
  const now = await find();
  assert.deepEqual([prepared.marked, now.marked], ['name 7', 'name 7']);
  assert.notEqual(now.pid, prepared.pid);
  goOn();
  const { pid, rows } = await slow;
  assert.deepEqual(rows, [{ one: 1 }]);
  assert.equal(pid, before.pid);
  await untilSql(
    async () => (await file.sql`select 1 from pg_stat_activity where pid = ${pid}`).length === 0,
    'the old connection is closed',
  );
});
