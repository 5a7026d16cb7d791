import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removeTemporary } from '../../scripts/temporary.ts';
import type { Owner } from './owner.ts';

/** A directory that is removed when its owner ends. */
export function makeDirectory(owner: Owner, name: string): string {
  const directory = mkdtempSync(join(tmpdir(), `gatehouse-${name}-`));
  owner.after(() => removeTemporary(directory));
  return directory;
}
