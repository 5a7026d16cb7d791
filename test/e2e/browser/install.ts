/**
 * The first step of `make e2e NAME=browser`: installs Chromium or Firefox, chromedriver and a QR
 * code reader if missing.
 */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';

/** Each program with its package in Debian and Ubuntu, and its name for other systems. */
const NEEDED = [
  ['chromium', 'chromium', 'Chromium'],
  ['chromedriver', 'chromium-driver', 'chromedriver of the same version'],
  ['zbarimg', 'zbar-tools', 'zbarimg (zbar)'],
] as const;

/** For BROWSER=firefox. */
const FIREFOX = ['firefox-esr', 'firefox-esr', 'Firefox'] as const;

async function main(): Promise<number> {
  const needed = process.env.BROWSER === 'firefox' ? [...NEEDED, FIREFOX] : NEEDED;
  const isMissing = ([program]: (typeof needed)[number]) => !findProgram(program);
  const missing = needed.filter(isMissing);
  const [first, ...more] = missing.map(([, name]) => name);
  if (first !== undefined) install('chromium', first, ...more);
  const still = missing.filter(isMissing).map(([, , name]) => name);
  if (still.length === 0) return 0;
  const names = still.join(' and ');
  throw new SetupError(
    `make e2e NAME=browser needs ${names}: install it from your system's packages${ROOT_MAY}`,
  );
}

await runMain(main);
