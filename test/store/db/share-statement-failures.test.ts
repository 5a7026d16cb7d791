/** Connections that die under a shared statement: every caller gets its true outcome. */
import assert from 'node:assert/strict';
import { before, type TestContext } from 'node:test';
import { sharedStatement } from '../../../src/platform/db/share-statement.ts';
import { arrayLiteral } from '../../../src/platform/db/sql.ts';
import { Rejected } from '../../../src/platform/db/errors.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { createDatabase } from '../../support/database.ts';
import { holdTimers, stopClock } from '../../support/clock.ts';
import { kill, openConnections, untilSql } from '../../support/connections.ts';
import { startProxy } from '../../support/proxy.ts';
import {
  idsOf,
  makeThings,
  oneThing,
  outcomesOf,
  someThings,
  stored,
  storing,
  type Thing,
  told,
} from '../../support/batch-table.ts';
import { type Hold, holdStatements } from '../../support/hold.ts';
import { latch, test, until } from '../../support/until.ts';

const file = await createDatabase();
const { store, statements } = storing();

before(() => makeThings(file.sql));

function assertUnavailable(outcome: unknown) {
  assert.ok(outcome instanceof Unavailable && outcome.isTemporary, String(outcome));
}

const storeAll = (database: Database, list: readonly Thing[]) =>
  list.map((thing) => store(database, thing));

/** Two statements of three things, which last until the test lets them go. */
async function holdTwo(t: TestContext, database: Database, things: readonly Thing[]) {
  const first = things.slice(0, 3);
  const second = things.slice(3);
  const holds: Hold[] = [];
  const calls = [];
  for (const part of [first, second]) {
    const hold = await holdStatements(t, file.url, part[1]?.id);
    calls.push(...storeAll(database, part));
    holds.push(hold);
    await hold.met(holds.length);
  }
  const release = () => Promise.all(holds.map((hold) => hold.release()));
  return { outcomes: outcomesOf(calls), release };
}

for (const [what, end] of [
  ['whose connection is cut', (cut: () => Promise<unknown>) => cut()],
  [
    'that an administrator cancels',
    () => file.sql`select pg_cancel_backend(pid) from pg_stat_activity
      where application_name = 'gatehouse-cut' and state = 'active'`,
  ],
] as const) {
  test(`a statement ${what} fails all its calls and is not repeated; the next one works`, async (t) => {
    const proxy = await startProxy(t, file.url);
    const database = openConnections(t, proxy.url, 'cut');
    const things = someThings(6);
    const { outcomes } = await holdTwo(t, database, things);
    const before = statements.length;
    await end(() => proxy.cut());
    (await outcomes).forEach(assertUnavailable);
    assert.equal(statements.length, before);
    assert.deepEqual(await stored(file.sql, things), []);
    await proxy.restore();
    const isStored = async () =>
      typeof (await outcomesOf(storeAll(database, [oneThing()])))[0] === 'string';
    await untilSql(isStored, 'something is stored again');
    const later = someThings(6);
    assert.deepEqual(await Promise.all(storeAll(database, later)), told(later));
  });
}

test('a connection cut while items are tried alone leaves each other one its own outcome', async (t) => {
  const proxy = await startProxy(t, file.url);
  const database = openConnections(t, proxy.url, 'alone');
  const wrong = oneThing({ size: 0 });
  const slow = oneThing();
  const good = someThings(2);
  const { met } = await holdStatements(t, file.url, slow.id);
  const [first, second, ...others] = storeAll(database, [wrong, slow, ...good]);
  const cut = outcomesOf([second ?? assert.fail()]);
  await assert.rejects(first ?? assert.fail(), Rejected);
  await met();
  assert.deepEqual(await Promise.all(others), told(good));
  await proxy.cut();
  (await cut).forEach(assertUnavailable);
  assert.deepEqual(new Set(await stored(file.sql, [wrong, slow, ...good])), new Set(idsOf(good)));
});

test('calls whose committed statement gets no answer fail, and it is not sent again', async (t) => {
  const proxy = await startProxy(t, file.url);
  const database = openConnections(t, proxy.url, 'kept');
  let sent = 0;
  const grow = sharedStatement('write', async (sql, ids: readonly number[]) => {
    sent += 1;
    await sql`update things set size = size + 1
      where id = any (${arrayLiteral(ids.map(String))}::text::integer[])`;
    return ids.map(String);
  });
  const things = someThings(30);
  await Promise.all(storeAll(database, things));
  const dropped = proxy.drop();
  const outcomes = outcomesOf(things.map(({ id }) => grow(database, id)));
  await dropped;
  const [backend] = await file.sql<Array<{ pid: number }>>`
    select pid from pg_stat_activity
    where application_name = 'gatehouse-kept' and query like '%update things%'`;
  await kill(file, backend?.pid ?? 0);
  (await outcomes).forEach(assertUnavailable);
  const rows = await file.sql`select size from things where id in ${file.sql(idsOf(things))}`;
  assert.deepEqual([sent, new Set(rows.map(({ size }) => size))], [1, new Set([2])]);
});

/** How long a statement may go on when the connections are closed. */
const CLOSE_MS = 2_000;

for (const isFinished of [true, false]) {
  const what = isFinished ? 'lets statements under way finish' : 'ends those that do not finish';
  test(`closing ${what}, and fails waiting and later calls`, async (t) => {
    const endWaits = holdTimers(t, CLOSE_MS);
    const database = openConnections(t, file.url, 'closed');
    const underWay = someThings(6);
    const others = someThings(300);
    const { outcomes, release } = await holdTwo(t, database, underWay);
    const waiting = outcomesOf(storeAll(database, others));
    const closed = database.close();
    const late = outcomesOf(storeAll(database, [oneThing()]));
    if (isFinished) await release();
    else await until(() => endWaits() > 0, 'the statements have had their time');
    if (isFinished) assert.deepEqual(await outcomes, told(underWay));
    else (await outcomes).forEach(assertUnavailable);
    [...(await waiting), ...(await late)].forEach(assertUnavailable);
    await closed;
    assert.deepEqual(await stored(file.sql, others), []);
  });
}

test('a call that waited for ten seconds fails, and its work is not done later', async (t) => {
  const pass = stopClock(t);
  const done: number[] = [];
  const { opened: held, open: release } = latch();
  const call = sharedStatement('write', async (_sql, items: readonly number[]) => {
    done.push(...items);
    if (items.some((item) => item <= 2)) await held;
    return items;
  });
  const database = openConnections(t, file.url, 'late');
  const calls = [];
  for (const item of [1, 2]) {
    calls.push(call(database, item));
    await until(() => done.length === item, 'it is under way');
  }
  const late = call(database, 3);
  pass(10);
  calls.push(call(database, 4));
  release();
  assert.deepEqual(await Promise.all(calls), [1, 2, 4]);
  await assert.rejects(late, Overloaded);
  assert.deepEqual(done, [1, 2, 4]);
});
