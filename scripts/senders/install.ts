/** The senders' own libraries, in a directory that is removed afterwards: they are asked, and are no dependency. */
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const PACKAGES = ['standardwebhooks', 'svix', '@octokit/webhooks-methods', 'stripe', '@slack/bolt', '@notionhq/client'] as const;
export type Package = (typeof PACKAGES)[number];

/**
 * One after the other, so that one that cannot be had takes no other along.
 * @returns why, for each that could not be installed
 */
export function installLibraries(directory: string): Map<Package, string> {
  // Without it npm would look for a project in the directories above.
  writeFileSync(join(directory, 'package.json'), '{ "private": true, "type": "module" }');
  const missing = new Map<Package, string>();
  for (const name of PACKAGES) {
    const words = ['install', '--prefix', directory, '--ignore-scripts', '--no-package-lock', '--no-audit', '--no-fund', '--loglevel=error', name];
    const { status, stderr, error } = spawnSync('npm', words, { cwd: directory, encoding: 'utf8', timeout: 120_000 });
    if (status === 0 && existsSync(join(directory, 'node_modules', name))) continue;
    const said = stderr?.split('\n').find((line) => /npm (error|ERR!) code/.test(line)) ?? error?.message ?? `npm ended with ${String(status)}`;
    missing.set(name, `npm install ${name}: ${said}`);
  }
  return missing;
}
