/** Tools from the npm registry, which are not dependencies of Gatehouse. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';

/**
 * Runs a tool to its end. It gets the environment of this process, which may name a registry and a
 * proxy for npm.
 */
export function runHere(directory: string, name: string, words: readonly string[]) {
  const { status, stdout, stderr, error } = spawnSync(name, words, {
    cwd: directory,
    encoding: 'utf8',
    // Nothing is sent to the vendor of a linter.
    env: { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    maxBuffer: 64 * 1024 * 1024,
  });
  if (error) throw error;
  return { code: status, output: stdout + stderr };
}

/** @returns a new directory with these packages, which is removed after the tests of the file */
export function installPackages(...packages: readonly string[]): string {
  const directory = makeTemporary(tmpdir(), 'gatehouse-packages');
  after(() => removeTemporary(directory));
  // Without a manifest npm would install into a project in a parent directory.
  writeFileSync(join(directory, 'package.json'), '{ "private": true, "type": "module" }');
  const flags = ['--ignore-scripts', '--no-package-lock', '--no-audit', '--no-fund'];
  const { code, output } = runHere(directory, 'npm', ['install', ...flags, ...packages]);
  assert.equal(code, 0, output);
  return directory;
}
