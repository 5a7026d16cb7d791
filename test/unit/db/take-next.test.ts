/** Which calls share the next statement. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { takeNext } from '../../../src/platform/db/share-statement.ts';

interface Item {
  readonly name: string;
  readonly key?: string;
  readonly bytes?: number;
}

const NOW = 1_000_000;
const options = {
  keyOf: ({ key }: Item) => key ?? null,
  bytesOf: ({ bytes }: Item) => bytes ?? 0,
};
const MIB = 1024 * 1024;

/** @returns the names of each list */
function choose(items: readonly Item[], ageMs = 0): Record<string, string> {
  const unused = { resolve() {}, reject() {} };
  const calls = items.map((item) => ({ item, since: NOW - ageMs, ...unused }));
  const chosen = takeNext(calls, options, NOW);
  const lists = Object.entries(chosen).map(([list, some]) => [
    list,
    some.map(({ item }) => item.name).join(),
  ]);
  return Object.fromEntries(lists);
}

test('all calls are taken in their order while there is room', () => {
  const items = ['a', 'b', 'c'].map((name) => ({ name }));
  assert.deepEqual(choose(items), { next: 'a,b,c', later: '', expired: '' });
  assert.deepEqual(choose([]), { next: '', later: '', expired: '' });
});

test('the 33rd call stays', () => {
  const items = Array.from({ length: 34 }, (_, index) => ({ name: String(index) }));
  const { next = '', later } = choose(items);
  assert.equal(next.split(',').length, 32);
  assert.equal(later, '32,33');
});

test('a call that would exceed 1 MiB stays, and so do all after it', () => {
  const half = { name: 'a', bytes: MIB / 2 };
  const items = [half, { name: 'b', bytes: MIB / 2 + 1 }, { name: 'c', bytes: 1 }];
  assert.deepEqual(choose(items), { next: 'a', later: 'b,c', expired: '' });
});

test('a call of more than 1 MiB goes alone', () => {
  const items = [{ name: 'a', bytes: 2 * MIB }, { name: 'b' }];
  assert.deepEqual(choose(items), { next: 'a', later: 'b', expired: '' });
});

test('of calls with one key the first is taken, and the others keep their order', () => {
  const items = [
    { name: 'a', key: 'x' },
    { name: 'b', key: 'x' },
    { name: 'c', key: 'y' },
    { name: 'd', key: 'x' },
    { name: 'e' },
  ];
  assert.deepEqual(choose(items), { next: 'a,c,e', later: 'b,d', expired: '' });
});

test('a call that has waited for 10 s is given up', () => {
  assert.deepEqual(choose([{ name: 'a' }], 10_000), { next: '', later: '', expired: 'a' });
  assert.deepEqual(choose([{ name: 'a' }], 9_999), { next: 'a', later: '', expired: '' });
});
