/**
 * `make guarantees`: makes the change that SECURITY.md names beside each guarantee, one after the
 * other, in copies of the tree, and requires that a test of the guarantee then fails.
 */
import { cpSync, lstatSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { inLanes, interruptLanes, type Lane, runTest, withLanes } from './mutants/lane.ts';
import { runMain, SetupError } from './setup-error.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';
import { copyTree, startCompilers } from './test-copy.ts';

export interface Guarantee {
  readonly promise: string;
  /** Those that need no other programs. */
  readonly tests: readonly string[];
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const root = dirname(import.meta.dirname);
const LIMIT_MS = 120_000;
const TEST = /`(test\/(?!e2e)[^`]+\.test\.ts)`/g;
/** ``FILE`: without `FROM`` or ``FILE`: `TO` for `FROM``. */
const CHANGE = /^`([^`]+)`: (?:without `(.+)`|`(.+)` for `(.+)`)$/;

/** Those of the tables of SECURITY.md. @throws if a row names no change */
export const readGuarantees = (document: string): Guarantee[] =>
  document
    .split('\n')
    .map((line) => line.split(' | '))
    .filter((cells) => cells.length === 4 && cells[2]?.includes('`test/'))
    .map(([promise = '', , tests = '', change = '']) => {
      const found = CHANGE.exec(change.replace(/ \|$/, ''));
      if (!found) throw new SetupError(`SECURITY.md has no change for: ${promise}`);
      const [, file = '', dropped, to = '', replaced] = found;
      const names = [...tests.matchAll(TEST)].map(([, name = '']) => name);
      return { promise: promise.slice(2), tests: names, file, from: dropped ?? replaced ?? '', to };
    });

async function main(): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, interruptLanes);
  const [only = ''] = process.argv.slice(2);
  const all = readGuarantees(readFileSync(join(root, 'SECURITY.md'), 'utf8'));
  const guarantees = all.filter(({ promise, file }) => `${file} ${promise}`.includes(only));
  const compiled = makeTemporary(tmpdir(), 'gatehouse-guarantees');
  try {
    copyTree(compiled);
    const statuses = await Promise.all(startCompilers(compiled).map(({ ended }) => ended));
    if (statuses.some((status) => status !== 0))
      throw new SetupError('The tests cannot be compiled.');
    return await withLanes(availableParallelism(), compiled, (lanes) => tryAll(lanes, guarantees));
  } finally {
    removeTemporary(compiled);
  }
}

async function tryAll(lanes: readonly Lane[], guarantees: readonly Guarantee[]): Promise<number> {
  let unnoticed = 0;
  await inLanes(lanes, guarantees, async (lane, guarantee) => {
    const noticed = await tryOne(lane, guarantee);
    if (noticed === null) unnoticed += 1;
    process.stdout.write(`${noticed ?? 'NOT NOTICED'}: ${guarantee.promise}\n`);
  });
  return unnoticed === 0 ? 0 : 1;
}

/** @returns the test that fails with the change, or null */
async function tryOne(lane: Lane, guarantee: Guarantee): Promise<string | null> {
  const undo = applyChange(lane, guarantee);
  try {
    for (const test of guarantee.tests) {
      const { isGreen } = await runTest(lane, test, LIMIT_MS);
      if (!isGreen) return test;
    }
    return null;
  } finally {
    undo();
  }
}

/** Tests load the file beside its source; the programs that they start load it from `dist/`. */
function applyChange({ copy }: Lane, { promise, file, from, to }: Guarantee): () => void {
  const name = file.replace(/\.ts$/, '.js');
  const [folder = ''] = file.split('/');
  // The copy has a link to the tree itself, which must stay as it is.
  if (lstatSync(join(copy, folder)).isSymbolicLink()) {
    rmSync(join(copy, folder));
    cpSync(join(root, folder), join(copy, folder), { recursive: true });
  }
  const built = folder === 'src' ? [name, name.replace(/^src/, 'dist')] : [name];
  const originals = built.map((path) => ({
    path: join(copy, path),
    text: readFileSync(join(copy, path), 'utf8'),
  }));
  for (const { path, text } of originals) {
    if (!text.includes(from)) throw new SetupError(`${file} has no ${from}: ${promise}`);
    writeFileSync(
      path,
      text.replace(from, () => to),
    );
  }
  return () => {
    for (const { path, text } of originals) writeFileSync(path, text);
  };
}

if (import.meta.filename === process.argv[1]) await runMain(main);
