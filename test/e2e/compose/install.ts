/** The first step of `make e2e NAME=image`: installs Docker and what its images are made of. */
import { existsSync } from 'node:fs';
import { runTool } from '../deploy/tools.ts';
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';
import { POSTGRES } from './images.ts';

const TOOLS = [
  ['dockerd', 'docker.io'],
  ['iptables', 'iptables'],
  ['docker-compose', 'docker-compose'],
  ['caddy', 'caddy'],
  [`${POSTGRES}/bin/postgres`, 'postgresql-15'],
] as const;

async function main(): Promise<number> {
  if (process.getuid?.() !== 0)
    throw new SetupError('make e2e NAME=image must run as root: it starts a daemon of Docker.');
  const missing = TOOLS.filter(
    ([program, name]) => !findProgram(program) && !install(program, name),
  );
  if (missing.length > 0) {
    const names = missing.map(([, name]) => name).join(', ');
    throw new SetupError(
      `make e2e NAME=image needs ${names}: install it from your system's packages${ROOT_MAY}`,
    );
  }
  if (existsSync('/var/run/docker.sock') && runTool('docker', ['version']).code === 0)
    throw new SetupError(
      'Docker runs on this machine. Stop it: make e2e NAME=image starts its own, which would share its networks.',
    );
  return 0;
}

await runMain(main);
