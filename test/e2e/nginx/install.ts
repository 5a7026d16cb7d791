/**
 * The first step of `make e2e NAME=nginx`: installs nginx, and Caddy where the system has a
 * package, if missing.
 */
import { spawnSync } from 'node:child_process';
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';

async function main(): Promise<number> {
  if (!findProgram('nginx') && !install('nginx', 'nginx')) {
    throw new SetupError(
      `make e2e NAME=nginx needs nginx: install it from your system's packages${ROOT_MAY}`,
    );
  }
  const nginx = findProgram('nginx') ?? 'nginx';
  const { stderr } = spawnSync(nginx, ['-V'], { encoding: 'utf8' });
  if (!stderr.includes('http_auth_request_module')) {
    throw new SetupError(
      `make e2e NAME=nginx needs nginx with the auth_request module, which ${nginx} lacks`,
    );
  }
  if (!findProgram('caddy')) install('caddy', 'caddy');
  return 0;
}

await runMain(main);
