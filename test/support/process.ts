/**
 * The program as its users run it: compiled, in a process of its own, with an environment that
 * holds nothing else.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
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

export type Running = ReturnType<typeof startProgram>;

export interface StartOptions {
  readonly input?: string | Buffer;
  readonly uid?: number;
  readonly gid?: number;
  readonly cwd?: string;
  /** How many files, sockets and pipes it may have open. */
  readonly files?: number;
  /** The directory of a memory cgroup (version 1) that the process joins before it starts. */
  readonly cgroup?: string;
  /** The command of another Node. */
  readonly node?: readonly string[];
  /** Closes standard output at once, as `… | head -0` does. */
  readonly deaf?: boolean;
}

/**
 * @param directory as `buildProgram` made it
 * @param environment all of it: nothing is inherited
 */
export function startProgram(
  owner: Owner,
  directory: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
  options: StartOptions = {},
) {
  const child = spawnProgram(directory, words, environment, options);
  const output = readOutput(child);
  if (options.deaf) child.stdout.destroy();
  // A program that does not read its input may be gone before all of it is written.
  child.stdin.on('error', () => {});
  child.stdin.end(options.input ?? '');
  let isOver = false;
  const ended = endOf(child).finally(() => {
    isOver = true;
  });
  owner.after(async () => {
    child.kill('SIGKILL');
    child.stdout.resume();
    await ended;
  });
  const line = async (fits: (line: Line) => boolean): Promise<Line> => {
    const find = () => output.log().find(fits);
    await until(() => isOver || find() !== undefined, `a log line that fits ${fits.toString()}`);
    const found = find();
    if (!found) throw new Error(`ended without that line: ${output.stdout()}${output.stderr()}`);
    return found;
  };
  return {
    ...output,
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

function spawnProgram(
  directory: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
  { files, cgroup, node = [process.execPath], uid, gid, cwd = directory }: StartOptions,
): ChildProcessWithoutNullStreams {
  const command = [...node, join(directory, 'dist/cli.js'), ...words];
  const limits = [
    ...(files === undefined ? [] : [`ulimit -n ${files}`]),
    ...(cgroup === undefined ? [] : [`echo $$ > ${cgroup}/cgroup.procs`]),
  ];
  const limited = ['/bin/sh', '-c', [...limits, 'exec "$@"'].join(' && '), 'sh', ...command];
  const [program = '', ...rest] = limits.length === 0 ? command : limited;
  return spawn(program, rest, { env: { ...environment }, cwd, uid, gid });
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
