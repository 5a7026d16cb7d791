/** Shared by the benchmarks: a program in its own process, and an HTTP client. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type Build, THIS } from './builds.ts';

/** Not secret, but long enough for every check. */
export const TOKEN = 'for-measuring-only-0123456789abcdefghij';

/** The settings that a service requires or would generate. */
const SETTINGS = {
  SERVER_SECRET: TOKEN,
  AUTH_TOKEN: TOKEN,
  ADMIN_PASSWORD: 'for measuring only',
  WEBHOOK_TOKEN: TOKEN,
} as const;

export interface Service {
  /** Of the first service, and of all of them in their order. */
  readonly port: number;
  readonly ports: readonly number[];
  readonly processId: number;
  stop(): Promise<void>;
}

export type Environment = Readonly<Record<string, string>>;
export type ServiceName = 'identity' | 'secrets' | 'webhook';

/**
 * Starts services from `dist/` in one process, on free ports. They migrate their database.
 * @param options of Node
 * @param group the directory of a cgroup that the process joins before it starts
 */
export function startServices(
  names: readonly ServiceName[],
  databaseUrl: string,
  environment: Environment = {},
  build: Build = THIS,
  options: readonly string[] = [],
  group?: string,
): Promise<Service> {
  const settings = { ...settingsOf(names, databaseUrl), ...environment };
  return startProgram(
    [...options, join(build.directory, 'dist/cli.js'), 'serve', ...names],
    names,
    settings,
    group,
  );
}

/** The settings of services that listen on free ports. */
function settingsOf(names: readonly ServiceName[], databaseUrl: string): Environment {
  const listeners = Object.fromEntries(
    names.flatMap((name) => {
      const prefix = name.toUpperCase();
      return [
        [`${prefix}_HOST`, '127.0.0.1'],
        [`${prefix}_PORT`, '0'],
      ];
    }),
  );
  return { DATABASE_URL: databaseUrl, ...SETTINGS, ...listeners };
}

/** Stop functions of the programs that are still running. */
const running = new Set<() => Promise<void>>();
const endings: Array<() => Promise<void>> = [];

/** Runs in the next stopAll(), after the programs have ended. */
export const atEnd = (work: () => Promise<void>): unknown => endings.push(work);

export async function stopAll(): Promise<void> {
  await Promise.all([...running].map((stop) => stop()));
  for (const work of endings.splice(0)) await work();
}

/** Starts a program, which the next stopAll() ends. */
export function launch(program: string, args: readonly string[], environment: Environment) {
  const env = { PATH: process.env.PATH, ...environment };
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(child, 'exit');
  const stop = async () => {
    running.delete(stop);
    child.kill('SIGINT');
    await ended;
  };
  running.add(stop);
  return { child, stop };
}

/** Installs packages from npm in a new directory. @returns the directory */
export function installPackages(parent: string, ...packages: readonly string[]): string {
  const directory = mkdtempSync(join(parent, 'packages-'));
  const flags = ['--no-audit', '--no-fund', '--ignore-scripts', '--prefix', directory];
  execFileSync('npm', ['install', ...flags, ...packages], { stdio: 'pipe' });
  return directory;
}

/** @param names the services whose log lines "listening" (with a port) and "ready" are awaited */
export async function startProgram(
  script: readonly string[],
  names: readonly string[],
  environment: Environment,
  group?: string,
): Promise<Service> {
  const joining = ['-c', 'echo $$ > "$0" && exec "$@"', `${group}/cgroup.procs`, process.execPath];
  const program = group === undefined ? process.execPath : 'sh';
  const args = group === undefined ? script : [...joining, ...script];
  const { child, stop } = launch(program, args, environment);
  // What it says while it starts is shown only if it fails.
  let errors = '';
  const keep = (chunk: Buffer) => {
    errors += chunk.toString('utf8');
  };
  child.stderr.on('data', keep);
  const found = await new Promise<number[]>((resolve, reject) => {
    child.once('exit', (code) => {
      reject(new Error(`${script.join(' ')} exited with ${code} before it was ready\n${errors}`));
    });
    const ports = new Map<string, number>();
    const ready = new Set<string>();
    let rest = '';
    const readLog = (chunk: Buffer) => {
      const lines = (rest + chunk.toString('utf8')).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const { message, service, port }: { message?: string; service?: string; port?: number } =
          JSON.parse(line);
        if (message === 'listening' && service !== undefined && port !== undefined)
          ports.set(service, port);
        if (message === 'ready' && service !== undefined) ready.add(service);
      }
      if (!names.every((name) => ports.has(name) && ready.has(name))) return;
      // The pipe is drained for the rest of the run: a full one would slow the program down.
      child.stdout.off('data', readLog).resume();
      child.stderr.off('data', keep).pipe(process.stderr, { end: false });
      resolve(names.map((name) => ports.get(name) ?? 0));
    };
    child.stdout.on('data', readLog);
  });
  return { port: found[0] ?? 0, ports: found, processId: child.pid ?? 0, stop };
}

interface Reply {
  readonly status: number;
  readonly text: string;
}

/** One keep-alive connection with one request at a time. */
export function createClient({ port }: Pick<Service, 'port'>) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const send = (method: string, path: string, headers: Environment = {}, body?: string) =>
    new Promise<Reply>((resolve, reject) => {
      const options = { agent, host: '127.0.0.1', port, method, path, headers };
      const sent = httpRequest(options, (response) => {
        text(response).then(
          (found) => resolve({ status: response.statusCode ?? 0, text: found }),
          reject,
        );
      });
      sent.on('error', reject).end(body);
    });
  return { send, close: () => agent.destroy() };
}
