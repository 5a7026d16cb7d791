/** What the measurements of identity share: the compiled service in a process of its own, one client, and figures. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { dirname, join } from 'node:path';

const root = dirname(dirname(import.meta.dirname));

export interface Service {
  readonly port: number;
  readonly processId: number;
  stop(): Promise<void>;
}

/** Identity from `dist`, ready, at a port that was free. It migrates its database first. */
export async function startIdentity(databaseUrl: string, environment: Readonly<Record<string, string>> = {}): Promise<Service> {
  const child = spawn(process.execPath, [join(root, 'dist/cli.js'), 'serve', 'identity'], {
    env: { PATH: process.env.PATH, DATABASE_URL: databaseUrl, IDENTITY_HOST: '127.0.0.1', IDENTITY_PORT: '0', ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  const port = await new Promise<number>((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`identity ended with ${code} before it was ready`)));
    let written = '';
    const listen = (text: string) => {
      written += text;
      const { port } = /"message":"listening".*?"port":(?<port>\d+)/.exec(written)?.groups ?? {};
      if (!written.includes('"message":"ready"') || port === undefined) return;
      // The log is still read, as somebody would read it, but not looked at.
      child.stdout.off('data', listen).resume();
      resolve(Number(port));
    };
    child.stdout.setEncoding('utf8').on('data', listen);
  });
  return {
    port,
    processId: child.pid ?? 0,
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
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

export const spread = (values: readonly number[]): string =>
  `${median(values).toFixed(2)} (${Math.min(...values).toFixed(2)} to ${Math.max(...values).toFixed(2)})`;
