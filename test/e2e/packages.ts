/** Installs programs that some tests need, from the packages of the operating system. */
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { findProgram } from './programs.ts';
import { errorCode } from '../../scripts/setup-error.ts';

const isRoot = process.getuid?.() === 0;

/** Follows "install it from your system's packages" if `install` could not. */
export const ROOT_MAY = isRoot ? '' : ', or run this as root on a system with apt-get';

/** Installs as root, if there is apt-get. @returns whether the program exists now */
export function install(program: string, ...packages: readonly [string, ...string[]]): boolean {
  if (!isRoot || !findProgram('apt-get')) return false;
  process.stdout.write(`installing ${packages.join(', ')} with apt-get\n`);
  return withoutServices(() => {
    for (const words of [
      ['update'],
      ['install', '--yes', '--no-install-recommends', ...packages],
    ]) {
      const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
      const { status, stdout, stderr } = spawnSync('apt-get', ['--quiet', ...words], {
        encoding: 'utf8',
        env,
      });
      // An outdated list of packages may be sufficient.
      if (status !== 0)
        process.stdout.write(`apt-get ${words.join(' ')} failed:\n${stdout}${stderr}`);
    }
    // The tests start programs themselves. That of the system starts neither now nor at the next
    // boot.
    for (const name of packages) spawnSync('systemctl', ['disable', name]);
    return findProgram(program) !== undefined;
  });
}

/** Debian asks this file before a package starts its service. */
function withoutServices<T>(act: () => T): T {
  const policy = '/usr/sbin/policy-rc.d';
  try {
    writeFileSync(policy, '#!/bin/sh\nexit 101\n', { flag: 'wx', mode: 0o755 });
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
    return act();
  }
  try {
    return act();
  } finally {
    rmSync(policy);
  }
}
