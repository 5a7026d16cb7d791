/**
 * Connections and servers that die under a shared statement: every caller gets its true outcome,
 * nobody hangs, and it goes on.
 */
import assert from 'node:assert/strict';
import { before, type TestContext } from 'node:test';
import { sharedStatement } from '../../../src/platform/db/share-statement.ts';
import { arrayLiteral } from '../../../src/platform/db/sql.ts';
import { Rejected } from '../../../src/platform/db/errors.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { createDatabase } from '../../support/database.ts';
import { startKillablePostgres } from '../../support/killable-postgres.ts';
import { holdTimers, stopClock } from '../../support/clock.ts';
import { kill, openConnections, untilSql } from '../../support/connections.ts';
import { startProxy } from '../../support/proxy.ts';
import {
  blockThing,
  idsOf,
  makeThings,
  type Outcome,
  outcomeOf,
  someThings,
  stored,
  storing,
  type Thing,
  outcomesOf,
  told,
} from '../../support/batch-table.ts';
import { latch, test, until } from '../../support/until.ts';

const file = await createDatabase();

before(() => makeThings(file.sql));

const storedOf = (list: readonly Thing[]) => stored(file.sql, list);

function assertUnavailable(outcome: Outcome | undefined): void {
  assert.ok(outcome instanceof Unavailable && outcome.isTemporary, String(outcome));
}

/** Those whose callers were told that they are stored: whether that is true is another matter. */
const acknowledged = (list: readonly Thing[], outcomes: readonly Outcome[]): Thing[] =>
  list.filter((_, index) => typeof outcomes[index] === 'string');

/** Asks until there is a connection again. */
async function untilStored(
  database: Database,
  store: (database: Database, thing: Thing) => Promise<string>,
): Promise<void> {
  const [thing] = someThings(1);
  assert.ok(thing);
  await untilSql(
    async () => typeof (await outcomeOf(store(database, thing))) === 'string',
    'something is stored again',
  );
}

type Store = ReturnType<typeof storing>['store'];

/** Two statements of three things, which last until the test lets them go. */
async function holdTwo(t: TestContext, database: Database, store: Store, things: readonly Thing[]) {
  const first = await blockThing(t, file.url, things[1] ?? assert.fail());
  const second = await blockThing(t, file.url, things[4] ?? assert.fail());
  const call = (thing: Thing) => outcomeOf(store(database, thing));
  const calls = things.slice(0, 3).map(call);
  await first.met();
  calls.push(...things.slice(3).map(call));
  await second.met(2);
  return { calls, release: () => Promise.all([first.release(), second.release()]) };
}

test('a cut connection fails every call of a shared statement, and the next one works', async (t) => {
  const proxy = await startProxy(t, file.url);
  const database = openConnections(t, proxy.url, 'cut');
  const { store, statements } = storing();
  const underWay = someThings(10);
  const second = someThings(32);
  const other = await blockThing(t, file.url, underWay[5] ?? assert.fail());
  const another = await blockThing(t, file.url, second[5] ?? assert.fail());
  const calls = underWay.map((thing) => outcomeOf(store(database, thing)));
  await other.met();
  calls.push(...second.map((thing) => outcomeOf(store(database, thing))));
  await another.met(2);
  await proxy.cut();
  (await Promise.all(calls)).forEach(assertUnavailable);
  assert.equal(statements.length, 2, 'the second is under way, too, and none was tried again');
  assert.deepEqual(await storedOf([...underWay, ...second]), []);
  await proxy.restore();
  await untilStored(database, store);
  const later = someThings(20);
  await Promise.all(later.map((thing) => store(database, thing)));
  assert.deepEqual(await storedOf(later), idsOf(later));
});

test('a connection cut while items are tried alone leaves the invalid one its own error', async (t) => {
  const proxy = await startProxy(t, file.url);
  const database = openConnections(t, proxy.url, 'alone');
  const { store } = storing();
  const [wrong] = someThings(1, { size: 0 });
  const [before, slow, after] = someThings(3);
  assert.ok(wrong && before && slow && after);
  const other = await blockThing(t, file.url, slow);
  const calls = [wrong, before, slow, after].map((thing) => outcomeOf(store(database, thing)));
  await other.met();
  const [first, second, , last] = await Promise.all([calls[0], calls[1], null, calls[3]]);
  assert.ok(first instanceof Rejected);
  assert.deepEqual([second, last], [`${before.id} of size 1`, `${after.id} of size 1`]);
  assert.deepEqual((await storedOf([before, after])).sort(), [before.id, after.id]);
  await proxy.cut();
  assertUnavailable(await calls[2]);
  assert.deepEqual(await storedOf([wrong, slow]), []);
  await proxy.restore();
  await untilStored(database, store);
});

