/**
 * `make test-node`: runs tests with each supported version of Node, taken from the npm registry.
 *
 *   node --import tsx scripts/node-versions.ts                 every test, newest 20, 22 and 24
 *   node --import tsx scripts/node-versions.ts 22 24 -- FILE…  these files with these versions
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { runMain, SetupError } from './setup-error.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';

const SUPPORTED = ['20', '22', '24'];
const root = dirname(import.meta.dirname);

/** Installs that version in a directory of its own. @returns its binary */
function installNode(directory: string, version: string): string {
  const name = `node-${process.platform}-${process.arch}`;
  // If this process is root, some tests run the program as another user.
  chmodSync(directory, 0o711);
  // Without a manifest npm would install into a project in a parent directory.
  writeFileSync(join(directory, 'package.json'), '{ "private": true }');
  const flags = [
    '--ignore-scripts',
    '--no-package-lock',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
  ];
  const installed = spawnSync(
    'npm',
    ['install', '--prefix', directory, ...flags, `${name}@${version}`],
    { encoding: 'utf8' },
  );
  if (installed.status !== 0)
    throw new SetupError(`npm cannot install ${name}@${version}:\n${installed.stderr}`);
  return join(directory, 'node_modules', name, 'bin/node');
}

async function main(): Promise<number> {
  const words = process.argv.slice(2);
  const end = words.includes('--') ? words.indexOf('--') : words.length;
  const versions = words.slice(0, end);
  const files = words.slice(end + 1);
  let status = 0;
  for (const version of versions.length > 0 ? versions : SUPPORTED) {
    const directory = makeTemporary(tmpdir(), 'gatehouse-node');
    try {
      const node = installNode(directory, version);
      process.stdout.write(`Node ${spawnSync(node, ['--version'], { encoding: 'utf8' }).stdout}`);
      const run = spawnSync(node, ['--import', 'tsx', 'scripts/test.ts', ...files], {
        cwd: root,
        stdio: 'inherit',
      });
      if (run.status !== 0) status = run.status ?? 1;
    } finally {
      removeTemporary(directory);
    }
  }
  return status;
}

await runMain(main);
