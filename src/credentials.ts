import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf, StartupError } from './runtime/errors.ts';

/** What is printed stays in the log of a container (ASVS 16.2.5). @returns where the secret is now */
export function writeCredential(directory: string, name: string, secret: string): string {
  const file = join(directory, name);
  try {
    // A new file, so that neither the mode nor a link of an old one matters.
    rmSync(file, { force: true });
    writeFileSync(file, `${secret}\n`, { mode: 0o600, flag: 'wx', flush: true });
    return `in ${file}`;
  } catch (error) {
    throw new StartupError(
      `cannot write ${file} (${codeOf(error)}). Make FIRST_CREDENTIALS_DIR writable.`,
    );
  }
}