test('calls whose committed statement gets no answer fail, and it is not sent again', async (t) => {
  const proxy = await startProxy(t, file.url);
  const database = openConnections(t, proxy.url, 'kept');
  let statements = 0;
  const grow = sharedStatement('write', async (sql, ids: readonly number[]) => {
    statements += 1;
    const rows = await sql<Array<{ id: number; size: number }>>`
      update things set size = size + 1
      from unnest(${arrayLiteral(ids.map(String))}::text::integer[]) as given (wanted)
      where id = wanted returning id, size`;
    return ids.map((wanted) => String(rows.find(({ id }) => id === wanted)?.size));
  });
  const { store } = storing();
  const lost = someThings(30);
  const waiting = someThings(30);
  await Promise.all([...lost, ...waiting].map((thing) => store(database, thing)));
  const held = proxy.drop();
  const calls = lost.map(({ id }) => outcomeOf(grow(database, id)));
  await held;
  calls.push(...waiting.map(({ id }) => outcomeOf(grow(database, id))));
  const [backend] = await file.sql<
    Array<{ pid: number }>
  >`select pid from pg_stat_activity where application_name = 'gatehouse-kept'
    and query like '%update things%'`;
  await kill(file, backend?.pid ?? 0);
  const outcomes = await Promise.all(calls);
  outcomes.slice(0, 30).forEach(assertUnavailable);
  const sizeOf = async (list: readonly Thing[]) =>
    (
      await file.sql<
        Array<{ size: number }>
      >`select size from things where id in ${file.sql(idsOf(list))}`
    ).map(({ size }) => size);
  assert.deepEqual(
    await sizeOf(lost),
    Array<number>(30).fill(2),
    'it was done once, though nobody was told',
  );
  // Those who waited came to the dying connection, or to the next one.
  const done = typeof outcomes[30] === 'string';
  assert.deepEqual(await sizeOf(waiting), Array<number>(30).fill(done ? 2 : 1));
  for (const outcome of outcomes.slice(30))
    if (done) assert.equal(outcome, '2');
    else assertUnavailable(outcome);
  assert.equal(statements, 2);
});

test('after kill -9 of PostgreSQL, every acknowledged item is stored and no call hangs', async (t) => {
  const killable = await startKillablePostgres(t);
  await killable.query(makeThings);
  const database = openConnections(t, killable.proxyUrl, 'killable');
  const { store, statements } = storing();
  const outcomes = new Map<Thing, Outcome>();
  let goesOn = true;
  let isUp = true;
  /** Asks for one after the other, and while there is no server waits for the next one. */
  const client = async () => {
    while (goesOn) {
      await until(() => isUp, 'there is a server');
      for (const thing of someThings(1))
        outcomes.set(thing, await outcomeOf(store(database, thing)));
    }
  };
  const clients = Promise.all(Array.from({ length: 64 }, client));
  const successes = () =>
    [...outcomes.values()].filter((outcome) => typeof outcome === 'string').length;
  for (let round = 0; round < 2; round += 1) {
    const before = successes();
    await until(() => successes() >= before + 300, 'hundreds are stored');
    const [held] = someThings(1);
    assert.ok(held);
    // At any moment, or in the middle of a statement for certain.
    const other = round === 0 ? null : await blockThing(t, killable.url(), held);
    const call = other && outcomeOf(store(database, held));
    await other?.met();
    const killed = killable.kill();
    isUp = false;
    await killed;
    if (call) assertUnavailable(await call);
    await killable.restart();
    await untilStored(database, store);
    isUp = true;
  }
  goesOn = false;
  await clients;
  const list = [...outcomes.keys()];
  const told = acknowledged(list, [...outcomes.values()]);
  const found = await killable.query((sql) => stored(sql, list));
  assert.equal(new Set(found).size, found.length, 'nothing is stored twice');
  assert.deepEqual(
    idsOf(told).filter((id) => !found.includes(id)),
    [],
    'told "stored", and gone',
  );
  const failures = [...outcomes.values()].filter((outcome) => typeof outcome !== 'string');
  failures.forEach(assertUnavailable);
  assert.ok(failures.length > 0, 'it was killed under load');
  assert.ok(
    statements.some((ids) => ids.length > 1),
    'statements were shared',
  );
  t.diagnostic(
    `${told.length} were told "stored", ${failures.length} of a failure, of whom ${found.length - told.length} are stored`,
  );
});

