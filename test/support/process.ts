/**
 * The program as its users run it: compiled, in a process of its own, with an environment that
 * holds nothing else.
 */
import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, spawn, type SpawnOptions } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { createLines } from './lines.ts';
import { until } from './until.ts';
import type { Owner } from './owner.ts';

export const root = dirname(dirname(import.meta.dirname));

/** @returns the directory in which `make test` has built `dist/`, as users build it */
export const buildProgram = (): string => root;

type Line = Record<string, unknown>;

interface End {
  /** `null` when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export type Running = ReturnType<typeof startProcess>;

export interface StartOptions extends Pick<SpawnOptions, 'uid' | 'gid' | 'cwd' | 'detached'> {
  readonly input?: string | Buffer;
  /** Closes standard output at once, as `… | head -0` does. */
  readonly deaf?: boolean;
  /** How many files, sockets and pipes it may have open. */
  readonly files?: number;
  /** The command of another Node. */
  readonly node?: readonly string[];
}

/** @param directory as `buildProgram` made it */
export function startProgram(
  owner: Owner,
  directory: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
  { files, node = [process.execPath], ...options }: StartOptions = {},
): Running {
  const command = [...node, join(directory, 'dist/cli.js'), ...words];
  const limited = ['/bin/sh', '-c', `ulimit -n ${files} && exec "$@"`, 'sh', ...command];
  const all = files === undefined ? command : limited;
  return startProcess(owner, all, environment, { cwd: directory, ...options });
}

/** @param environment all of it: nothing is inherited */
export function startProcess(
  owner: Owner,
  [program = '', ...words]: readonly string[],
  environment: Readonly<Record<string, string>>,
  { deaf, input = '', ...options }: Omit<StartOptions, 'files' | 'node'> = {},
) {
  const child = spawn(program, words, { env: { ...environment }, ...options });
  const output = readOutput(child);
  if (deaf) child.stdout.destroy();
  // A program that does not read its input may be gone before all of it is written.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  let isOver = false;
  const ended = endOf(child).finally(() => {
    isOver = true;
  });
  owner.after(async () => {
    child.kill('SIGKILL');
    child.stdout.resume();
    await ended;
  });
  const text = () => output.stdout() + output.stderr();
  const line = async (fits: (line: Line) => boolean): Promise<Line> => {
    const find = () => output.log().find(fits);
    await until(() => isOver || find() !== undefined, `a log line that fits ${fits.toString()}`);
    return find() ?? assert.fail(`ended without that line: ${text()}`);
  };
  return {
    ...output,
    /** Resolves when this is printed; rejects when the process ends before that. */
    async prints(pattern: RegExp) {
      await until(
        () => isOver || pattern.test(text()),
        () => `${pattern} in ${text()}`,
      );
      assert.match(text(), pattern);
    },
    /** Resolves with the first log line that fits; rejects when the process ends before that. */
    line,
    /** `http://127.0.0.1:…` of a service, once it listens. */
    async url(service: string) {
      const { port } = await line((one) => one.message === 'listening' && one.service === service);
      return `http://127.0.0.1:${String(port)}`;
    },
    async ready(...services: readonly string[]) {
      const isReady = (service: string) =>
        line((one) => one.message === 'ready' && one.service === service);
      await Promise.all(services.map(isReady));
    },
    signal: (name: NodeJS.Signals) => {
      child.kill(name);
    },
    pid: child.pid ?? 0,
    /** When it is over and its output is read. */
    ended,
    /** Also while its output is not read. */
    exited: once(child, 'exit'),
  };
}

function readOutput({ stdout, stderr }: ChildProcessWithoutNullStreams) {
  const lines = createLines(parseLine);
  let errors = '';
  stdout.setEncoding('utf8').on('data', lines.write);
  stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  return {
    stdout: lines.text,
    /** A line of JSON is shown as a person would get it. */
    stderr: () =>
      errors.replace(/^\{"time":.*\}$/gm, (text) => `gatehouse: ${JSON.parse(text).message}`),
    /** The lines of JSON on standard error. */
    notes: () => errors.split('\n').flatMap(parseLine),
    /** The log lines so far; what is no JSON object is left out. */
    log: lines.parsed,
    /** Standard output waits in the pipe and in the process until `read` is called. */
    stopReading: () => stdout.pause(),
    read: () => stdout.resume(),
  };
}

function endOf(child: ChildProcessWithoutNullStreams): Promise<End> {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ code, signal }));
  });
}

function parseLine(text: string): Line[] {
  if (!text.startsWith('{')) return [];
  return [JSON.parse(text)];
}

export interface Finished extends End {
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a command to its end. The limit only keeps one that should have ended from running for ever.
 */
export async function runProgram(
  owner: Owner,
  directory: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
  options: StartOptions = {},
): Promise<Finished> {
  const running = startProgram(owner, directory, words, environment, options);
  AbortSignal.timeout(45_000).addEventListener('abort', () => running.signal('SIGKILL'));
  const end = await running.ended;
  return { ...end, stdout: running.stdout(), stderr: running.stderr() };
}
