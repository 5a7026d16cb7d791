/** The first step of `make test-browser`: a Chromium that can be driven, and a reader of QR codes. */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../setup-error.ts';

/** By program: its package in Debian and Ubuntu, and what it is called elsewhere. */
const NEEDED = [
  ['chromium', 'chromium', 'Chromium'],
  ['chromedriver', 'chromium-driver', 'its chromedriver of the same version'],
  ['zbarimg', 'zbar-tools', 'zbarimg, of zbar'],
] as const;

async function main(): Promise<number> {
  const isMissing = ([program]: (typeof NEEDED)[number]) => !findProgram(program);
  const missing = NEEDED.filter(isMissing);
  const [first, ...more] = missing.map(([, name]) => name);
  if (first !== undefined) install('chromium', first, ...more);
  const still = missing.filter(isMissing).map(([, , name]) => name);
  if (still.length > 0) throw new SetupError(`make test-browser needs ${still.join(' and ')}: install it from your system's packages${ROOT_MAY}`);
  return 0;
}

await runMain(main);
