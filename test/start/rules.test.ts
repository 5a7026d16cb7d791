import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findLateAwait, findNarrowing, findSilentSkip } from '../../scripts/test-rules.ts';
import { root } from '../support/process.ts';

const narrow = 'only';

test('a skipped or unfinished test must give a reason', () => {
  const silent = [{ skip: true }, { todo: true }, { skip: '' }, { skip: ' ' }];
  for (const event of silent)
    assert.match(findSilentSkip({ name: 'a test', ...event }) ?? '', /without a reason: "a test"/);
  const fine = [
    {},
    { skip: false },
    { todo: false },
    { skip: 'needs a tape drive' },
    { todo: 'when the moon is full' },
  ];
  for (const event of fine) assert.equal(findSilentSkip({ name: 'a test', ...event }), undefined);
});

test('every spelling of only is found', () => {
  for (const line of [
    `test.${narrow}('x')`,
    `describe.${narrow} ('x')`,
    `{ ${narrow}: true }`,
    `context.run${'Only'}(true)`,
  ]) {
    assert.deepEqual(findNarrowing('a.test.ts', `// first line\n${line}`), [
      'narrowed with only: a.test.ts:2',
    ]);
  }
  assert.deepEqual(
    findNarrowing('a.test.ts', `{ ${narrow}: false } // the only true one; readonly: true`),
    [],
  );
});

test('a file that waits between its tests is found', () => {
  const first = "test('x', f);\n";
  const waiting = [
    'await open();',
    'const one = await open({',
    'one = wrap(await open());',
    'const {\n  one,\n} = await open();',
    'for await (const one of all()) {}',
    'for (const one of all) {\n  await one;\n}',
    'if (one) {\n  const two = await one;\n}',
  ];
  for (const lines of waiting) {
    const where = 1 + lines.split('\n').findIndex((line) => line.includes('await'));
    for (const before of [first, `for (;;) {\n  ${first}}\n`]) {
      assert.deepEqual(
        findLateAwait('a.test.ts', before + lines),
        [`waits between tests: a.test.ts:${before.split('\n').length - 1 + where}`],
        lines,
      );
    }
    assert.deepEqual(findLateAwait('a.test.ts', lines + first), [], lines);
  }
  for (const fine of [
    "test('y', async () => {\n  await f();\n});",
    'const open = async () => await f();',
    'async function open() {\n  await f();\n}',
    '// await it',
    "for (;;) {\n  test('y', async () => {\n    await f();\n  });\n}",
  ]) {
    assert.deepEqual(findLateAwait('a.test.ts', first + fine), [], fine);
  }
});

/** Runs files of this content, with all of `make test` or with its second step alone, which is faster. */
function runTests(
  script: 'test.js' | 'run-tests.js',
  ...sources: string[]
): { status: number | null; output: string } {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-rules-'));
  const files = sources.map((source, index) => {
    const file = join(directory, `planted-${index}.test.mjs`);
    writeFileSync(file, `import { test } from 'node:test';\n${source}`);
    return file;
  });
  // Inside a test of node:test, its runner would not run the files but report to the outer one.
  const env = { ...process.env, NODE_TEST_CONTEXT: undefined };
  const run = spawnSync(process.execPath, [join(root, 'scripts', script), ...files], {
    env,
    encoding: 'utf8',
  });
  rmSync(directory, { recursive: true });
  return { status: run.status, output: run.stdout + run.stderr };
}

test('make test passes if the tests pass, and prints the counts of node:test', () => {
  const run = runTests(
    'test.js',
    "test('planted', () => {}); test('explained', { skip: 'for a reason' }, () => {});",
  );
  assert.equal(run.status, 0, run.output);
  assert.match(run.output, /pass 1\n/);
});

test('make test fails if a test fails', () => {
  const run = runTests('test.js', "test('planted', () => { throw new Error('planted'); });");
  assert.equal(run.status, 1, run.output);
  assert.match(run.output, /fail 1\n/);
});

test('a run fails if a test is skipped without a reason, or a file has no test', () => {
  const run = runTests(
    'run-tests.js',
    "test('bare', { skip: true }, () => {});",
    "test.describe.skip('whole suite', () => {});",
    "test.todo('some day');",
    '',
    "test('early', () => process.exit(0));",
  );
  assert.equal(run.status, 1, run.output);
  assert.match(run.output, /fail 0\n/);
  assert.match(run.output, /skip without a reason: "bare"/);
  assert.match(run.output, /skip without a reason: "whole suite"/);
  assert.match(run.output, /todo without a reason: "some day"/);
  assert.match(run.output, /no test in .*planted-3\.test\.mjs/);
  assert.match(run.output, /no test in .*planted-4\.test\.mjs/);
});

test('a run without a test fails', () => {
  const run = runTests('run-tests.js');
  assert.equal(run.status, 1, run.output);
  assert.match(run.output, /no test ran/);
});

test('make test fails if a file awaits between its tests', () => {
  const run = runTests('test.js', "test('early', () => {});\nawait 1;\ntest('late', () => {});");
  assert.equal(run.status, 1, run.output);
  assert.match(run.output, /waits between tests: .*planted-0\.test\.mjs:3/);
});

test('make test fails if a file narrows the run with only', () => {
  const run = runTests('test.js', `test.${narrow}('planted', () => {});`);
  assert.equal(run.status, 1, run.output);
  assert.match(run.output, /narrowed with only: .*planted-0\.test\.mjs:2/);
});
