/**
 * Runs every test/…/*.test.ts but test/e2e, or the files, folders and transcripts named as
 * arguments. With `--fast` it runs the fast tests, with `--stress` test/e2e/stress and every race
 * with more rounds.
 *
 * The tree is copied to a temporary directory and compiled there once: tsx in each of the processes
 * would cost more CPU than most tests. The tests run in the copy, on one PostgreSQL: that of
 * TEST_POSTGRES_URL, or one started for the run.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { databaseUrl, withConnection } from './postgres.ts';
import { runMain, SetupError } from './setup-error.ts';
import { SLOW_FILES } from './slow-tests.ts';
import { type Supervised, supervise } from './supervise.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';
import { copyTree, findTests, isTranscript, startCompilers, withServer } from './test-copy.ts';
import { findLateAwait, findNarrowing } from './test-rules.ts';

const root = dirname(import.meta.dirname);
/** They need other programs, or many minutes: `make e2e` runs them by name. */
const END_TO_END = join(root, 'test/e2e/');
const STRESS = join(END_TO_END, 'stress');
/** How long each file took on this machine. */
const TIMES = join(root, 'node_modules/.cache/test-times.json');
const LISTED_SECONDS = 30;
const FAST = ['test/unit', 'test/repository', 'test/api'].map((name) => join(root, name));

const interruption = new AbortController();
let current: readonly Supervised[] = [];

async function main(): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, interrupt);
  const files = chooseFiles(process.argv.slice(2));
  const problems = files.flatMap((file) => {
    const name = relative(root, file);
    const source = readFileSync(file, 'utf8');
    return [...findNarrowing(name, source), ...findLateAwait(name, source)];
  });
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  if (problems.length > 0) return 1;

  const copy = makeTemporary(tmpdir(), 'gatehouse-test');
  try {
    copyTree(copy);
    const compiled = compile(copy);
    return await withGivenServer(async (server) => {
      await compiled;
      const status = await runTests(copy, files, server);
      return interruption.signal.aborted ? 130 : status;
    });
  } catch (error) {
    if (interruption.signal.aborted) return 130;
    throw error;
  } finally {
    removeTemporary(copy);
  }
}

/** @returns absolute paths, those of the slowest files first: as measured here, or as listed */
function chooseFiles(words: readonly string[]): string[] {
  const times: Readonly<Record<string, number>> = existsSync(TIMES)
    ? JSON.parse(readFileSync(TIMES, 'utf8'))
    : {};
  const secondsOf = (file: string) => {
    const name = relative(root, file);
    return times[name] ?? (SLOW_FILES.includes(name) ? LISTED_SECONDS : 0);
  };
  return filesOf(words).sort((one, other) => secondsOf(other) - secondsOf(one));
}

function filesOf(words: readonly string[]): string[] {
  const all = () => findTests(join(root, 'test')).filter((file) => !file.startsWith(END_TO_END));
  switch (words[0]) {
    case undefined:
      return all();
    case '--fast':
      return FAST.flatMap(findTests).filter((file) => !SLOW_FILES.includes(relative(root, file)));
    case '--stress':
      return [...findTests(STRESS), ...all().filter(hasRounds)];
    default:
      return [...new Set(words.flatMap((path) => findTests(resolve(path))))];
  }
}

/** The names of the transcripts that are named alone. */
const transcriptsOf = (words: readonly string[]) =>
  words.flatMap((path) => (isTranscript(resolve(path)) ? basename(path) : []));

const hasRounds = (file: string) => readFileSync(file, 'utf8').includes('/support/rounds.ts');

async function compile(copy: string): Promise<void> {
  if ((await untilEnded(...startCompilers(copy))) !== 0)
    throw new SetupError('The tests cannot be compiled.');
}

async function withGivenServer(work: (server: string) => Promise<number>): Promise<number> {
  const given = process.env.TEST_POSTGRES_URL;
  return given ? work(given) : withServer(work);
}

/** On a server with one database that holds every schema: each test file gets a copy of it. */
async function runTests(copy: string, files: readonly string[], server: string): Promise<number> {
  const template = `test_template_${randomBytes(8).toString('hex')}`;
  const isOurs = (file: string) => file.startsWith(`${root}/`);
  const compiled = files.map((file) =>
    isOurs(file) ? file.replace(root, copy).replace(/\.ts$/, '.js') : file,
  );
  const run = (args: readonly string[], env: NodeJS.ProcessEnv) =>
    untilEnded(supervise('TERM', process.execPath, args, { cwd: copy, env }));
  await withConnection(server, (sql) => sql`create database ${sql(template)}`);
  try {
    const migrated = await run(['dist/cli.js', 'migrate'], {
      DATABASE_URL: databaseUrl(server, template),
    });
    if (migrated !== 0) throw new SetupError('The template database cannot be migrated.');
    const words = process.argv.slice(2);
    const [first = '--all'] = words;
    const stress = first === '--stress' ? { STRESS: '1' } : {};
    const codes = join(copy, 'reply-codes.txt');
    const env = {
      ...process.env,
      ...stress,
      TEST_POSTGRES_URL: server,
      TEST_TEMPLATE: template,
      TEST_CODES: codes,
      TEST_TIMES: TIMES,
      TEST_TRANSCRIPTS: transcriptsOf(words).join(),
    };
    const isNamed = !first.startsWith('--');
    // Source maps cost a tenth of the whole run. Run a file by its name to see the lines of the
    // source in its stacks.
    const maps = isNamed ? ['--enable-source-maps'] : [];
    const status = await run([...maps, 'scripts/run-tests.js', ...compiled], env);
    return status || (await run(['scripts/reply-codes.js', codes, first], env));
  } finally {
    await withConnection(server, (sql) => sql`drop database ${sql(template)}`);
  }
}

/** @returns the first exit status other than 0 */
async function untilEnded(...commands: readonly Supervised[]): Promise<number> {
  current = commands;
  if (interruption.signal.aborted) interrupt();
  const statuses = await Promise.all(commands.map(({ ended }) => ended));
  return statuses.find((status) => status !== 0) ?? 0;
}

function interrupt(): void {
  interruption.abort();
  for (const command of current) command.tell('INT');
}

await runMain(main);
