/** Directories that are removed after use, or, where a `kill -9` prevented that, by the next who makes one. */
import { lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { errorCode } from './setup-error.ts';

/** Its name says which process made it. */
export function makeTemporary(parent: string, purpose: string): string {
  removeForgotten(parent, purpose);
  return mkdtempSync(join(parent, `${purpose}-${process.pid}-`));
}

export function removeTemporary(path: string): void {
  // A program that was stopped a moment ago may still be writing.
  rmSync(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
}

function removeForgotten(parent: string, purpose: string): void {
  for (const name of readdirSync(parent)) {
    const path = join(parent, name);
    const maker = name.startsWith(`${purpose}-`) ? Number(name.slice(purpose.length + 1).split('-')[0]) : NaN;
    if (!(maker > 0) || isAlive(maker)) continue;
    if (lstatSync(path, { throwIfNoEntry: false })?.uid === process.getuid?.()) removeTemporary(path);
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
