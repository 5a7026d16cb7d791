/**
 * The program as its users run it: compiled, in a process of its own, with an environment that
 * holds nothing else.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { createLines } from './lines.ts';
import { until } from './until.ts';
import type { Owner } from './owner.ts';

export const root = dirname(dirname(import.meta.dirname));

/** @returns the directory in which `make test` has built `dist/`, as users build it */
export const buildProgram = (): string => root;

export interface End {
  /** `null` when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface Running {
  stdout(): string;
  /** A line of JSON is shown as a person would get it. */
  stderr(): string;
  /** Its lines of JSON. */
  notes(): Array<Record<string, unknown>>;
  /** The log lines so far; what is not JSON object is left out. */
  log(): Array<Record<string, unknown>>;
  /** Resolves with the first log line that fits; rejects when the process ends before that. */
  line(fits: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>>;
  /** `http://127.0.0.1:…` of a service, once it listens. */
  url(service: string): Promise<string>;
  ready(...services: readonly string[]): Promise<void>;
  signal(name: NodeJS.Signals): void;
  readonly pid: number;
  readonly ended: Promise<End>;
}

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
): Running {
  const child = spawnProgram(directory, words, environment, options);
  const stdout = createLines(parseLine);
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', stdout.write);
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
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
    await ended;
  });
  const line: Running['line'] = async (fits) => {
    const find = () => stdout.parsed().find(fits);
    await until(() => isOver || find() !== undefined, `a log line that fits ${fits.toString()}`);
    const found = find();
    if (!found) throw new Error(`the process ended without that line: ${stdout.text()}${stderr}`);
    return found;
  };
  return {
    stdout: stdout.text,
    stderr: () =>
      stderr.replace(/^\{"time":.*\}$/gm, (line) => `gatehouse: ${parseNote(line).message}`),
    notes: () => stderr.split('\n').flatMap(parseLine),
    log: stdout.parsed,
    line,
    async url(service) {
      const { port } = await line((one) => one.message === 'listening' && one.service === service);
      return `http://127.0.0.1:${String(port)}`;
    },
    async ready(...services) {
      const isReady = (service: string) =>
        line((one) => one.message === 'ready' && one.service === service);
      await Promise.all(services.map(isReady));
    },
    signal: (name) => {
      child.kill(name);
    },
    pid: child.pid ?? 0,
    ended,
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

const parseNote = (line: string): Record<string, unknown> => JSON.parse(line);

function parseLine(text: string): Array<Record<string, unknown>> {
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
