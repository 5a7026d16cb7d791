import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Owner } from './owner.ts';

/** A directory that is removed when its owner ends. */
export function makeDirectory(owner: Owner, name: string): string {
  const directory = mkdtempSync(join(tmpdir(), `gatehouse-${name}-`));
  owner.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}
