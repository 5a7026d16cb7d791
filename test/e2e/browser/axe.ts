/**
 * Runs axe-core in a page. It is installed into a temporary directory and is no dependency of
 * Gatehouse.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SetupError } from '../../../scripts/setup-error.ts';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import type { Browser } from './webdriver.ts';

const AXE = 'axe-core@4.10.3';
let source: string | null = null;

function loadAxe(): string {
  if (source !== null) return source;
  const directory = makeTemporary(tmpdir(), 'gatehouse-axe');
  try {
    // Without a manifest npm would install into a project in a parent directory.
    writeFileSync(join(directory, 'package.json'), '{ "private": true }');
    const flags = [
      '--ignore-scripts',
      '--no-package-lock',
      '--no-audit',
      '--no-fund',
      '--loglevel=error',
    ];
    const options = { cwd: directory, encoding: 'utf8', timeout: 120_000 } as const;
    const { status, stderr } = spawnSync(
      'npm',
      ['install', '--prefix', directory, ...flags, AXE],
      options,
    );
    if (status !== 0) throw new SetupError(`npm install ${AXE} failed: ${stderr}`);
    source = readFileSync(join(directory, 'node_modules/axe-core/axe.min.js'), 'utf8');
    return source;
  } finally {
    removeTemporary(directory);
  }
}

/** What axe finds wrong with the page as it is shown now, one line for each element. */
export async function axeViolations(browser: Browser): Promise<string[]> {
  // In the test's own context, to which the page's Content-Security-Policy does not apply.
  await browser.run(`if (!globalThis.axe) { ${loadAxe()} }`);
  const found = await browser.runAsync(`
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target }) => id + ': ' + help + ': ' + target));`);
  return Array.isArray(found) ? found.map(String) : [String(found)];
}
