/**
 * The secret values of a first start. Those that are not given are generated once and kept in
 * files.
 */
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { syncDirectory } from './data-directory.ts';
import { errorCode, SetupError } from './setup-error.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** A given value is not printed; a generated one is. */
export type FirstValue =
  | { variable: string; given: 'value' | 'file' }
  | { variable: string; given: 'nowhere'; file: string; value: string };

export function isSet(env: Environment, variable: string): boolean {
  return Boolean(env[variable] || env[`${variable}_FILE`]);
}

export function firstValue(env: Environment, directory: string, variable: string): FirstValue {
  if (env[variable]) return { variable, given: 'value' };
  if (env[`${variable}_FILE`]) return { variable, given: 'file' };
  const file = join(directory, variable.toLowerCase().replaceAll('_', '-'));
  if (!existsSync(file)) keep(file, randomBytes(32).toString('base64url'));
  const value = readFileSync(file, 'utf8').trimEnd();
  if (value !== '') return { variable, given: 'nowhere', file, value };
  throw new SetupError(
    `${file} is empty. Restore it from a backup, or remove it to have another value made.`,
  );
}

/**
 * @returns null if identity has not generated a password in this directory, because the database
 * had users before
 */
export function administratorPassword(env: Environment, directory: string): FirstValue | null {
  const variable = 'ADMIN_PASSWORD';
  const file = join(directory, 'admin-password');
  return isSet(env, variable) || existsSync(file) ? firstValue(env, directory, variable) : null;
}

/** @returns the link with which the first administrator chooses a password, or null */
export function administratorLink(directory: string): string | null {
  const file = join(directory, 'admin-link');
  return existsSync(file) ? readFileSync(file, 'utf8').trimEnd() : null;
}

/**
 * Written and synced before it gets its name: nothing encrypted under a lost secret can be
 * decrypted.
 */
export function keep(file: string, value: string): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    const draft = `${file}.new`;
    const descriptor = openSync(draft, 'w', 0o600);
    writeSync(descriptor, `${value}\n`);
    fsyncSync(descriptor);
    closeSync(descriptor);
    renameSync(draft, file);
    syncDirectory(dirname(file));
  } catch (error) {
    throw new SetupError(
      `Cannot write ${file} (${errorCode(error) ?? String(error)}). Make its directory writable.`,
    );
  }
}
