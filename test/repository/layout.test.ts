/** How the code is laid out: what packs decisions, long functions, wide lines. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findLongFunctions,
  findPackedForms,
  findWideLines,
  LIMITS,
} from '../../scripts/packed-forms.ts';
import { readTree, type Tree } from '../../scripts/reading.ts';

/** With browser scripts, tests and scripts. The tests run beside compiled files, which are left out. */
const allCode: Tree = new Map(
  ['src', 'test', 'scripts'].flatMap((folder) => [
    ...readTree(folder, /\.(ts|mjs)$|\/pages\/[a-z-]+\.js$/),
  ]),
);

const packedForms = (tree: Tree): string[] =>
  [...tree].flatMap(([file, text]) => findPackedForms(file, text));
const longFunctions = (tree: Tree): string[] =>
  [...tree].flatMap(([file, text]) => findLongFunctions(file, text));
const wideLines = (tree: Tree): string[] =>
  [...tree].flatMap(([file, text]) => findWideLines(file, text));

const FORMS: ReadonlyArray<readonly [form: string, text: string]> = [
  ['an array literal', 'const [a, b] = [1, 2];'],
  ['an array literal in an assignment', 'let a = 1;\nlet b = 2;\n[a, b] = [b, a];'],
  ['an object literal', 'const { a } = { a: 1 };'],
  ['a conditional in a branch', 'const a = b ? 1 : c ? 2 : 3;'],
  ['a conditional in an argument', 'const a = b ? f(c ? 1 : 2) : 3;'],
  ['a conditional in a condition', 'const a = (b ? c : d) ? 1 : 2;'],
  ['a conditional in a template', 'const a = b ? `${c ? 1 : 2}` : 3;'],
  ['an assignment in a condition', 'if ((a = b)) f();'],
  ['an assignment as a result', 'const f = () => (a = 1);'],
  ['a chain of assignments', 'a = b = 1;'],
  ['a decision by &&', 'f();\na && g();'],
  ['a decision by ||', 'f();\na || g();'],
  ['a decision by a conditional', 'f();\na ? g() : h();'],
  ['void in a return', 'function f() {\n  return void g();\n}'],
  ['void as a result', 'const f = () => void g();'],
];

test('no form that packs decisions', () => assert.deepEqual(packedForms(allCode), []));

for (const [form, text] of FORMS) {
  test(`packed forms: ${form} is noticed`, () => {
    assert.equal(findPackedForms('planted.ts', `start();\n${text}\n`).length, 1);
  });
}

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

for (const text of PLAIN) {
  test(`packed forms: this is none: ${text.split('\n')[0]}`, () => {
    assert.deepEqual(findPackedForms('planted.ts', `${text}\n`), []);
  });
}

const longFunction = (lines: number) => `function f() {\n${'  f();\n'.repeat(lines - 2)}}\n`;

test('no function of more than 60 lines', () => assert.deepEqual(longFunctions(allCode), []));

test('long functions: one line more is noticed, SQL does not count, closures do', () => {
  const lengths = (text: string) => findLongFunctions('planted.ts', text).length;
  assert.equal(lengths(longFunction(LIMITS.functionLines)), 0);
  assert.equal(lengths(longFunction(LIMITS.functionLines + 1)), 1);
  const sql =
    `const f = () => {\n  g(sql` + "`\n${'    select 1,\n'.repeat(60)}    2`" + `);\n};\n`;
  assert.equal(lengths(sql), 0);
  const closure = `const f = () => {\n${'  const g = () => {\n    h();\n  };\n'.repeat(20)}};\n`;
  assert.equal(lengths(closure), 1);
  const method = longFunction(LIMITS.functionLines + 1).replace('function f', 'method');
  assert.equal(lengths(`const a = {\n${method}};\n`), 1);
});

test('no line of more than 100 columns, except for one string or address', () => {
  assert.deepEqual(wideLines(allCode), []);
  assert.equal(findWideLines('planted.ts', `f(${'a, '.repeat(40)}b);`).length, 1);
  assert.equal(findWideLines('planted.ts', `f('${'a'.repeat(120)}');`).length, 0);
});

test('at most 1 % of the lines have more than 100 columns', () => {
  const lines = [...readTree().values()].flatMap((text) => text.split('\n'));
  const wide = lines.filter((line) => [...line].length > LIMITS.columns);
  assert.ok(wide.length * 100 <= lines.length, `${wide.length} of ${lines.length} lines`);
});
