/** Callers that share a statement: who goes with whom, in which order, and what each is told. */
import assert from 'node:assert/strict';
import { before, test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { connect } from '../../../scripts/postgres.ts';
import { sharedStatement } from '../../../src/platform/db/share-statement.ts';
import { Duplicate, Rejected } from '../../../src/platform/db/errors.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { Overloaded } from '../../../src/platform/runtime/errors.ts';
import { createDatabase } from '../../support/database.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import {
  blockThing,
  idsOf,
  makeThings,
  outcomeOf,
  outcomesOf,
  someThings,
  stored,
  storing,
  type Thing,
  told,
} from '../../support/batch-table.ts';

const file = await createDatabase();
const MIB = 1024 * 1024;

before(() => makeThings(file.sql));

const open = (t: TestContext): Database => openConnections(t, file.url, 'grouped');

/** What is stored of these, in any order: two statements are under way. */
const storedOf = async (list: readonly Thing[]) =>
  (await stored(file.sql, list)).sort((one, other) => one - other);
/** Two are under way, and either may begin first. */
const sorted = (statements: readonly number[][]) =>
  statements.toSorted((one, other) => (one[0] ?? 0) - (other[0] ?? 0));
/** By how many transactions these were stored. */
const commits = async (list: readonly Thing[]): Promise<number> =>
  (await file.sql`select distinct xmin::text from things where id in ${file.sql(idsOf(list))}`)
    .length;

test('calls of one turn share a statement and a commit, and get their own results', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const things = someThings(32).map((thing, index) => ({ ...thing, size: index + 1 }));
  const calls = things.map(async (thing, index) => {
    // Some a few steps later, but in the same turn.
    for (let step = 0; step < index % 4; step += 1) await null;
    return store(database, thing);
  });
  assert.deepEqual(await Promise.all(calls), told(things));
  assert.deepEqual(
    statements.map((ids) => ids.length),
    [32],
  );
  assert.equal(await commits(things), 1);
  assert.equal((await storedOf(things)).length, 32);
});

test('at most 32 items share a statement, in order, without waiting for more', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const things = someThings(75);
  assert.deepEqual(await Promise.all(things.map((thing) => store(database, thing))), told(things));
  assert.deepEqual(sorted(statements), [
    idsOf(things.slice(0, 32)),
    idsOf(things.slice(32, 64)),
    idsOf(things.slice(64)),
  ]);
  assert.deepEqual(await storedOf(things), idsOf(things));
  assert.equal(await commits(things), 3);
});

test('at most 1 MiB shares a statement, and a bigger item goes alone and in order', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const sizes = [MIB / 2, MIB / 2, 1, 3 * MIB, 1, MIB - 1, 2, MIB, 0, MIB + 1];
  const things = sizes.flatMap((bytes) => someThings(1, { bytes }));
  assert.deepEqual(await Promise.all(things.map((thing) => store(database, thing))), told(things));
  const byBytes = (ids: number[]) =>
    ids.map((id) => things.find((thing) => thing.id === id)?.bytes);
  assert.deepEqual(sorted(statements).map(byBytes), [
    [MIB / 2, MIB / 2],
    [1],
    [3 * MIB],
    [1, MIB - 1],
    [2],
    [MIB, 0],
    [MIB + 1],
  ]);
  assert.deepEqual(await storedOf(things), idsOf(things));
});

test('two statements are under way, and calls that arrive meanwhile share the next one', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const [held] = someThings(1);
  const [second] = someThings(1);
  const gathered = someThings(30);
  assert.ok(held && second);
  const other = await blockThing(t, file.url, held);
  const another = await blockThing(t, file.url, second);
  const calls = [store(database, held)];
  await other.met();
  calls.push(store(database, second));
  await another.met(2);
  for (const thing of gathered) {
    calls.push(store(database, thing));
    await turn();
  }
  assert.deepEqual(statements, [[held.id], [second.id]]);
  await other.release();
  await another.release();
  assert.deepEqual(await Promise.all(calls), told([held, second, ...gathered]));
  assert.deepEqual(statements, [[held.id], [second.id], idsOf(gathered)]);
  assert.deepEqual(await storedOf([held, second, ...gathered]), idsOf([held, second, ...gathered]));
});

test('a statement waits while each turn brings more calls, for three turns at most', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const [early, ...crowd] = someThings(6);
  assert.ok(early);
  const calls = [store(database, early)];
  for (const thing of crowd) {
    calls.push(store(database, thing));
    await turn();
  }
  assert.deepEqual(await Promise.all(calls), told([early, ...crowd]));
  assert.deepEqual(sorted(statements)[0], idsOf([early, ...crowd.slice(0, 3)]));
  statements.length = 0;
  const [first, late] = someThings(2);
  assert.ok(first && late);
  const before = store(database, first);
  await turn();
  await turn();
  assert.deepEqual(await Promise.all([before, store(database, late)]), told([first, late]));
  assert.deepEqual(sorted(statements), [[first.id], [late.id]]);
});

