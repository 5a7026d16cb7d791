/** The first step of `make e2e NAME=image`: installs buildah if missing. */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';

async function main(): Promise<number> {
  if (process.getuid?.() !== 0)
    throw new SetupError(
      'make e2e NAME=image must run as root: buildah changes its root directory',
    );
  if (!findProgram('buildah') && !install('buildah', 'buildah')) {
    throw new SetupError(
      `make e2e NAME=image needs buildah: install it from your system's packages${ROOT_MAY}`,
    );
  }
  return 0;
}

await runMain(main);
