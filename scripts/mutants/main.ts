/**
 * Changes the SQL of the files that are named, one condition at a time, and runs the tests that
 * reach it. Reports the changes that no test notices: `make mutants FILES="src/…"`. Files without
 * SQL are changed by Stryker.
 *
 * TESTS limits the tests to files and folders. A survivor that changes nothing a caller can see is
 * listed with its reason in test/equivalent-mutants.txt.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { runMain, SetupError } from '../setup-error.ts';
import { copyTree, findTests, startCompilers } from '../test-copy.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { measureReach, type Reach } from './coverage.ts';
import { inLanes, interruptLanes, type Lane, runTest, withLanes } from './lane.ts';
import { findSqlMutants, type SqlMutant } from './sql.ts';
import { runStryker } from './stryker.ts';

interface Mutant extends SqlMutant {
  readonly file: string;
  /** Among the mutants of the file. */
  readonly index: number;
}

interface Survivor {
  readonly mutant: Mutant;
  readonly tests: number;
}

const root = dirname(dirname(import.meta.dirname));
const EQUIVALENT = 'test/equivalent-mutants.txt';
/** Tests of the tree itself cannot run in a changed copy, and notice nothing of SQL. */
const WITHOUT = /^test\/(e2e|repository)\//;
/** Most tests wait most of the time. */
const LANES = availableParallelism() + 1;

async function main(): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, interruptLanes);
  const files = process.argv.slice(2).flatMap(findSources);
  if (files.length === 0) throw new SetupError('Name files or folders of src/: FILES="src/…"');
  const mutants = files.flatMap(mutantsOf);
  const withoutSql = files.filter((file) => !mutants.some((mutant) => mutant.file === file));
  const tests = (process.env.TESTS || 'test')
    .split(/\s+/)
    .flatMap((path) => findTests(resolve(path)))
    .map((path) => relative(root, path))
    .filter((test) => !WITHOUT.test(test));

  const compiled = makeTemporary(tmpdir(), 'gatehouse-mutants');
  try {
    copyTree(compiled);
    const statuses = await Promise.all(startCompilers(compiled).map(({ ended }) => ended));
    if (statuses.some((status) => status !== 0))
      throw new SetupError('The tests cannot be compiled.');
    return await withLanes(LANES, compiled, async (lanes) => {
      const { reaches, failing } = await measureReach(root, lanes, tests);
      for (const test of failing) process.stdout.write(`${test} fails without a mutant\n`);
      if (failing.length > 0) return 1;
      const status = report(files, mutants, await findSurvivors(lanes, mutants, reaches));
      const [lane] = lanes;
      if (!lane || withoutSql.length === 0) return status;
      const reaching = reaches.filter(({ called }) =>
        called.some((file) => withoutSql.includes(file)),
      );
      const names = reaching.map(({ test }) => test);
      return status || (await runStryker(lane, withoutSql, names));
    });
  } finally {
    removeTemporary(compiled);
  }
}

function findSources(path: string): string[] {
  if (!existsSync(path)) throw new SetupError(`There is no ${path}.`);
  if (path.endsWith('.ts')) return [relative(root, resolve(path))];
  return readdirSync(path, { encoding: 'utf8', recursive: true })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => relative(root, resolve(path, name)))
    .sort();
}

const mutantsOf = (file: string): Mutant[] =>
  findSqlMutants(readFileSync(join(root, file), 'utf8')).map((mutant, index) => ({
    ...mutant,
    file,
    index,
  }));

async function findSurvivors(
  lanes: readonly Lane[],
  mutants: readonly Mutant[],
  reaches: readonly Reach[],
): Promise<Survivor[]> {
  const survivors: Survivor[] = [];
  /** Of each file: a test that has noticed one of its mutants often notices the next one. */
  const noticing = new Map<string, Set<string>>();
  let done = 0;
  await inLanes(lanes, mutants, async (lane, mutant) => {
    const first = noticing.get(mutant.file) ?? new Set();
    const all = inOrder(reaches, mutant);
    const reaching = [
      ...all.filter(({ test }) => first.has(test)),
      ...all.filter(({ test }) => !first.has(test)),
    ];
    const test = await findNoticing(lane, mutant, reaching);
    if (test === undefined) {
      survivors.push({ mutant, tests: reaching.length });
      process.stdout.write(`survived ${reaching.length} test files: ${describe(mutant)}\n`);
    } else noticing.set(mutant.file, first.add(test));
    done += 1;
    process.stderr.write(`\r${done} of ${mutants.length} mutants`);
  });
  process.stderr.write('\n');
  return survivors;
}

