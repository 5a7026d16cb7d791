/**
 * Load on one server, by wrk if it is installed and otherwise by replay.mjs. Both check every
 * reply.
 */
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

/**
 * Requests that are sent one after the other, in a loop, and the status and text that each reply
 * must have.
 */
export interface Replay {
  readonly file: string;
  readonly status: number;
  readonly text: string;
}

export interface LoadOptions {
  /** Name of the subject, for error messages. */
  readonly name: string;
  readonly port: number;
  readonly clients: number;
  readonly seconds: number;
  readonly replay: Replay;
}

export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  /** In milliseconds. */
  readonly p50: number;
  readonly p99: number;
  readonly wrong: number;
  readonly firstWrong: string;
  readonly socketErrors: number;
}

export interface RequestTemplate {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Writes raw HTTP requests, separated by NUL bytes. @returns the file */
export function writeRequests(file: string, templates: readonly RequestTemplate[]): string {
  const raw = templates.map(({ method, path, headers = {}, body }) => {
    const length = {
      'Content-Type': 'application/json',
      'Content-Length': String(Buffer.byteLength(body ?? '')),
    };
    const fields = Object.entries({
      Host: 'localhost',
      ...headers,
      ...(body === undefined ? {} : length),
    });
    const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    return `${method} ${path} HTTP/1.1\r\n${lines}\r\n${body ?? ''}`;
  });
  writeFileSync(file, raw.join('\0'));
  return file;
}

const printed =
  process.env.LOAD === 'own' ? '' : spawnSync('wrk', ['-v'], { encoding: 'utf8' }).stdout;
const wrk = /^wrk (\S+)/.exec(printed ?? '')?.[1];

export const generator =
  wrk === undefined ? 'replay.mjs in a worker thread' : `wrk ${wrk}, one thread`;

/** @throws if a reply was wrong or a connection broke: such a result would be worthless */
export async function load(options: LoadOptions): Promise<LoadResult> {
  const result = await (wrk === undefined ? runWorker(options) : runWrk(options));
  const { requests, wrong, firstWrong, socketErrors } = result;
  const fail = (problem: string) => new Error(`${options.name}: ${problem}`);
  if (wrong > 0) throw fail(`${wrong} of ${requests} replies were wrong, the first: ${firstWrong}`);
  if (socketErrors > 0) throw fail(`${socketErrors} connections broke or timed out`);
  if (requests === 0) throw fail('no reply');
  return result;
}

async function runWrk({ port, clients, seconds, replay }: LoadOptions): Promise<LoadResult> {
  const script = join(import.meta.dirname, 'replay.lua');
  const flags = [
    '-t1',
    `-c${clients}`,
    `-d${Math.ceil(seconds)}s`,
    '--timeout',
    '30s',
    '-s',
    script,
  ];
  const expectation = [replay.file, String(replay.status), replay.text];
  const url = `http://127.0.0.1:${port}`;
  const { stdout, stderr } = await promisify(execFile)('wrk', [
    ...flags,
    url,
    '--',
    ...expectation,
  ]);
  const line = stdout.split('\n').find((text) => text.startsWith('{'));
  if (line === undefined) throw new Error(`wrk printed no result: ${stdout}${stderr}`);
  return JSON.parse(line);
}

async function runWorker(options: LoadOptions): Promise<LoadResult> {
  const worker = new Worker(join(import.meta.dirname, 'replay.mjs'), { workerData: options });
  // Both listeners are needed from the start: "exit" may follow "message" at once.
  const [[result]]: [LoadResult[], unknown] = await Promise.all([
    once(worker, 'message'),
    once(worker, 'exit'),
  ]);
  if (!result) throw new Error('replay.mjs sent no result');
  return result;
}
