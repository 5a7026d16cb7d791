/** The first step of `make e2e NAME=ha`: installs PgBouncer if missing. */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';

async function main(): Promise<number> {
  if (!findProgram('pgbouncer') && !install('pgbouncer', 'pgbouncer')) {
    throw new SetupError(
      `make e2e NAME=ha needs PgBouncer: install it from your system's packages${ROOT_MAY}`,
    );
  }
  return 0;
}

await runMain(main);
