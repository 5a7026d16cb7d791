/** Load on one server for a while, by wrk where it is installed and otherwise by a generator of our own; both look at every answer. */
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

/** Requests that are sent one after the other and then again, and what each of them must be answered. */
export interface Replay {
  readonly file: string;
  readonly status: number;
  readonly text: string;
}

export interface Orders {
  /** Of what is under load. */
  readonly name: string;
  readonly port: number;
  readonly clients: number;
  readonly seconds: number;
  readonly replay: Replay;
}

export interface Measured {
  readonly answers: number;
  readonly seconds: number;
  /** In milliseconds. */
  readonly p50: number;
  readonly p99: number;
  readonly wrong: number;
  readonly firstWrong: string;
  readonly socketErrors: number;
}

export interface Ask {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Writes the requests as they go on the wire, with a NUL byte between them. @returns the file */
export function writeRequests(file: string, asks: readonly Ask[]): string {
  const raw = asks.map(({ method, path, headers = {}, body }) => {
    const all = { Host: 'localhost', ...headers, ...(body === undefined ? {} : { 'Content-Type': 'application/json', 'Content-Length': String(Buffer.byteLength(body)) }) };
    return `${method} ${path} HTTP/1.1\r\n${Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body ?? ''}`;
  });
  writeFileSync(file, raw.join('\0'));
  return file;
}

const wrk = process.env.LOAD === 'own' ? undefined : /^wrk (?<version>\S+)/.exec(spawnSync('wrk', ['-v'], { encoding: 'utf8' }).stdout ?? '')?.groups?.version;

export const generator = wrk === undefined ? 'our own, in a worker thread' : `wrk ${wrk}, one thread`;

/** @throws when any answer was wrong or any connection broke: what such a server is good for need not be measured */
export async function load(orders: Orders): Promise<Measured> {
  const measured = wrk === undefined ? await byWorker(orders) : await byWrk(orders);
  const { answers, wrong, firstWrong, socketErrors } = measured;
  if (wrong > 0) throw new Error(`${orders.name}: ${wrong} of ${answers} answers were wrong, the first one: ${firstWrong}`);
  if (socketErrors > 0 || answers === 0) throw new Error(`${orders.name}: ${answers} answers and ${socketErrors} connections that broke or got no answer in time`);
  return measured;
}

async function byWrk({ port, clients, seconds, replay }: Orders): Promise<Measured> {
  const options = ['-t1', `-c${clients}`, `-d${Math.ceil(seconds)}s`, '--timeout', '30s', '-s', join(import.meta.dirname, 'replay.lua')];
  const { stdout, stderr } = await promisify(execFile)('wrk', [...options, `http://127.0.0.1:${port}`, '--', replay.file, String(replay.status), replay.text]);
  const line = stdout.split('\n').find((text) => text.startsWith('{'));
  if (line === undefined) throw new Error(`wrk has measured nothing: ${stdout}${stderr}`);
  return JSON.parse(line);
}

async function byWorker(orders: Orders): Promise<Measured> {
  const worker = new Worker(join(import.meta.dirname, 'replay.mjs'), { workerData: orders });
  // Both are listened for at once: the one may follow the other before anything else is run.
  const [[measured]]: [Measured[], unknown] = await Promise.all([once(worker, 'message'), once(worker, 'exit')]);
  if (!measured) throw new Error('the generator has measured nothing');
  return measured;
}
