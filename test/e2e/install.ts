/** The first step of `make e2e`: the programs that the tests of a folder need. */
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { errorCode, SetupError } from '../../scripts/setup-error.ts';
import { POSTGRES } from './compose/images.ts';
import { DEBIAN } from './oidc/parties.ts';
import { wordsOf } from '../support/words.ts';
import { findProgram } from './programs.ts';

/** Packages of Debian and Ubuntu; behind a colon the program for which one is needed, if any. */
const NEEDS: Readonly<Record<string, readonly string[]>> = {
  browser: wordsOf(`
    chromium:chromium chromium-driver:chromedriver zbar-tools:zbarimg
    ${process.env.BROWSER === 'firefox' ? 'firefox-esr:firefox-esr' : ''}
  `),
  compose: wordsOf(`
    docker.io:dockerd iptables:iptables docker-compose:docker-compose caddy:caddy
    postgresql-15:${POSTGRES}/bin/postgres
  `),
  deploy: wordsOf('prometheus:promtool strace:strace systemd:systemd-analyze'),
  ha: wordsOf('etcd-server:etcd patroni:patroni python3-etcd haproxy:haproxy postgresql'),
  image: ['buildah:buildah'],
  nginx: ['nginx:nginx', 'caddy:caddy'],
  oidc: DEBIAN,
  pgbouncer: ['pgbouncer:pgbouncer'],
};
/** Buildah and Docker change the root directory of processes. */
const AS_ROOT = ['image', 'compose'];
const isRoot = process.getuid?.() === 0;

/** @returns the packages of these that are missing */
function missingOf(needs: readonly string[]): string[] {
  const isMissing = ([name = '', program]: readonly string[]) =>
    program === undefined
      ? spawnSync('dpkg', ['-s', name]).status !== 0
      : findProgram(program) === undefined;
  const missing = needs.map((need) => need.split(':')).filter(isMissing);
  return missing.map(([name = '']) => name);
}

/** Installs what is missing in these folders, as root and if there is apt-get. */
export function installFor(folders: readonly string[]): void {
  if (!isRoot && folders.some((folder) => AS_ROOT.includes(folder)))
    throw new SetupError(`The tests of ${folders.join(' and ')} must run as root.`);
  const needs = folders.flatMap((folder) => NEEDS[folder] ?? []);
  const missing = missingOf(needs);
  if (missing.length > 0 && isRoot && findProgram('apt-get')) install(missing);
  const still = missingOf(needs);
  if (still.length === 0) return;
  const root = isRoot ? '' : ', or run this as root on a system with apt-get';
  throw new SetupError(
    `The tests of ${folders.join(' and ')} need ${still.join(', ')}: ` +
      `install it from your system's packages${root}`,
  );
}

function install(packages: readonly string[]): void {
  process.stdout.write(`installing ${packages.join(', ')} with apt-get\n`);
  withoutServices(() => {
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
  });
}

/** Debian asks this file before a package starts its service. */
function withoutServices(act: () => void): void {
  const policy = '/usr/sbin/policy-rc.d';
  try {
    writeFileSync(policy, '#!/bin/sh\nexit 101\n', { flag: 'wx', mode: 0o755 });
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
    return act();
  }
  try {
    act();
  } finally {
    rmSync(policy);
  }
}