/** How long a statement may go on when the connections are closed. */
const CLOSE_MS = 2_000;

test('closing lets the statement under way finish, and fails waiting and later calls', async (t) => {
  // A slow machine may need longer.
  holdTimers(t, CLOSE_MS);
  const database = openConnections(t, file.url, 'closed');
  const { store } = storing();
  const underWay = someThings(6);
  const waiting = someThings(300);
  const late = someThings(3);
  const { calls, release } = await holdTwo(t, database, store, underWay);
  calls.push(...waiting.map((thing) => outcomeOf(store(database, thing))));
  const closed = database.close();
  calls.push(...late.map((thing) => outcomeOf(store(database, thing))));
  await release();
  const outcomes = await Promise.all(calls);
  await closed;
  assert.deepEqual(
    outcomes.slice(0, 6),
    underWay.map(({ id }) => `${id} of size 1`),
  );
  outcomes.slice(6).forEach(assertUnavailable);
  const found = await storedOf([...underWay, ...waiting, ...late]);
  assert.deepEqual(new Set(found), new Set(idsOf(underWay)));
  assertUnavailable(await outcomeOf(store(database, late[0] ?? assert.fail())));
});

test('closing fails the calls of a statement that does not finish', async (t) => {
  const database = openConnections(t, file.url, 'stuck');
  const { store } = storing();
  const waiting = someThings(300);
  const { calls } = await holdTwo(t, database, store, someThings(6));
  calls.push(...waiting.map((thing) => outcomeOf(store(database, thing))));
  const endWaits = holdTimers(t, CLOSE_MS);
  const closed = database.close();
  await until(() => endWaits() > 0, 'the statements have had their time');
  await closed;
  (await Promise.all(calls)).forEach(assertUnavailable);
  assert.deepEqual(await storedOf(waiting), []);
});

test('a call that waited for ten seconds fails, and its work is not done later', async (t) => {
  const pass = stopClock(t);
  const done: number[] = [];
  const { opened: held, open: release } = latch();
  const call = sharedStatement('write', async (_sql, items: readonly number[]) => {
    done.push(...items);
    if (items.some((item) => item <= 2)) await held;
    return items;
  });
  const context = openConnections(t, file.url, 'late');
  const first = call(context, 1);
  await until(() => done.length === 1, 'the first is under way');
  const second = call(context, 2);
  await until(() => done.length === 2, 'the second is under way, too');
  const late = call(context, 3);
  pass(10);
  const last = call(context, 4);
  release();
  assert.deepEqual(await Promise.all([first, second, last]), [1, 2, 4]);
  await assert.rejects(late, Overloaded);
  assert.deepEqual(done, [1, 2, 4]);
});

test('a statement that times out fails all its calls and delays no later ones', async (t) => {
  const database = openConnections(t, file.url, 'timed', { DATABASE_STATEMENT_TIMEOUT: '1' });
  const { store, statements } = storing();
  const late = someThings(3);
  const later = someThings(4);
  const other = await blockThing(t, file.url, late[1] ?? assert.fail());
  const calls = outcomesOf(late.map((thing) => store(database, thing)));
  await other.met();
  const next = later.map((thing) => store(database, thing));
  for (const outcome of await calls) {
    assertUnavailable(outcome);
    assert.match(String(outcome), /57014/);
  }
  assert.deepEqual(await Promise.all(next), told(later));
  assert.deepEqual(statements, [idsOf(late), idsOf(later)]);
  await other.release();
  assert.deepEqual(await storedOf(late), []);
  assert.deepEqual(await Promise.all(late.map((thing) => store(database, thing))), told(late));
});

test('an item tried alone may time out, and the others get their own results', async (t) => {
  const database = openConnections(t, file.url, 'timed', { DATABASE_STATEMENT_TIMEOUT: '1' });
  const { store } = storing();
  const [wrong] = someThings(1, { size: 0 });
  const [slow, ...good] = someThings(4);
  assert.ok(wrong && slow);
  await blockThing(t, file.url, slow);
  const outcomes = await outcomesOf(
    [wrong, ...good.slice(0, 1), slow, ...good.slice(1)].map((thing) => store(database, thing)),
  );
  assert.ok(outcomes[0] instanceof Rejected);
  assertUnavailable(outcomes[2]);
  assert.match(String(outcomes[2]), /57014/);
  assert.deepEqual([outcomes[1], ...outcomes.slice(3)], told(good));
  const found = await storedOf([wrong, slow, ...good]);
  assert.deepEqual(
    found.toSorted((one, other) => one - other),
    idsOf(good),
  );
});
