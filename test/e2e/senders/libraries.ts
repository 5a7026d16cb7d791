/**
 * Installs the current releases of the senders' own libraries into a temporary directory. They are
 * not dependencies of Gatehouse.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { addPackages, createPackages } from '../tools.ts';

/** Installs them one at a time, so that the failure of one does not affect the others. */
export function installLibraries(...names: readonly string[]) {
  const directory = createPackages();
  const failed = new Map<string, string>();
  for (const name of names) {
    const { output } = addPackages(directory, name);
    if (existsSync(join(directory, 'node_modules', name))) continue;
    const code = output.split('\n').find((line) => /npm (error|ERR!) code/.test(line));
    failed.set(name, `npm install ${name}: ${code ?? 'failed'}`);
  }
  // Node resolves packages relative to the importing file, so the import must be in the directory.
  const loader = join(directory, 'loader.mjs');
  writeFileSync(loader, 'export const load = (name) => import(name);');
  return {
    hasFailed: (name: string) => failed.has(name),
    /** Options of a test that needs a library. */
    needs: (name: string) => ({
      timeout: 60_000,
      ...(failed.has(name) ? { skip: failed.get(name) ?? '' } : {}),
    }),
    read: (file: string) => readFileSync(join(directory, 'node_modules', file), 'utf8'),
    load: async (name: string) => (await import(pathToFileURL(loader).href)).load(name),
  };
}
