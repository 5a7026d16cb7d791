import { spawnSync } from 'node:child_process';

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
    timeout: 180_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  if (error) throw error;
  return { code: status, output: stdout + stderr };
}
