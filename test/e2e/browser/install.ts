/**
 * The first step of `make e2e NAME=browser`: installs Chromium or Firefox, chromedriver and a QR
 * code reader if missing.
 */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';

/** The package of each program in Debian and Ubuntu. */
const PACKAGES = {
  chromium: 'chromium',
  chromedriver: 'chromium-driver',
  zbarimg: 'zbar-tools',
  ...(process.env.BROWSER === 'firefox' ? { 'firefox-esr': 'firefox-esr' } : {}),
};

async function main(): Promise<number> {
  const missing = () => Object.entries(PACKAGES).filter(([program]) => !findProgram(program));
  const [first, ...more] = missing().map(([, name]) => name);
  if (first !== undefined) install('chromium', first, ...more);
  const still = missing().map(([program]) => program);
  if (still.length === 0) return 0;
  const advice = `install it from your system's packages${ROOT_MAY}`;
  throw new SetupError(`make e2e NAME=browser needs ${still.join(' and ')}: ${advice}`);
}

await runMain(main);
