/**
 * `make test`: every test/…/*.test.ts, or the files named as arguments, against one PostgreSQL started for the run
 * (or the one that TEST_POSTGRES_URL names).
 */
import { setMaxListeners } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { startPostgres } from './postgres.ts';
import { runMain } from './setup-error.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';
import { findLateAwait, findNarrowing, findSilentSkip } from './test-rules.ts';

const root = dirname(import.meta.dirname);
const interruption = new AbortController();
// Each test file waits for it.
setMaxListeners(0, interruption.signal);

async function main(): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => interruption.abort());
  const named = process.argv.slice(2).map((file) => resolve(file));
  const files = named.length > 0 ? named : findTests(join(root, 'test'));
  const misleading = files.flatMap((file) => {
    const [name, source] = [relative(root, file), readFileSync(file, 'utf8')];
    return [...findNarrowing(name, source), ...findLateAwait(name, source)];
  });
  if (misleading.length > 0) return report(misleading);

  const given = process.env.TEST_POSTGRES_URL;
  if (given) return runFiles(files);
  const directory = makeTemporary(tmpdir(), 'gatehouse-test');
  try {
    const server = await startPostgres({ directory: join(directory, 'state'), durable: false, maxConnections: 300 });
    try {
      process.env.TEST_POSTGRES_URL = server.url;
      return await runFiles(files);
    } finally {
      await server.stop();
    }
  } finally {
    removeTemporary(directory);
  }
}

function findTests(directory: string): string[] {
  return readdirSync(directory, { encoding: 'utf8', recursive: true })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => join(directory, name))
    .sort();
}

async function runFiles(files: string[]): Promise<number> {
  let failed = 0;
  let finished = 0;
  const faults: string[] = [];
  // The processes of the files are started with the options of this one, `--import tsx` among them.
  const events = run({ files, concurrency: 2, timeout: 150_000, signal: interruption.signal });
  events.on('test:pass', (event) => {
    finished += 1;
    // A file is reported under its own name only where nothing in it was.
    if (files.includes(event.name)) faults.push(`no test in ${relative(root, event.name)}`);
    faults.push(...[findSilentSkip(event)].filter((fault) => fault !== undefined));
  });
  events.on('test:fail', (event) => {
    if (event.todo === undefined || event.todo === false) failed += 1;
    faults.push(...[findSilentSkip(event)].filter((fault) => fault !== undefined));
  });
  for await (const text of events.compose(new spec())) process.stdout.write(text);

  if (interruption.signal.aborted) return 130;
  if (finished + failed === 0) faults.push('no test ran');
  return Math.max(report(faults), failed > 0 ? 1 : 0);
}

function report(faults: string[]): number {
  for (const fault of faults) process.stderr.write(`${fault}\n`);
  return faults.length > 0 ? 1 : 0;
}

await runMain(main);