test('items with the same key never share a statement and keep their order', async (t) => {
  const database = open(t);
  const { store, statements } = storing({ areKeysUnique: true });
  const keys = ['a', 'a', 'b', 'a', 'b', undefined, 'c', undefined];
  const things = keys.flatMap((key) => someThings(1, key === undefined ? {} : { key }));
  assert.deepEqual(await Promise.all(things.map((thing) => store(database, thing))), told(things));
  const [a1, a2, b1, a3, b2, none, c, other] = idsOf(things);
  assert.deepEqual(statements, [[a1, b1, none, c, other], [a2, b2], [a3]]);
});

test('items with a key may share a statement, and are never in two at once', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const [held] = someThings(1, { key: 'a' });
  const later = someThings(3, { key: 'a' });
  const [free] = someThings(1, { key: 'b' });
  assert.ok(held && free);
  const other = await blockThing(t, file.url, held);
  const calls = [store(database, held)];
  await other.met();
  calls.push(...later.map((thing) => store(database, thing)));
  assert.equal(await store(database, free), `${free.id} of size 1`);
  assert.deepEqual(statements, [[held.id], [free.id]]);
  await other.release();
  assert.deepEqual(await Promise.all(calls), told([held, ...later]));
  assert.deepEqual(statements, [[held.id], [free.id], idsOf(later)]);
  assert.deepEqual(await stored(file.sql, [held, ...later]), idsOf([held, ...later]));
});

test('after a failed statement, items with the same key keep their order', async (t) => {
  const database = open(t);
  const { store } = storing();
  const keyed = someThings(20, { key: 'a' });
  const [wrong] = someThings(1, { size: 0 });
  const [first] = someThings(1, { key: 'a', size: 0 });
  assert.ok(wrong && first);
  const outcomes = await outcomesOf([wrong, first, ...keyed].map((one) => store(database, one)));
  assert.ok(outcomes[0] instanceof Rejected && outcomes[1] instanceof Rejected);
  assert.deepEqual(outcomes.slice(2), told(keyed));
  assert.deepEqual(await stored(file.sql, keyed), idsOf(keyed));
});

test('a lock delays only the item that needs it, and those with its key', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const [locked] = someThings(1, { key: 'locked' });
  const [again] = someThings(1, { key: 'locked' });
  const others = someThings(5, { key: 'free' });
  assert.ok(locked && again);
  const holder = connect(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await holder`insert into things (id, size) values (${locked.id}, 1)`;
  const calls = [locked, ...others].map((thing) => store(database, thing));
  assert.deepEqual(await Promise.all(calls.slice(1)), told(others));
  const waiting = store(database, again);
  const [later] = someThings(1);
  assert.ok(later);
  await store(database, later);
  assert.deepEqual(await storedOf([locked, again]), []);
  await holder`rollback`;
  assert.deepEqual(await Promise.all([calls[0], waiting]), told([locked, again]));
  assert.ok(!statements.some((ids) => ids.includes(again.id) && ids.includes(locked.id)));
});

test('no call is answered by a statement sent before it, even for the same item', async (t) => {
  const database = open(t);
  const gates: Array<() => void> = [];
  const count = sharedStatement('read', async (sql, ids: readonly number[]) => {
    const rows = await sql<Array<{ id: number }>>`select id from things where id in ${sql(ids)}`;
    await new Promise<void>((resolve) => gates.push(resolve));
    return ids.map((wanted) => rows.filter(({ id }) => id === wanted).length);
  });
  const [thing] = someThings(1);
  assert.ok(thing);
  const before = count(database, thing.id);
  await untilSql(async () => gates.length === 1, 'the first has looked');
  await storing().store(database, thing);
  const after = count(database, thing.id);
  gates[0]?.();
  await untilSql(async () => gates.length === 2, 'the second has looked by itself');
  gates[1]?.();
  assert.deepEqual([await before, await after], [0, 1]);
});

test('an invalid item fails alone, and the others are stored once and in order', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const [taken] = someThings(1);
  assert.ok(taken);
  await store(database, { ...taken, name: 'taken' });
  const good = someThings(12, { size: 7 }).map((one) => ({ ...one, key: String(one.id) }));
  const range = { id: 1_000_001, size: 70_000 };
  const rule = { id: 1_000_002, size: 0 };
  const unique = { id: 1_000_003, name: 'taken' };
  const twin = { ...good[1], id: good[1]?.id ?? 0, size: 1 };
  const all: Thing[] = [
    ...good.slice(0, 3),
    range,
    ...good.slice(3, 6),
    rule,
    twin,
    ...good.slice(6, 9),
    unique,
    ...good.slice(9),
  ];
  statements.length = 0;
  const outcomes = await outcomesOf(all.map((thing) => store(database, thing)));
  assert.deepEqual(
    outcomes.filter((outcome) => typeof outcome === 'string'),
    told(good),
  );
  const failed = (thing: Thing) => outcomes[all.indexOf(thing)];
  for (const [thing, code] of [
    [range, '22003'],
    [rule, '23514'],
  ] as const) {
    const error = failed(thing);
    assert.ok(error instanceof Rejected && error.message.includes(code), String(error));
  }
  for (const [thing, constraint] of [
    [unique, 'things_name'],
    [twin, 'things_id'],
  ] as const) {
    const error = failed(thing);
    // The twin came after the one with the same key.
    assert.ok(error instanceof Duplicate && error.constraint === constraint, String(error));
  }
  assert.deepEqual(await storedOf(good), idsOf(good));
  assert.deepEqual(await storedOf([range, rule, unique]), []);
  const alone = [twin, ...all.filter((thing) => thing !== twin)].map(({ id }) => [id]);
  assert.deepEqual(statements[0], idsOf(all));
  assert.deepEqual(sorted(statements.slice(1)), sorted(alone));
});

