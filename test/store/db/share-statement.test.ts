/**
 * Callers that share a statement: who goes with whom, in which order, and what each is told, also
 * if connections die under it.
 */
import assert from 'node:assert/strict';
import { before, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { connect } from '../../../scripts/postgres.ts';
import { sharedStatement } from '../../../src/platform/db/share-statement.ts';
import { arrayLiteral } from '../../../src/platform/db/sql.ts';
import { Duplicate, Rejected } from '../../../src/platform/db/errors.ts';
import { Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { createDatabase } from '../../support/database.ts';
import { holdTimers, stopClock } from '../../support/clock.ts';
import { kill, openConnections, untilSql } from '../../support/connections.ts';
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
import { startProxy } from '../../support/proxy.ts';
import { latch, test, until } from '../../support/until.ts';

const file = await createDatabase();

before(() => makeThings(file.sql));

function open(t: TestContext, options = {}, url = file.url) {
  const database = openConnections(t, url, 'shared');
  const { store, statements } = storing(options);
  const storeAll = (list: readonly Thing[]) => list.map((thing) => store(database, thing));
  return { database, store: (thing: Thing) => store(database, thing), storeAll, statements };
}
const block = (t: TestContext, { id }: Thing) => holdStatements(t, file.url, id);
/** Two statements are under way, and either may begin first. */
const sorted = (statements: readonly number[][]) =>
  statements.toSorted((one, other) => (one[0] ?? 0) - (other[0] ?? 0));
/** By how many transactions these were stored. */
const commits = async (list: readonly Thing[]) =>
  (await file.sql`select distinct xmin::text from things where id in ${file.sql(idsOf(list))}`)
    .length;

const HALF_MIB = 512 * 1024;
const things = someThings(34);
const keyed = ['a', 'a', 'b', 'a', undefined].map((key) => oneThing(key ? { key } : {}));
const large = [HALF_MIB, HALF_MIB, 1].map((bytes) => oneThing({ bytes }));

// Which calls go together is tested in test/unit/db/take-next.test.ts.
for (const [what, list, sizes, areKeysUnique] of [
  ['at most 32', things, [32, 2], false],
  ['at most 1 MiB', large, [2, 1], false],
  ['with one key, unless keys are unique', keyed, [3, 1, 1], true],
] as const) {
  test(`calls of one turn share a statement and a commit, ${what}, and get their own results`, async (t) => {
    const { storeAll, statements } = open(t, { areKeysUnique });
    assert.deepEqual(await Promise.all(storeAll(list)), told(list));
    assert.deepEqual(
      sorted(statements).map((ids) => ids.length),
      sizes,
    );
    assert.deepEqual(
      [await commits(list), (await stored(file.sql, list)).length],
      [sizes.length, list.length],
    );
  });
}

test('two statements are under way, and calls that arrive meanwhile share the next one', async (t) => {
  const { store, statements } = open(t);
  const [first, second, ...gathered] = someThings(32);
  assert.ok(first && second);
  const held = [await block(t, first), await block(t, second)] as const;
  const calls = [store(first)];
  await held[0].met();
  calls.push(store(second));
  await held[1].met(2);
  for (const thing of gathered) {
    calls.push(store(thing));
    await turn();
  }
  assert.deepEqual(statements, [[first.id], [second.id]]);
  for (const { release } of held) await release();
  assert.deepEqual(await Promise.all(calls), told([first, second, ...gathered]));
  assert.deepEqual(statements, [[first.id], [second.id], idsOf(gathered)]);
});

test('a statement waits while each turn brings more calls, for three turns at most', async (t) => {
  const { store, statements } = open(t);
  const list = someThings(6);
  const calls = list.slice(0, 1).map(store);
  for (const thing of list.slice(1)) {
    calls.push(store(thing));
    await turn();
  }
  assert.deepEqual(await Promise.all(calls), told(list));
  assert.deepEqual(sorted(statements)[0], idsOf(list.slice(0, 4)));
  statements.length = 0;
  const early = oneThing();
  const late = oneThing();
  const before = store(early);
  await turn();
  await turn();
  assert.deepEqual(await Promise.all([before, store(late)]), told([early, late]));
  assert.deepEqual(sorted(statements), [[early.id], [late.id]]);
});

test('after a failed statement, items with the same key keep their order', async (t) => {
  const { storeAll } = open(t);
  const rest = someThings(20, { key: 'a' });
  const [one, two, ...others] = await outcomesOf(
    storeAll([oneThing({ size: 0 }), oneThing({ key: 'a', size: 0 }), ...rest]),
  );
  assert.ok(one instanceof Rejected && two instanceof Rejected);
  assert.deepEqual(others, told(rest));
  assert.deepEqual(await stored(file.sql, rest), idsOf(rest));
});

test('a lock delays only the item that needs it, and those with its key', async (t) => {
  const { store, storeAll, statements } = open(t);
  const locked = oneThing({ key: 'locked' });
  const again = oneThing({ key: 'locked' });
  const others = someThings(5, { key: 'free' });
  const holder = connect(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await holder`insert into things (id, size) values (${locked.id}, 1)`;
  const [first, ...rest] = storeAll([locked, ...others]);
  assert.deepEqual(await Promise.all(rest), told(others));
  const waiting = store(again);
  await store(oneThing());
  assert.deepEqual(await stored(file.sql, [locked, again]), []);
  await holder`rollback`;
  assert.deepEqual(await Promise.all([first, waiting]), told([locked, again]));
  assert.ok(!statements.some((ids) => ids.includes(again.id) && ids.includes(locked.id)));
});

test('no call is answered by a statement sent before it, even for the same item', async (t) => {
  const { database, store } = open(t);
  const gates: Array<() => void> = [];
  const count = sharedStatement('read', async (sql, ids: readonly number[]) => {
    const rows = await sql<Array<{ id: number }>>`select id from things where id in ${sql(ids)}`;
    await new Promise<void>((resolve) => gates.push(resolve));
    return ids.map((wanted) => rows.filter(({ id }) => id === wanted).length);
  });
  const thing = oneThing();
  const before = count(database, thing.id);
  await untilSql(async () => gates.length === 1, 'the first has looked');
  await store(thing);
  const after = count(database, thing.id);
  gates[0]?.();
  await untilSql(async () => gates.length === 2, 'the second has looked by itself');
  gates[1]?.();
  assert.deepEqual([await before, await after], [0, 1]);
});

const isRejected = (code: string) => (error: unknown) =>
  error instanceof Rejected && error.message.includes(code);
const isDuplicate = (constraint: string) => (error: unknown) =>
  error instanceof Duplicate && error.constraint === constraint;

for (const [what, wrong, isExpected] of [
  ['is out of range', { size: 70_000 }, isRejected('22003')],
  ['breaks a rule', { size: 0 }, isRejected('23514')],
  ['has the name of another row', { name: 'taken' }, isDuplicate('things_name')],
  ['has the id of another item', {}, isDuplicate('things_id')],
] as const) {
  test(`an item that ${what} fails alone, and the others are stored once`, async (t) => {
    const { storeAll, statements } = open(t);
    await file.sql`insert into things (id, name) values (-1, 'taken') on conflict do nothing`;
    // With keys, the later of two items with one id is the one that fails.
    const [one, two] = someThings(2, { key: 'a' });
    assert.ok(one && two);
    const bad = { ...oneThing(wrong), ...(what.includes('id') ? one : {}) };
    const [first, error, last] = await outcomesOf(storeAll([one, bad, two]));
    assert.deepEqual([first, last], told([one, two]));
    assert.ok(isExpected(error), String(error));
    assert.deepEqual(await stored(file.sql, [one, bad, two]), idsOf([one, two]));
    assert.deepEqual(statements[0], idsOf([one, bad, two]));
    const later = someThings(5);
    await Promise.all(storeAll(later));
    assert.equal(await commits(later), 1, 'who comes next shares a statement');
  });
}

const OURS = new RangeError('of ours');
type Run = (items: readonly number[]) => Promise<readonly number[]>;
const mistakes: ReadonlyArray<readonly [what: string, run: Run, message: RegExp]> = [
  ['rejects', () => Promise.reject(OURS), /^of ours/],
  [
    'throws before it begins',
    () => {
      throw OURS;
    },
    /^of ours/,
  ],
  ['has too few results', async () => [0, 0], /^internal error/],
  ['has too many results', async () => [0, 0, 0, 0], /^internal error/],
];

for (const [what, run, message] of mistakes) {
  test(`a statement that ${what} fails all its calls and is not repeated`, async (t) => {
    let runs = 0;
    const share = sharedStatement('write', async (_sql, items: readonly number[]) => {
      runs += 1;
      return runs === 1 ? run(items) : items;
    });
    const { database } = open(t);
    const calls = [1, 2, 3].map((item) => share(database, item));
    for (const call of calls) await assert.rejects(call, { message });
    assert.equal(runs, 1);
    assert.deepEqual(await Promise.all([4, 5].map((item) => share(database, item))), [4, 5]);
  });
}

test('of 1,100 simultaneous calls 1,024 succeed, and the others fail at once', async (t) => {
  const { store, storeAll } = open(t);
  const first = oneThing();
  const { met, release } = await block(t, first);
  const before = store(first);
  await met();
  const crowd = someThings(1_100);
  const calls = storeAll(crowd);
  for (const call of calls.slice(1_024)) await assert.rejects(call, Overloaded);
  await release();
  const admitted = crowd.slice(0, 1_024);
  assert.deepEqual(
    await Promise.all([before, ...calls.slice(0, 1_024)]),
    told([first, ...admitted]),
  );
  assert.equal((await stored(file.sql, crowd)).length, 1_024);
});

test('calls of different databases never share a statement', async (t) => {
  const { store, statements } = storing();
  const one = open(t).database;
  const two = open(t).database;
  const [held, ...others] = someThings(5);
  assert.ok(held);
  const { met, release } = await block(t, held);
  const first = store(one, held);
  await met();
  assert.deepEqual(await Promise.all(others.map((thing) => store(two, thing))), told(others));
  assert.deepEqual(statements, [[held.id], idsOf(others)]);
  await release();
  assert.deepEqual([await first], told([held]));
});

// --- Connections that die

function assertUnavailable(outcome: unknown) {
  assert.ok(outcome instanceof Unavailable && outcome.isTemporary, String(outcome));
}

/** Two statements of three things, which last until the test lets them go. */
async function holdTwo(
  t: TestContext,
  { storeAll }: ReturnType<typeof open>,
  six: readonly Thing[],
) {
  const holds: Hold[] = [];
  const calls = [];
  for (const part of [six.slice(0, 3), six.slice(3)]) {
    const hold = await holdStatements(t, file.url, part[1]?.id);
    calls.push(...storeAll(part));
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
      where application_name = 'gatehouse-shared' and state = 'active'`,
  ],
] as const) {
  test(`a statement ${what} fails all its calls and is not repeated; the next one works`, async (t) => {
    const proxy = await startProxy(t, file.url);
    const through = open(t, {}, proxy.url);
    const { storeAll, statements } = through;
    const six = someThings(6);
    const { outcomes } = await holdTwo(t, through, six);
    await end(() => proxy.cut());
    (await outcomes).forEach(assertUnavailable);
    assert.equal(statements.length, 2);
    assert.deepEqual(await stored(file.sql, six), []);
    await proxy.restore();
    const isStored = async () => typeof (await outcomesOf(storeAll([oneThing()])))[0] === 'string';
    await untilSql(isStored, 'something is stored again');
    const later = someThings(6);
    assert.deepEqual(await Promise.all(storeAll(later)), told(later));
  });
}

test('a connection cut while items are tried alone leaves each other one its own outcome', async (t) => {
  const proxy = await startProxy(t, file.url);
  const { storeAll } = open(t, {}, proxy.url);
  const wrong = oneThing({ size: 0 });
  const slow = oneThing();
  const good = someThings(2);
  const { met } = await holdStatements(t, file.url, slow.id);
  const [first, second, ...others] = storeAll([wrong, slow, ...good]);
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
  const { database, storeAll } = open(t, {}, proxy.url);
  let sent = 0;
  const grow = sharedStatement('write', async (sql, ids: readonly number[]) => {
    sent += 1;
    await sql`update things set size = size + 1
      where id = any (${arrayLiteral(ids.map(String))}::text::integer[])`;
    return ids.map(String);
  });
  const thirty = someThings(30);
  await Promise.all(storeAll(thirty));
  const dropped = proxy.drop();
  const outcomes = outcomesOf(thirty.map(({ id }) => grow(database, id)));
  await dropped;
  const [backend] = await file.sql<Array<{ pid: number }>>`
    select pid from pg_stat_activity
    where application_name = 'gatehouse-shared' and query like '%update things%'`;
  await kill(file, backend?.pid ?? 0);
  (await outcomes).forEach(assertUnavailable);
  const rows = await file.sql`select size from things where id in ${file.sql(idsOf(thirty))}`;
  assert.deepEqual([sent, new Set(rows.map(({ size }) => size))], [1, new Set([2])]);
});

/** How long a statement may go on when the connections are closed. */
const CLOSE_MS = 2_000;

for (const isFinished of [true, false]) {
  const what = isFinished ? 'lets statements under way finish' : 'ends those that do not finish';
  test(`closing ${what}, and fails waiting and later calls`, async (t) => {
    const endWaits = holdTimers(t, CLOSE_MS);
    const own = open(t);
    const underWay = someThings(6);
    const others = someThings(300);
    const { outcomes, release } = await holdTwo(t, own, underWay);
    const waiting = outcomesOf(own.storeAll(others));
    const closed = own.database.close();
    const late = outcomesOf(own.storeAll([oneThing()]));
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
  const { database } = open(t);
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
