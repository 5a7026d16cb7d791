/** Load on one server by wrk. Its script checks every reply. */
import { execFile, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

/**
 * Requests that are sent one after the other, in a loop, and the status and text that each reply
 * must have.
 */
export interface Replay {
  readonly file: string;
  readonly status: number;
  readonly text: string;
}

interface LoadOptions {
  /** Name of the subject, for error messages. */
  readonly name: string;
  readonly port: number;
  readonly clients: number;
  readonly seconds: number;
  readonly replay: Replay;
}

interface LoadResult {
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
    const content = {
      'Content-Type': 'application/json',
      'Content-Length': String(Buffer.byteLength(body ?? '')),
    };
    const fields = Object.entries({
      Host: 'localhost',
      ...(body === undefined ? {} : content),
      ...headers,
    });
    const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    return `${method} ${path} HTTP/1.1\r\n${lines}\r\n${body ?? ''}`;
  });
  writeFileSync(file, raw.join('\0'));
  return file;
}

const { stdout: version } = spawnSync('wrk', ['-v'], { encoding: 'utf8' });
const installed = /^wrk \S+/.exec(version ?? '')?.[0];

export const generator = `${installed ?? 'no wrk'} with one thread`;

/** @throws if a reply was wrong or a connection broke: such a result would be worthless */
export async function load(options: LoadOptions): Promise<LoadResult> {
  const result = await runWrk(options);
  const { requests, wrong, firstWrong, socketErrors } = result;
  const fail = (problem: string) => new Error(`${options.name}: ${problem}`);
  if (wrong > 0) throw fail(`${wrong} of ${requests} replies were wrong, the first: ${firstWrong}`);
  if (socketErrors > 0) throw fail(`${socketErrors} connections broke or timed out`);
  if (requests === 0) throw fail('no reply');
  return result;
}

async function runWrk({ port, clients, seconds, replay }: LoadOptions): Promise<LoadResult> {
  if (installed === undefined)
    throw new Error('wrk is not installed: apt-get install wrk, or brew install wrk');
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
