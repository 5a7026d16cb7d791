/** What the measurements share: a program in a process of its own, one client, and figures. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { dirname, join } from 'node:path';

export const root = dirname(dirname(import.meta.dirname));

/** Long enough for every check, and worth nothing. */
export const TOKEN = 'for-measuring-only-0123456789abcdefghij';
export const PASSWORD = 'for measuring only';

/** What the services cannot start without, or would make up. */
export const SETTINGS = { SERVER_SECRET: TOKEN, AUTH_TOKEN: TOKEN, ADMIN_PASSWORD: PASSWORD, WEBHOOK_TOKEN: TOKEN } as const;

export interface Service {
  readonly port: number;
  readonly processId: number;
  stop(): Promise<void>;
}

type Environment = Readonly<Record<string, string>>;
export type ServiceName = 'identity' | 'secrets' | 'webhook';

/** The named services from `dist`, ready, at ports that were free. They migrate their database first. @returns the first one's port */
export function startServices(names: readonly ServiceName[], databaseUrl: string, environment: Environment = {}): Promise<Service> {
  const places = Object.fromEntries(names.flatMap((name) => [[`${name.toUpperCase()}_HOST`, '127.0.0.1'], [`${name.toUpperCase()}_PORT`, '0']]));
  return startProgram([join(root, 'dist/cli.js'), 'serve', ...names], names, { DATABASE_URL: databaseUrl, ...SETTINGS, ...places, ...environment });
}

export const startIdentity = (databaseUrl: string, environment: Environment = {}): Promise<Service> => startServices(['identity'], databaseUrl, environment);

/** What was started here and not stopped, whatever became of it. */
const running = new Set<() => Promise<void>>();

export async function stopAll(): Promise<void> {
  await Promise.all([...running].map((stop) => stop()));
}

/** @param names whose lines "listening" (with a port) and "ready" are waited for in the program's log */
export async function startProgram(script: readonly string[], names: readonly string[], environment: Environment): Promise<Service> {
  const child = spawn(process.execPath, script, { env: { PATH: process.env.PATH, ...environment }, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const stop = async () => {
    running.delete(stop);
    child.kill('SIGTERM');
    await ended;
  };
  running.add(stop);
  const port = await new Promise<number>((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`${script.join(' ')} ended with ${code} before it was ready`)));
    const ports = new Map<string, number>();
    const ready = new Set<string>();
    let rest = '';
    const listen = (part: Buffer) => {
      const lines = (rest + part.toString('utf8')).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const { message, service, port }: { message?: string; service?: string; port?: number } = JSON.parse(line);
        if (message === 'listening' && service !== undefined && port !== undefined) ports.set(service, port);
        if (message === 'ready' && service !== undefined) ready.add(service);
      }
      const first = ports.get(names[0] ?? '');
      if (first === undefined || !names.every((name) => ports.has(name) && ready.has(name))) return;
      // The log is still read, as somebody would read it, but not looked at, and as cheaply as it can be.
      child.stdout.off('data', listen).resume();
      resolve(first);
    };
    child.stdout.on('data', listen);
  });
  return { port, processId: child.pid ?? 0, stop };
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  /** From the request's first byte to the answer's last. */
  readonly ms: number;
}

/** One client: a connection that is kept, and one request at a time. */
export function createClient({ port }: Pick<Service, 'port'>) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ask = (method: string, path: string, headers: Readonly<Record<string, string>> = {}, body?: string): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const startedAt = performance.now();
      const asked = request({ agent, host: '127.0.0.1', port, method, path, headers }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part: string) => (text += part)).on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text, ms: performance.now() - startedAt }));
      });
      asked.on('error', reject).end(body);
    });
  return { ask, close: () => agent.destroy() };
}

export const median = (values: readonly number[]): number => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? Number.NaN;

export const spread = (values: readonly number[], digits = 2): string =>
  values.length === 0 ? '–' : `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)} to ${Math.max(...values).toFixed(digits)})`;