test('if a unique index is all that rejects a statement, only that item fails', async (t) => {
  const database = open(t);
  const { store } = storing();
  const [taken] = someThings(1);
  await store(database, { id: taken?.id ?? 0, name: 'again' });
  const around = someThings(2);
  const [first, again, last] = await outcomesOf(
    [around[0], { id: 1_000_004, name: 'again' }, around[1]].map((thing) =>
      store(database, thing ?? assert.fail()),
    ),
  );
  assert.ok(again instanceof Duplicate && again.constraint === 'things_name', String(again));
  assert.deepEqual([first, last], told(around));
  // And whoever comes next shares a statement again.
  const later = someThings(5);
  assert.deepEqual(await Promise.all(later.map((thing) => store(database, thing))), told(later));
  assert.equal(await commits(later), 1);
});

const mistakes: ReadonlyArray<
  readonly [what: string, run: (items: readonly number[]) => Promise<number[]>]
> = [
  ['rejects with an error of ours', () => Promise.reject(new RangeError('of ours'))],
  [
    'throws before it begins',
    () => {
      throw new RangeError('of ours');
    },
  ],
];

for (const [what, run] of mistakes) {
  test(`a statement that ${what} fails all its calls and is not repeated`, async (t) => {
    let runs = 0;
    const share = sharedStatement('write', (_sql, items: readonly number[]) => {
      runs += 1;
      return runs === 1 ? run(items) : Promise.resolve([...items]);
    });
    const context = open(t);
    for (const outcome of await Promise.allSettled([1, 2, 3].map((item) => share(context, item)))) {
      assert.ok(
        outcome.status === 'rejected' &&
          outcome.reason instanceof RangeError &&
          outcome.reason.message === 'of ours',
      );
    }
    assert.equal(runs, 1);
    assert.deepEqual(await Promise.all([4, 5].map((item) => share(context, item))), [4, 5]);
  });
}

for (const [what, results] of [
  ['too few', 2],
  ['too many', 4],
  ['no', 0],
] as const) {
  test(`${what} results for three calls fail all three`, async (t) => {
    let runs = 0;
    const share = sharedStatement('write', async (_sql, items: readonly number[]) => {
      runs += 1;
      return runs === 1 ? Array.from({ length: results }, () => 0) : items;
    });
    const context = open(t);
    for (const outcome of await Promise.allSettled([1, 2, 3].map((item) => share(context, item)))) {
      assert.ok(outcome.status === 'rejected' && outcome.reason instanceof Error);
      assert.match(outcome.reason.message, /^internal error/);
    }
    assert.deepEqual(await Promise.all([4, 5].map((item) => share(context, item))), [4, 5]);
  });
}

test('of 10,000 simultaneous calls 1,024 succeed, and the others fail at once', async (t) => {
  const database = open(t);
  const { store, statements } = storing();
  const [held] = someThings(1);
  assert.ok(held);
  const other = await blockThing(t, file.url, held);
  const first = store(database, held);
  await other.met();
  const crowd = someThings(10_000);
  const refused: Thing[] = [];
  const calls = crowd.map((thing) =>
    outcomeOf(store(database, thing)).then((outcome) => {
      if (outcome instanceof Overloaded) refused.push(thing);
      return outcome;
    }),
  );
  await turn();
  // Nothing has been answered meanwhile: the statement under way still stands before the other
  // transaction.
  assert.deepEqual(idsOf(refused), idsOf(crowd.slice(1_024)));
  await other.release();
  assert.deepEqual((await Promise.all(calls)).slice(0, 1_024), told(crowd.slice(0, 1_024)));
  assert.deepEqual([await first], told([held]));
  assert.deepEqual(await storedOf(crowd), idsOf(crowd.slice(0, 1_024)));
  assert.deepEqual(
    statements.slice(1).map((ids) => ids.length),
    Array<number>(32).fill(32),
  );
  const again = crowd.slice(-1_024);
  assert.deepEqual(await Promise.all(again.map((thing) => store(database, thing))), told(again));
});

test('calls of different databases never share a statement', async (t) => {
  const { store, statements } = storing();
  const one = open(t);
  const two = open(t);
  const [held, ...others] = someThings(5);
  assert.ok(held);
  const other = await blockThing(t, file.url, held);
  const first = store(one, held);
  await other.met();
  assert.deepEqual(await Promise.all(others.map((thing) => store(two, thing))), told(others));
  assert.deepEqual(statements, [[held.id], idsOf(others)]);
  await other.release();
  assert.deepEqual([await first], told([held]));
});
