/**
 * Changes the code of the files that are named with Stryker, and runs the tests of TESTS that reach
 * it. Stryker does not change the text of SQL; `main.ts` does.
 *
 * It is no dependency: `npm exec` gets a pinned version from the npm registry. It works on the
 * compiled copy of the tree in place, so that nothing is compiled for it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { join } from 'node:path';
import { supervise } from '../supervise.ts';
import { interruptible, TEMPLATE, type Lane } from './lane.ts';

const VERSION = '9.6.1';
const PACKAGES = ['core', 'tap-runner'].map(
  (name) => `--package=@stryker-mutator/${name}@${VERSION}`,
);
const REPORT = 'stryker.json';
/** Changed texts of messages, their empty values and patterns are mostly noise. */
const EXCLUDED = ['StringLiteral', 'ObjectLiteral', 'Regex'];
const LEFT = ['Survived', 'NoCoverage'];

interface Position {
  readonly line: number;
  readonly column: number;
}

interface Report {
  readonly files: Readonly<
    Record<
      string,
      Readonly<{
        source: string;
        mutants: ReadonlyArray<
          Readonly<{
            status: string;
            replacement?: string;
            location: Readonly<{ start: Position; end: Position }>;
          }>
        >;
      }>
    >
  >;
}

/**
 * @param files of src/
 * @param tests relative to the tree
 * @returns the exit status of Stryker, which is that of its first run without a mutant
 */
export async function runStryker(
  { copy, server }: Lane,
  files: readonly string[],
  tests: readonly string[],
): Promise<number> {
  const compiled = (file: string) => file.replace(/\.ts$/, '.js');
  const configuration = {
    testRunner: 'tap',
    plugins: ['@stryker-mutator/tap-runner'],
    tap: {
      testFiles: tests.map(compiled),
      nodeArgs: ['-r', '{{hookFile}}', '{{testFile}}'],
      forceBail: true,
    },
    mutate: files.map(compiled),
    mutator: { excludedMutations: EXCLUDED },
    inPlace: true,
    coverageAnalysis: 'perTest',
    // There is nothing to rewrite, and Stryker does not find the compiler.
    tsconfigFile: 'none.json',
    disableTypeChecks: false,
    checkers: [],
    concurrency: 1,
    timeoutMS: 20_000,
    reporters: ['json', 'progress-append-only'],
    jsonReporter: { fileName: REPORT },
    logLevel: 'error',
  };
  writeFileSync(join(copy, 'stryker.conf.json'), JSON.stringify(configuration));
  const env = { ...process.env, TEST_POSTGRES_URL: server, TEST_TEMPLATE: TEMPLATE };
  // The shell of npm would not pass a signal on.
  const call = '--call=exec stryker run stryker.conf.json';
  const command = ['exec', '--yes', ...PACKAGES, call];
  const { tell, ended } = supervise('TERM', 'npm', command, { cwd: copy, env });
  const status = await interruptible(() => tell('TERM'), ended);
  if (status === 0) printReport(copy);
  return status;
}

function printReport(copy: string): void {
  const { files }: Report = JSON.parse(readFileSync(join(copy, REPORT), 'utf8'));
  for (const [name, { source, mutants: all }] of Object.entries(files)) {
    const mutants = all.filter(({ status }) => status !== 'Ignored');
    const map = new SourceMap(JSON.parse(readFileSync(join(copy, `${name}.map`), 'utf8')));
    const file = name.replace(/\.js$/, '.ts');
    const left = mutants.filter(({ status }) => LEFT.includes(status));
    process.stdout.write(`${file}: ${left.length} of ${mutants.length} survived\n`);
    for (const { status, location, replacement = '' } of left) {
      const { start, end } = location;
      const line = lineOf(map, start);
      const changed = onOneLine(textBetween(source, start, end));
      const what = status === 'Survived' ? 'not noticed' : 'reached by no test';
      process.stdout.write(`${what}: ${file}:${line} ${changed} → ${onOneLine(replacement)}\n`);
    }
  }
}

/** In the source. Stryker counts lines and columns from 1, source maps from 0. */
function lineOf(map: SourceMap, { line, column }: Position): number {
  const entry = map.findEntry(line - 1, column - 1);
  return 'originalLine' in entry ? entry.originalLine + 1 : line;
}

function textBetween(source: string, start: Position, end: Position): string {
  const lines = source.split('\n').slice(start.line - 1, end.line);
  const last = lines.length - 1;
  return lines
    .map((line, index) => (index === last ? line.slice(0, end.column - 1) : line))
    .map((line, index) => (index === 0 ? line.slice(start.column - 1) : line))
    .join('\n');
}

const onOneLine = (text: string): string => text.replace(/\s+/g, ' ').slice(0, 100);
