/** How much there is to read. `make check` compares the parts with their ceilings. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { densityOf, MAX_DENSITY, readTree, sizesOf } from '../../scripts/reading.ts';

const source = readTree();

test('no line has too many tokens', () => assert.ok(densityOf(source) <= MAX_DENSITY));

test('every file belongs to one part', () => {
  for (const file of source.keys()) {
    const parts = [...sizesOf(new Map([[file, 'a;\n']])).values()].filter((tokens) => tokens > 0);
    assert.equal(parts.length, 1, file);
  }
});
