/** The first step of `make test-nginx`: nginx, and Caddy where there is one, from the packages of the operating system. */
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { errorCode, runMain, SetupError } from '../setup-error.ts';
import { findProgram } from './programs.ts';

const isRoot = process.getuid?.() === 0;

async function main(): Promise<number> {
  if (!findProgram('nginx') && !install('nginx')) {
    throw new SetupError(`make test-nginx needs nginx: install it from your system's packages${isRoot ? '' : ', or run this as root where there is apt-get'}`);
  }
  const nginx = findProgram('nginx') ?? 'nginx';
  const { stderr } = spawnSync(nginx, ['-V'], { encoding: 'utf8' });
  if (!stderr.includes('http_auth_request_module')) throw new SetupError(`make test-nginx needs an nginx with the module auth_request, which ${nginx} lacks`);
  if (!findProgram('caddy')) install('caddy');
  return 0;
}

/** @returns whether the program is there now */
function install(name: string): boolean {
  if (!isRoot || !findProgram('apt-get')) return false;
  process.stdout.write(`installing ${name} with apt-get\n`);
  return withoutServices(() => {
    for (const words of [['update'], ['install', '--yes', '--no-install-recommends', name]]) {
      const { status, stdout, stderr } = spawnSync('apt-get', ['--quiet', ...words], { encoding: 'utf8', env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } });
      // An outdated list of packages may still do.
      if (status !== 0) process.stdout.write(`apt-get ${words.join(' ')} failed:\n${stdout}${stderr}`);
    }
    // The tests run programs of their own; the system's is neither started now nor at the next boot.
    spawnSync('systemctl', ['disable', name]);
    return findProgram(name) !== undefined;
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

await runMain(main);
