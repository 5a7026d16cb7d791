/** Which calls share the next statement. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { takeNext } from '../../../src/platform/db/share-statement.ts';

interface Item {
  readonly name: string;
  readonly key?: string;
  readonly bytes?: number;
}

const MIB = 1024 * 1024;

/** @returns the names of those that are taken, that stay, and that are rejected */
function choose(
  items: readonly Item[],
  { ageMs = 0, busy = new Array<string>(), areKeysUnique = false } = {},
) {
  const expired: string[] = [];
  const calls = items.map((item) => ({
    item,
    key: item.key ?? null,
    bytes: item.bytes ?? 0,
    since: performance.now() - ageMs,
    resolve() {},
    reject: () => expired.push(item.name),
  }));
  const next = takeNext(calls, new Set(busy), areKeysUnique);
  const namesOf = (some: ReadonlyArray<{ item: Item }>) => some.map(({ item }) => item.name).join();
  return { next: namesOf(next), later: namesOf(calls), expired: expired.join() };
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

const KEYED = [
  { name: 'a', key: 'x' },
  { name: 'b', key: 'x' },
  { name: 'c', key: 'y' },
  { name: 'd', key: 'x' },
  { name: 'e' },
];

test('calls with one key are taken together, unless keys are unique', () => {
  assert.deepEqual(choose(KEYED), { next: 'a,b,c,d,e', later: '', expired: '' });
  const unique = { next: 'a,c,e', later: 'b,d', expired: '' };
  assert.deepEqual(choose(KEYED, { areKeysUnique: true }), unique);
});

test('calls stay while another statement has one with their key', () => {
  assert.deepEqual(choose(KEYED, { busy: ['x'] }), { next: 'c,e', later: 'a,b,d', expired: '' });
  assert.deepEqual(choose(KEYED, { busy: ['x', 'y'] }).next, 'e');
});

test('a call that must wait for its key takes no room', () => {
  const items = [{ name: 'a', key: 'x', bytes: 2 * MIB }, { name: 'b' }, { name: 'c' }];
  assert.deepEqual(choose(items, { busy: ['x'] }), { next: 'b,c', later: 'a', expired: '' });
});

test('a call does not overtake one with its key that has no room', () => {
  const large = { name: 'b', key: 'x', bytes: 2 * MIB };
  const items = [{ name: 'a' }, large, { name: 'c', key: 'x' }];
  assert.deepEqual(choose(items), { next: 'a', later: 'b,c', expired: '' });
});

test('a call that has waited for 10 s is given up', () => {
  const items = [{ name: 'a' }];
  assert.deepEqual(choose(items, { ageMs: 10_000 }), { next: '', later: '', expired: 'a' });
  assert.deepEqual(choose(items, { ageMs: 9_000 }), { next: 'a', later: '', expired: '' });
});
