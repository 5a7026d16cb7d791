/** Which calls share the next statement. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { takeNext } from '../../../src/platform/db/share-statement.ts';

type Item = Readonly<{ name: string; key?: string; bytes?: number }>;

/** @returns the names of those that are taken, that stay, and that are rejected */
function choose(items: readonly Item[], busy: string, areKeysUnique: boolean, ageMs: number) {
  const expired: Item[] = [];
  const calls = items.map((item) => ({
    item,
    key: item.key ?? null,
    bytes: item.bytes ?? 0,
    since: performance.now() - ageMs,
    resolve() {},
    reject: () => expired.push(item),
  }));
  const next = takeNext(calls, new Set(busy), areKeysUnique).map(({ item }) => item);
  const namesOf = (some: readonly Item[]) => some.map(({ name }) => name).join();
  return [namesOf(next), namesOf(calls.map(({ item }) => item)), namesOf(expired)];
}

const MIB = 1024 * 1024;
const of = (name: string, bytes = 0) => ({ name, bytes });
const many = Array.from({ length: 34 }, (_, index) => of(String(index)));
const KEYED = [
  { name: 'a', key: 'x' },
  { name: 'b', key: 'x' },
  { name: 'c', key: 'y' },
  { name: 'd', key: 'x' },
  { name: 'e' },
];
const LARGE = { name: 'b', key: 'x', bytes: 2 * MIB };
const FIRST_32 = Array.from({ length: 32 }, (_, index) => index).join();

type Options = Readonly<{ busy?: string; areKeysUnique?: boolean; ageMs?: number }>;
const CASES: ReadonlyArray<
  readonly [what: string, items: readonly Item[], next: string, later: string, options?: Options]
> = [
  ['none', [], '', ''],
  ['the 33rd call stays', many, FIRST_32, '32,33'],
  [
    'a call that would exceed 1 MiB stays, and all after it',
    [of('a', MIB / 2), of('b', MIB / 2 + 1), of('c', 1)],
    'a',
    'b,c',
  ],
  ['a call of more than 1 MiB goes alone', [of('a', 2 * MIB), of('b')], 'a', 'b'],
  ['calls with one key are taken together', KEYED, 'a,b,c,d,e', ''],
  ['unless keys are unique', KEYED, 'a,c,e', 'b,d', { areKeysUnique: true }],
  ['calls stay while a statement has one with their key', KEYED, 'c,e', 'a,b,d', { busy: 'x' }],
  ['with two such keys', KEYED, 'e', 'a,b,c,d', { busy: 'xy' }],
  [
    'a call that must wait for its key takes no room',
    [LARGE, of('c'), of('d')],
    'c,d',
    'b',
    { busy: 'x' },
  ],
  [
    'a call does not overtake one with its key that has no room',
    [of('a'), LARGE, { name: 'c', key: 'x' }],
    'a',
    'b,c',
  ],
  ['a call that has waited for 9 s is taken', [of('a')], 'a', '', { ageMs: 9_000 }],
];

for (const [what, items, next, later, options = {}] of CASES) {
  test(what, () => {
    const { busy = '', areKeysUnique = false, ageMs = 0 } = options;
    assert.deepEqual(choose(items, busy, areKeysUnique, ageMs), [next, later, '']);
  });
}

test('a call that has waited for 10 s is given up', () => {
  assert.deepEqual(choose([of('a')], '', false, 10_000), ['', '', 'a']);
});