/** The tests that reach a mutant, first those that reach most of its file in the least time. */
function inOrder(reaches: readonly Reach[], { file, index }: Mutant): Reach[] {
  const msEach = ({ ms, mutants }: Reach) => ms / (mutants[file]?.length ?? 1);
  return reaches
    .filter(({ mutants }) => mutants[file]?.includes(index))
    .sort((one, other) => msEach(one) - msEach(other));
}

/** A test that takes too long has noticed, too. @returns undefined if none notices */
async function findNoticing(lane: Lane, mutant: Mutant, reaching: readonly Reach[]) {
  const undo = mutate(lane, mutant);
  try {
    for (const { test, ms } of reaching) {
      const { isGreen } = await runTest(lane, test, 20_000 + 5 * ms);
      if (!isGreen) return test;
    }
    return undefined;
  } finally {
    undo();
  }
}

/** Tests load the file beside its source; the programs that they start load it from `dist/`. */
function mutate({ copy }: Lane, { file, index, dropped }: Mutant): () => void {
  const name = file.replace(/\.ts$/, '.js');
  const paths = [join(copy, name), join(copy, name.replace(/^src/, 'dist'))];
  const originals = paths.map((path) => ({ path, text: readFileSync(path, 'utf8') }));
  for (const { path, text } of originals) {
    const mutant = findSqlMutants(text)[index];
    if (!mutant || !isSame(mutant.dropped, dropped))
      throw new Error(`${path} does not have the statements of its source`);
    writeFileSync(path, text.slice(0, mutant.from) + mutant.replacement + text.slice(mutant.to));
  }
  return () => {
    for (const { path, text } of originals) writeFileSync(path, text);
  };
}

/** The compiler lays out the code in `${…}` anew. */
function isSame(one: string, other: string): boolean {
  const firstHole = /\$\{[\s\S]*/;
  return one.replace(firstHole, '') === other.replace(firstHole, '');
}

const describe = ({ file, line, within, dropped }: Mutant) =>
  `${file}:${line} ${within}: ${dropped}`;

/** As test/equivalent-mutants.txt names it. Lines move more often than names. */
const nameOf = ({ file, within, dropped }: Mutant) => `${file} ${within}: ${dropped}`;

function report(
  files: readonly string[],
  mutants: readonly Mutant[],
  survivors: readonly Survivor[],
): number {
  const listed = readFileSync(join(root, EQUIVALENT), 'utf8')
    .split('\n')
    .filter((line) => files.some((file) => line.startsWith(`${file} `)));
  /** Each line excuses one of the survivors of that name. */
  const stale = [...listed];
  const unlisted = survivors.filter(({ mutant }) => {
    const at = stale.indexOf(nameOf(mutant));
    if (at >= 0) stale.splice(at, 1);
    return at < 0;
  });

  process.stdout.write('\n');
  for (const file of files) {
    const all = mutants.filter((mutant) => mutant.file === file).length;
    const left = survivors.filter(({ mutant }) => mutant.file === file).length;
    if (all > 0) process.stdout.write(`${file}: ${left} of ${all} survived\n`);
  }
  for (const { mutant, tests } of unlisted) {
    const by = tests === 0 ? 'reached by no test' : `not noticed by ${tests} test files`;
    process.stdout.write(`${by}: ${describe(mutant)}\n`);
  }
  for (const name of stale) process.stdout.write(`noticed, but in ${EQUIVALENT}: ${name}\n`);
  return unlisted.length + stale.length > 0 ? 1 : 0;
}

await runMain(main);
