/**
 * Installs the senders' own libraries into a temporary directory. They are not dependencies of
 * Gatehouse.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

export const PACKAGES = [
  'standardwebhooks',
  'svix',
  '@octokit/webhooks',
  '@octokit/webhooks-methods',
  '@octokit/webhooks-examples',
  'stripe',
  '@slack/bolt',
  '@notionhq/client',
  '@linear/sdk',
  '@paddle/paddle-node-sdk',
  'discord-interactions',
  '@shopify/shopify-api',
  'square',
  '@hubspot/api-client',
  '@zoom/rivet',
  'twilio',
] as const;
export type Package = (typeof PACKAGES)[number];

/**
 * Installs them one at a time, so that the failure of one does not affect the others.
 * @returns the reason for each package that could not be installed
 */
export function installLibraries(
  directory: string,
  names: readonly Package[] = PACKAGES,
): Map<Package, string> {
  // Without a manifest npm would install into a project in a parent directory.
  writeFileSync(join(directory, 'package.json'), '{ "private": true, "type": "module" }');
  const failed = new Map<Package, string>();
  for (const name of names) {
    const flags = [
      '--ignore-scripts',
      '--no-package-lock',
      '--no-audit',
      '--no-fund',
      '--loglevel=error',
    ];
    const { status, stderr, error } = spawnSync(
      'npm',
      ['install', '--prefix', directory, ...flags, name],
      {
        cwd: directory,
        encoding: 'utf8',
        timeout: 120_000,
      },
    );
    if (status === 0 && existsSync(join(directory, 'node_modules', name))) continue;
    const code = stderr?.split('\n').find((line) => /npm (error|ERR!) code/.test(line));
    failed.set(
      name,
      `npm install ${name}: ${code ?? error?.message ?? `npm exited with ${String(status)}`}`,
    );
  }
  return failed;
}

/** @returns a function that imports an installed library, and returns its exports */
export function loaderOf(directory: string) {
  // Node resolves packages relative to the importing file, so the import must be in the directory.
  const loader = join(directory, 'loader.mjs');
  writeFileSync(loader, 'export const load = (name) => import(name);');
  return async function load<Exports>(name: Package | `${Package}/${string}`): Promise<Exports> {
    const address = pathToFileURL(loader).href;
    const module: { load(name: string): Promise<Exports> } = await import(address);
    return module.load(name);
  };
}

/** Options of a test that needs a library. */
export function skipWithout(failed: ReadonlyMap<Package, string>, name: Package) {
  const skip = failed.get(name);
  return skip === undefined ? {} : { skip };
}
