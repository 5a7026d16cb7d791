/** How much there is to read: tokens, and the ceilings of the parts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  aboveCeilings,
  CEILINGS,
  densityOf,
  MAX_DENSITY,
  type Part,
  PART_NAMES,
  readTree,
  sizesOf,
} from '../../scripts/reading.ts';
import { countTokens } from '../../scripts/tokens.ts';

const source = readTree();

/** A file of each part. */
const FILES: Readonly<Record<Part, string>> = {
  platform: 'src/cli.ts',
  secrets: 'src/secrets/start.ts',
  identity: 'src/identity/start.ts',
  webhook: 'src/webhook/start.ts',
  signin: 'src/identity/signin/routes.ts',
  oidc: 'src/identity/oidc/routes.ts',
  commands: 'src/commands/command.ts',
};

for (const part of PART_NAMES) {
  test(`one token above the ceiling of ${part} is noticed`, () => {
    const file = FILES[part];
    const others = [...source].filter(
      ([name]) => sizesOf(new Map([[name, 'a;\n']])).get(part) === 0,
    );
    const above = (tokens: number) => {
      const tree = new Map(others).set(file, ';\n'.repeat(tokens));
      return aboveCeilings(tree).filter((sentence) => sentence.startsWith(`${part} `));
    };
    assert.deepEqual(above(CEILINGS[part]), []);
    assert.equal(above(CEILINGS[part] + 1).length, 1);
  });
}

test('every file belongs to one part', () => {
  for (const file of source.keys()) {
    const parts = [...sizesOf(new Map([[file, 'a;\n']])).values()].filter((tokens) => tokens > 0);
    assert.equal(parts.length, 1, file);
  }
});

test('a line of code with too many tokens is noticed', () => {
  const planted = new Map(source).set('src/planted.ts', `${'a '.repeat(20_000)}\n`);
  assert.ok(densityOf(source) <= MAX_DENSITY);
  assert.ok(densityOf(planted) > MAX_DENSITY);
});

const SQL = "sql`select a, 'b c' -- why\n from d where e = ${f(1)}`";
const COUNTED: ReadonlyArray<readonly [text: string, tokens: number]> = [
  ['const a = b;', 5],
  ['// a comment\n/** and another */ a', 1],
  ["'a string of words'", 1],
  ['a => b ?? c', 5],
  ['f(\n  a,\n  b,\n)', 6],
  ['a?.b !== 1.5', 5],
  ['/a[/]b/g.test(c)', 6],
  ['a / b / c', 5],
  ['`a ${b} c`', 2],
  ['`a ${`b ${c}`} d`', 3],
  [SQL, 14],
  ["'create table a (b text)'", 7],
];

for (const [text, tokens] of COUNTED) {
  test(`tokens of ${text.replaceAll('\n', ' ')}`, () => assert.equal(countTokens(text), tokens));
}

test('tokens: how a file is laid out or loaded makes no difference', () => {
  const tree = new Map([
    ['src/webhook/migrations/001-a.sql', "-- why\ncreate table a (\n  b text -- 'c\n);\n"],
    ['src/cli.ts', "const b = import('./b.ts');\n"],
    ['src/b.ts', 'export const b = [\n  1,\n  2,\n];\n'],
    ['src/secrets/start.ts', "import type { A } from './a.ts';\n"],
    ['src/secrets/a.ts', 'export type A = 1;\n'],
    ['src/secrets/late.ts', 'a;\n'],
  ]);
  assert.equal(sizesOf(tree).get('secrets'), 8 + 6 + 2);
  assert.equal(sizesOf(tree).get('platform'), 8 + 10);
  assert.equal(sizesOf(tree).get('webhook'), 8);
});
