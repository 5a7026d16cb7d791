import { spawnSync } from 'node:child_process';
import { findProgram } from '../programs.ts';

export interface Result {
  readonly code: number | null;
  /** Standard output and standard error. */
  readonly output: string;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a tool to its end.
 * @param environment in place of that of this process, except for PATH and HOME
 */
export function runTool(
  name: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  input = '',
  timeout = 120_000,
): Result {
  const { PATH = '', HOME = '' } = process.env;
  const { status, stdout, stderr, error } = spawnSync(findProgram(name) ?? name, words, {
    encoding: 'utf8',
    env: { PATH, HOME, ...environment },
    input,
    timeout,
    maxBuffer: 64 * 1024 * 1024,
  });
  if (error) throw error;
  return { code: status, output: stdout + stderr, stdout, stderr };
}
