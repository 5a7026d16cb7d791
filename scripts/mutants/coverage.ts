/**
 * Which mutants each test file reaches, measured once per state of the tree by the coverage of V8.
 * Processes that the tests start are measured, too.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { inLanes, type Lane, runTest } from './lane.ts';
import { findSqlMutants } from './sql.ts';

export interface Reach {
  readonly test: string;
  readonly ms: number;
  /** By file of src/, the indexes of its mutants. */
  readonly mutants: Readonly<Record<string, readonly number[]>>;
  /** The files of src/ with a function that is called. */
  readonly called: readonly string[];
}

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

interface Script {
  readonly url: string;
  readonly functions: ReadonlyArray<Readonly<{ functionName: string; ranges: readonly Range[] }>>;
}

const LIMIT_MS = 300_000;
const CACHE = 'node_modules/.cache/mutants';
/** Every result depends on them, beside the test itself. */
const COMMON = [
  'src',
  'test/support',
  'scripts/tokens.ts',
  'scripts/mutants/sql.ts',
  'package-lock.json',
];

/**
 * @param root of the tree
 * @param tests relative to it
 * @returns also the tests that fail without a mutant
 */
export async function measureReach(root: string, lanes: readonly Lane[], tests: readonly string[]) {
  mkdirSync(join(root, CACHE), { recursive: true });
  const common = hashOf(root, COMMON);
  const keyed = tests.map((test) => ({ test, key: hashOf(root, [test], common) }));
  const reaches: Reach[] = [];
  const failing: string[] = [];
  await inLanes(lanes, keyed, async (lane, { test, key }) => {
    const cached = join(root, CACHE, `${key}.json`);
    const reach: Reach | null = existsSync(cached)
      ? JSON.parse(readFileSync(cached, 'utf8'))
      : ((await measure(lane, test)) ?? (await measure(lane, test)));
    if (!reach) {
      failing.push(test);
      return;
    }
    writeFileSync(cached, JSON.stringify(reach));
    reaches.push(reach);
    process.stderr.write(`\r${reaches.length + failing.length} of ${tests.length} test files`);
  });
  process.stderr.write('\n');
  return { reaches, failing };
}

/** @returns null if the test fails */
async function measure(lane: Lane, test: string): Promise<Reach | null> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-coverage');
  try {
    const run = await runTest(lane, test, LIMIT_MS, { NODE_V8_COVERAGE: directory });
    if (!run.isGreen) return null;
    return { test, ms: Math.round(run.ms), ...readCoverage(directory, lane.copy) };
  } finally {
    removeTemporary(directory);
  }
}

function readCoverage(directory: string, copy: string): Pick<Reach, 'mutants' | 'called'> {
  const reached = new Map<string, Set<number>>();
  const called = new Set<string>();
  for (const name of readdirSync(directory)) {
    const { result }: { result: Script[] } = JSON.parse(
      readFileSync(join(directory, name), 'utf8'),
    );
    for (const script of result) {
      const file = sourceOf(script.url, copy);
      if (file === undefined) continue;
      if (script.functions.some(isCalled)) called.add(file);
      const ranges = script.functions.flatMap((each) => each.ranges);
      const found = reached.get(file) ?? new Set();
      offsetsIn(script.url).forEach((offset, index) => {
        if (isExecuted(ranges, offset)) found.add(index);
      });
      reached.set(file, found);
    }
  }
  const mutants = [...reached].map(([file, found]) => [file, [...found]]);
  return { mutants: Object.fromEntries(mutants), called: [...called] };
}

/** The module itself has no name. */
const isCalled = ({ functionName, ranges }: Script['functions'][number]) =>
  functionName !== '' && ranges.some(({ count }) => count > 0);

const knownOffsets = new Map<string, readonly number[]>();

/** Where the mutants of a compiled file begin. */
function offsetsIn(url: string): readonly number[] {
  const known = knownOffsets.get(url);
  if (known) return known;
  const offsets = findSqlMutants(readFileSync(new URL(url), 'utf8')).map(({ from }) => from);
  knownOffsets.set(url, offsets);
  return offsets;
}

/** @returns the file of src/ that a script of the copy was compiled from */
function sourceOf(url: string, copy: string): string | undefined {
  if (!url.startsWith(`file://${copy}/`)) return undefined;
  const path = relative(copy, new URL(url).pathname).replace(/^dist\//, 'src/');
  return path.startsWith('src/') ? path.replace(/\.js$/, '.ts') : undefined;
}

/** The innermost range decides. */
function isExecuted(ranges: readonly Range[], offset: number): boolean {
  const around = ranges.filter(
    ({ startOffset, endOffset }) => startOffset <= offset && offset < endOffset,
  );
  const size = ({ startOffset, endOffset }: Range) => endOffset - startOffset;
  const [innermost] = around.sort((one, other) => size(one) - size(other));
  return innermost !== undefined && innermost.count > 0;
}

/** @param paths files and folders of the tree */
function hashOf(root: string, paths: readonly string[], start = ''): string {
  const hash = createHash('sha256').update(start);
  const files = paths.flatMap((path) => filesIn(root, path));
  for (const file of files) hash.update(`${file}\n`).update(readFileSync(join(root, file)));
  return hash.digest('hex').slice(0, 32);
}

function filesIn(root: string, path: string): string[] {
  if (!statSync(join(root, path)).isDirectory()) return [path];
  const entries = readdirSync(join(root, path), { withFileTypes: true });
  return entries
    .map(({ name }) => join(path, name))
    .sort()
    .flatMap((each) => filesIn(root, each));
}
