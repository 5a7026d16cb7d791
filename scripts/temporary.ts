/**
 * Directories that are removed after use, or by the next process that makes one if a `kill -9`
 * prevented that.
 */
import { lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { errorCode } from './setup-error.ts';

/** Its name contains the id of this process. */
export function makeTemporary(parent: string, purpose: string): string {
  removeStale(parent, purpose);
  return mkdtempSync(join(parent, `${purpose}-${process.pid}-`));
}

export function removeTemporary(path: string): void {
  // A program that has just been stopped may still be writing.
  rmSync(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
}

function removeStale(parent: string, purpose: string): void {
  for (const name of readdirSync(parent)) {
    const path = join(parent, name);
    const owner = name.startsWith(`${purpose}-`)
      ? Number(name.slice(purpose.length + 1).split('-')[0])
      : NaN;
    if (!(owner > 0) || isAlive(owner)) continue;
    if (lstatSync(path, { throwIfNoEntry: false })?.uid === process.getuid?.())
      removeTemporary(path);
  }
}

export function isAlive(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch (error) {
    return errorCode(error) !== 'ESRCH';
  }
}
