/**
 * How the code is laid out: what packs decisions, long functions, wide lines, and how many tokens
 * there are. `make check` compares the parts with their ceilings.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findLongFunctions,
  findPackedForms,
  findWideLines,
  LIMITS,
} from '../../scripts/packed-forms.ts';
import { densityOf, MAX_DENSITY, readTree, sizesOf } from '../../scripts/reading.ts';

/** With browser scripts, tests and scripts. The tests run beside compiled files, which are left out. */
const allCode = ['src', 'test', 'scripts'].flatMap((folder) => [
  ...readTree(folder, /\.(ts|mjs)$|\/pages\/[a-z-]+\.js$/),
]);

for (const [rule, find] of [
  ['no form packs decisions', findPackedForms],
  ['no function is too long: SQL does not count, closures do', findLongFunctions],
  ['no line has more than 100 columns, except for one string or address', findWideLines],
] as const)
  test(rule, () =>
    assert.deepEqual(
      allCode.flatMap(([file, text]) => find(file, text)),
      [],
    ),
  );

const source = readTree();

test('no line has too many tokens', () => assert.ok(densityOf(source) <= MAX_DENSITY));

test('every file belongs to one part', () => {
  for (const file of source.keys()) {
    const parts = [...sizesOf(new Map([[file, 'a;\n']])).values()].filter((tokens) => tokens > 0);
    assert.equal(parts.length, 1, file);
  }
});

test('few lines of src/ have more than 100 columns', () => {
  const lines = [...source.values()].flatMap((text) => text.split('\n'));
  const wide = lines.filter((line) => [...line].length > LIMITS.columns);
  assert.ok(wide.length * 100 <= lines.length, `${wide.length} of ${lines.length} lines`);
});
