/** Tools that run to their end, and packages of npm that are not dependencies of Gatehouse. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { makeDirectory } from '../support/directories.ts';
import { findProgram } from './programs.ts';

export interface Result {
  readonly code: number | null;
  /** Standard output and standard error. */
  readonly output: string;
  readonly stdout: string;
  readonly stderr: string;
}

/** @param environment in place of that of this process, except for PATH and HOME */
export function runTool(
  name: string,
  words: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  options: Readonly<{ input?: string; cwd?: string }> = {},
): Result {
  const { PATH = '', HOME = '' } = process.env;
  const { status, stdout, stderr, error } = spawnSync(findProgram(name) ?? name, words, {
    encoding: 'utf8',
    env: { PATH, HOME, ...environment },
    timeout: 280_000,
    maxBuffer: 64 * 1024 * 1024,
    ...options,
  });
  if (error) throw error;
  return { code: status, output: stdout + stderr, stdout, stderr };
}

const INSTALL = ['install', '--ignore-scripts', '--no-package-lock', '--no-audit', '--no-fund'];

/** @returns a new directory for packages, which is removed after the tests of the file */
export const createPackages = (): string => makeDirectory({ after }, 'packages');

/** With the environment of this process, which may name a registry and a proxy. */
export function addPackages(directory: string, ...packages: readonly string[]): Result {
  // Without a manifest npm would install into a project in a parent directory.
  const manifest = join(directory, 'package.json');
  if (!existsSync(manifest)) writeFileSync(manifest, '{ "private": true, "type": "module" }');
  const words = [...INSTALL, '--loglevel=error', ...packages];
  return runTool('npm', words, process.env, { cwd: directory });
}

/** @returns a new directory with these packages */
export function installPackages(...packages: readonly string[]): string {
  const directory = createPackages();
  const { code, output } = addPackages(directory, ...packages);
  assert.equal(code, 0, output);
  return directory;
}
