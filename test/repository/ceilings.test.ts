/** How much there is to read: tokens, and the ceilings of the parts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  aboveCeilings,
  CEILINGS,
  densityOf,
  MAX_DENSITY,
  readTree,
  sizesOf,
} from '../../scripts/reading.ts';
import { countTokens } from '../../scripts/tokens.ts';

const source = readTree();

test('one token above a ceiling, or a line with too many tokens, is noticed', () => {
  const above = (tokens: number) =>
    aboveCeilings(new Map([['src/secrets/start.ts', ';\n'.repeat(tokens)]]));
  assert.deepEqual(above(CEILINGS.secrets), []);
  assert.equal(above(CEILINGS.secrets + 1).length, 1);
  assert.ok(densityOf(source) <= MAX_DENSITY);
  const planted = new Map(source).set('src/planted.ts', `${'a '.repeat(20_000)}\n`);
  assert.ok(densityOf(planted) > MAX_DENSITY);
});

test('every file belongs to one part', () => {
  for (const file of source.keys()) {
    const parts = [...sizesOf(new Map([[file, 'a;\n']])).values()].filter((tokens) => tokens > 0);
    assert.equal(parts.length, 1, file);
  }
});

const COUNTED: ReadonlyArray<readonly [text: string, tokens: number]> = [
  ['const a = b;', 5],
  ['// a comment\n/** and another */ a', 1],
  ["'a string of words'", 1],
  ['f(\n  a,\n  b,\n)', 6],
  ['a?.b !== 1.5', 5],
  ['/a[/]b/g.test(c)', 6],
  ['a / b / c', 5],
  ['`a ${`b ${c}`} d`', 3],
  ["sql`select a, 'b c' -- why\n from d where e = ${f(1)}`", 14],
  ["'create table a (b text)'", 7],
];

test('how a file is laid out or commented makes no difference', () => {
  for (const [text, tokens] of COUNTED) assert.equal(countTokens(text), tokens, text);
  const sql = "-- why\ncreate table a (\n  b text -- 'c\n);\n";
  assert.equal(sizesOf(new Map([['src/webhook/migrations/001-a.sql', sql]])).get('webhook'), 8);
});
