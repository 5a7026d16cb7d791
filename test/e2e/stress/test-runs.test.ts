/** What `make test` makes of planted files: the program itself, not its rules. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../../support/process.ts';

const narrow = 'only';

/**
 * Runs files of this content, with all of `make test` or with its second step alone, which is
 * faster.
 */
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
