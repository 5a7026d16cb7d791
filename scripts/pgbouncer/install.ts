/** The first step of `make test-pgbouncer`: installs PgBouncer if missing. */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../setup-error.ts';

async function main(): Promise<number> {
  if (!findProgram('pgbouncer') && !install('pgbouncer', 'pgbouncer')) {
    throw new SetupError(
      `make test-pgbouncer needs PgBouncer: install it from your system's packages${ROOT_MAY}`,
    );
  }
  return 0;
}

await runMain(main);
