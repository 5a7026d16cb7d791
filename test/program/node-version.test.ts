/** A Node that is too old: one sentence, and nothing that it cannot parse. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { buildProgram, runProgram } from '../support/process.ts';

const program = buildProgram();

/** Runs the program as that version. */
const runAs = (t: Parameters<typeof runProgram>[0], version: string) => {
  const versions = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`;
  return runProgram(t, program, ['version'], {
    NODE_OPTIONS: `--import "data:text/javascript,${encodeURIComponent(versions)}"`,
  });
};

test('a Node older than 20.11 is rejected in one sentence', async (t) => {
  for (const version of ['12.22.12', '20.10.0']) {
    const { code, stdout, stderr } = await runAs(t, version);
    const said = `gatehouse: Node ${version} is too old. Install Node 20.11 or newer.\n`;
    assert.deepEqual([code, stdout, stderr], [1, '', said]);
  }
  for (const version of ['20.11.0', '22.1.0'])
    assert.equal((await runAs(t, version)).code, 0, version);
});

test('the file that checks uses only syntax of Node 12, and imports nothing before the check', () => {
  const text = readFileSync(join(program, 'dist/cli.js'), 'utf8').replace(/^\s*\/\/.*$/gm, '');
  assert.match(text, /import\('\.\/main\.js'\)/);
  assert.doesNotMatch(text, /^import\b|\?\.|\?\?|\bawait\b|\|\|=|&&=|#[a-z]|static \{/m);
});

test('make reports it, too', () => {
  const makefile = readFileSync(join(program, 'Makefile'), 'utf8');
  assert.match(makefile, /^node_modules\/\.installed: .* \| supported-node$/m);
  assert.match(makefile, /^supported-node:\n\t@node -e 'var v = .*Install Node 20\.11 or newer\./m);
});
