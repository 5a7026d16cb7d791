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

/**
 * With browser scripts, tests and scripts. The tests run beside compiled files, which are left out.
 */
const allCode = ['src', 'test', 'scripts'].flatMap((folder) => [
  ...readTree(folder, /\.(ts|mjs)$|\/pages\/[a-z-]+\.js$/),
]);
const found = (find: (file: string, text: string) => readonly string[]) =>
  allCode.flatMap(([file, text]) => find(file, text));

const PACKED = [
  'const [a, b] = [1, 2];',
  'let a = 1;\nlet b = 2;\n[a, b] = [b, a];',
  'const { a } = { a: 1 };',
  'const a = b ? 1 : c ? 2 : 3;',
  'const a = b ? f(c ? 1 : 2) : 3;',
  'const a = (b ? c : d) ? 1 : 2;',
  'const a = b ? `${c ? 1 : 2}` : 3;',
  'if ((a = b)) f();',
  'const f = () => (a = 1);',
  'a = b = 1;',
  'f();\na && g();',
  'f();\na || g();',
  'f();\na ? g() : h();',
  'function f() {\n  return void g();\n}',
  'const f = () => void g();',
];
const PLAIN = [
  'const [a, b] = f();',
  'const [a = 1, b = 2] = f();',
  'const a = b ? list.map((one) => one) : [];',
  'const f = (a = 1, b: C = 2): D => a + b;',
  'for (let a = 0; a < b && c; a += 1) f();',
  'function f(a?: B, c = 1): void {\n  if (a) void g();\n  else void h();\n}',
  'const a = b ? 1 : 2;\nconst c = d ? 3 : 4;',
  'const f = () => {\n  a = 1;\n};',
  'type A<B = C> = () => void;',
];

const source = readTree();

test('no line has too many tokens', () => assert.ok(densityOf(source) <= MAX_DENSITY));

test('every file belongs to one part', () => {
  for (const file of source.keys()) {
    const parts = [...sizesOf(new Map([[file, 'a;\n']])).values()].filter((tokens) => tokens > 0);
    assert.equal(parts.length, 1, file);
  }
});

test('no form packs decisions, and each form that would is noticed', () => {
  assert.deepEqual(found(findPackedForms), []);
  for (const text of PACKED)
    assert.equal(findPackedForms('planted.ts', `start();\n${text}\n`).length, 1, text);
  for (const text of PLAIN) assert.deepEqual(findPackedForms('planted.ts', `${text}\n`), [], text);
});

const longFunction = (lines: number) => `function f() {\n${'  f();\n'.repeat(lines - 2)}}\n`;
const OVER = longFunction(LIMITS.functionLines + 1);
const LENGTHS: ReadonlyArray<readonly [text: string, isLong: boolean]> = [
  [longFunction(LIMITS.functionLines), false],
  [OVER, true],
  ['const f = () => {\n  g(sql`\n' + '    select 1,\n'.repeat(60) + '    2`);\n};\n', false],
  ['const f = () => {\n' + '  const g = () => {\n    h();\n  };\n'.repeat(20) + '};\n', true],
  [`const a = {\n${OVER.replace('function f', 'method')}};\n`, true],
];

test('no function is too long: SQL does not count, closures do', () => {
  assert.deepEqual(found(findLongFunctions), []);
  for (const [text, isLong] of LENGTHS)
    assert.equal(findLongFunctions('planted.ts', text).length, Number(isLong), text);
});

test('no line has more than 100 columns, except for one string or address', () => {
  assert.deepEqual(found(findWideLines), []);
  assert.equal(findWideLines('planted.ts', `f(${'a, '.repeat(40)}b);`).length, 1);
  assert.equal(findWideLines('planted.ts', `f('${'a'.repeat(120)}');`).length, 0);
  const lines = [...source.values()].flatMap((text) => text.split('\n'));
  const wide = lines.filter((line) => [...line].length > LIMITS.columns);
  assert.ok(wide.length * 100 <= lines.length, `${wide.length} of ${lines.length} lines`);
});
