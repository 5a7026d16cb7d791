/**
 * The first step of `make e2e NAME=deploy`: installs the tools that read the files in deploy/, if
 * missing.
 */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';

const TOOLS = [
  ['promtool', 'prometheus'],
  ['strace', 'strace'],
  ['systemd-analyze', 'systemd'],
] as const;

async function main(): Promise<number> {
  const missing = TOOLS.filter(
    ([program, name]) => !findProgram(program) && !install(program, name),
  );
  if (missing.length > 0) {
    const names = missing.map(([program]) => program).join(', ');
    throw new SetupError(
      `make e2e NAME=deploy needs ${names}: install it from your system's packages${ROOT_MAY}`,
    );
  }
  return 0;
}

await runMain(main);
