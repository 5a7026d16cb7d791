/**
 * Runs compiled test files, each in a process of its own. `make test` starts it in a compiled copy
 * of the tree.
 */
import { setMaxListeners } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, relative } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { runMain } from './setup-error.ts';
import { findSilentSkip, type TestEvent } from './test-rules.ts';

/** Most files wait most of the time: for PostgreSQL, for timers, for a process to start. */
const CONCURRENCY = Math.min(Math.ceil(2.5 * availableParallelism()), 10);
const SLOWEST = 10;
/** Of a file, and of one that runs alone: it may measure for long. */
const LIMIT_MS = 900_000;
const LIMIT_ALONE_MS = 1_800_000;

const interruption = new AbortController();
// Each test file listens to it.
setMaxListeners(0, interruption.signal);

async function main(): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => interruption.abort());
  const files = process.argv.slice(2);
  const problems: string[] = [];
  let passed = 0;
  let failed = 0;
  const judge = (event: TestEvent) => {
    const problem = findSilentSkip(event);
    if (problem !== undefined) problems.push(problem);
  };
  const begun = new Map<string, number>();
  const seconds = new Map<string, number>();

  const timeout = files.length > 1 ? LIMIT_MS : LIMIT_ALONE_MS;
  const events = run({ files, concurrency: CONCURRENCY, timeout, signal: interruption.signal });
  events.on('test:pass', (event) => {
    passed += 1;
    // A file is reported under its own name only if nothing in it was.
    if (files.includes(event.name)) problems.push(`no test in ${relative('', event.name)}`);
    judge(event);
  });
  events.on('test:fail', (event) => {
    if (event.todo === undefined || event.todo === false) failed += 1;
    judge(event);
  });
  events.on('test:dequeue', ({ name }) => begun.set(name, performance.now()));
  events.on('test:complete', ({ name }) => {
    if (files.includes(name))
      seconds.set(name, (performance.now() - (begun.get(name) ?? 0)) / 1000);
  });
  for await (const text of events.compose(new spec())) process.stdout.write(text);

  if (interruption.signal.aborted) {
    // The programs that the aborted tests have started. They are in the process group of this one.
    process.kill(0, 'SIGTERM');
    return 130;
  }
  if (passed + failed === 0) problems.push('no test ran');
  if (files.length > SLOWEST) {
    const slowest = [...seconds].sort(([, one], [, other]) => other - one).slice(0, SLOWEST);
    process.stdout.write('\nslowest files:\n');
    for (const [name, taken] of slowest) {
      process.stdout.write(`${taken.toFixed(1).padStart(6)} s  ${sourceOf(name)}\n`);
    }
    keepTimes(seconds);
  }
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  return problems.length > 0 || failed > 0 ? 1 : 0;
}

const sourceOf = (file: string) => relative('', file).replace(/js$/, 'ts');

/** For the order of the next run. */
function keepTimes(seconds: ReadonlyMap<string, number>): void {
  const { TEST_TIMES: file } = process.env;
  if (file === undefined) return;
  const known: object = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
  const measured = [...seconds].map(([name, taken]) => [sourceOf(name), taken] as const);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify({ ...known, ...Object.fromEntries(measured) }));
}

await runMain(main);
