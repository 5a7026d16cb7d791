/** The first step of `make e2e NAME=oidc`: installs the programs of Debian. */
import { spawnSync } from 'node:child_process';
import { install, ROOT_MAY } from '../packages.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';
import { DEBIAN } from './parties.ts';

async function main(): Promise<number> {
  const missing = () => DEBIAN.filter((name) => spawnSync('dpkg', ['-s', name]).status !== 0);
  const [first, ...more] = missing();
  if (first !== undefined) install('apache2', first, ...more);
  const still = missing();
  if (still.length === 0) return 0;
  throw new SetupError(`make e2e NAME=oidc needs ${still.join(', ')} of Debian${ROOT_MAY}`);
}

await runMain(main);
