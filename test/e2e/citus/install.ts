/** The first step of `make e2e NAME=citus`: looks for Citus, and installs nothing. */
import { runMain, SetupError } from '../../../scripts/setup-error.ts';
import { findProgram } from '../programs.ts';
import { findCitus } from './cluster.ts';

async function main(): Promise<number> {
  if (!findProgram('psql')) {
    throw new SetupError("make e2e NAME=citus needs psql: install it from your system's packages");
  }
  if (!findCitus()) {
    throw new SetupError(
      'make e2e NAME=citus needs PostgreSQL with Citus 12 or newer. ' +
        'Get packages or the source at https://github.com/citusdata/citus. ' +
        'Then set CITUS_BIN to the folder that holds its pg_config and postgres.',
    );
  }
  return 0;
}

await runMain(main);
