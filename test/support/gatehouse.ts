/** The real services in this process: a real PostgreSQL behind them, real sockets before them. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { appendFileSync } from 'node:fs';
import { type Agent, type IncomingMessage, request, type Server } from 'node:http';
import { PassThrough } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { after } from 'node:test';
import type { Sql } from 'postgres';
import type { ConfiguredService } from '../../src/platform/process/service.ts';
import type { Listener } from '../../src/platform/http/wire/server.ts';
import { startServices } from '../../src/platform/process/start.ts';
import type { Job } from '../../src/platform/runtime/jobs.ts';
import type { LimiterShare } from '../../src/platform/runtime/limiter.ts';
import { configure, type ServiceName } from '../../src/serve.ts';
import { createDatabase } from './database.ts';
import { createLines } from './lines.ts';
import { latch } from './until.ts';
import type { Owner } from './owner.ts';

export const SERVER_SECRET = 'server-secret-for-tests-0123456789abcdef';
export const AUTH_TOKEN = 'auth-token-for-tests-0123456789abcdefghi';
export const ADMIN_PASSWORD = 'correct-horse-battery-staple';
export const WEBHOOK_TOKEN = 'webhook-token-for-tests-0123456789abcdef';

/**
 * What every service needs to serve, on free ports and with passwords that cost next to nothing.
 */
export function variables(databaseUrl?: string): Record<string, string> {
  return {
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
    IDENTITY_HOST: '127.0.0.1',
    SECRETS_HOST: '127.0.0.1',
    WEBHOOK_HOST: '127.0.0.1',
    IDENTITY_PORT: '0',
    SECRETS_PORT: '0',
    WEBHOOK_PORT: '0',
    SERVER_SECRET,
    AUTH_TOKEN,
    ADMIN_PASSWORD,
    WEBHOOK_TOKEN,
    PASSWORD_SCRYPT: 'ln=4,r=8,p=1',
    LOG_PROBES: 'on',
    SHUTDOWN_DELAY: '0',
  };
}

export interface Gatehouse {
  /** `http://127.0.0.1:…` of each service that was asked for. */
  readonly url: Readonly<Record<ServiceName | 'metrics', string>>;
  /** Everything written so far. */
  stdout(): string;
  stderr(): string;
  /** The log lines written so far, parsed. */
  log(): Array<Record<string, unknown>>;
  /** For `callsOf`. */
  listenerOf(service: ServiceName): Listener;
  /** Runs the background jobs of this name until nothing is left, without waiting for their time. */
  runJobs(name: RegExp): Promise<void>;
  /** Lets hashes of passwords that begin wait. @returns a function that lets them go on */
  holdHashes(): () => void;
  /** The services for which hashes have begun so far, in this order. */
  hashed(): readonly string[];
  /** Resolves when the whole shutdown has ended. */
  stop(): Promise<void>;
}

/**
 * Starts services on free ports; they stop when their owner (a test's context, or node:test itself
 * at a file's top level) ends. Passwords cost next to nothing here, unless the environment says
 * otherwise.
 * @param databaseUrl left out for the plain webhook receiver
 * @param answerMs how long a request may wait for its reply; at least as long may it take to arrive
 */
export async function startGatehouse(
  owner: Owner,
  services: readonly ServiceName[],
  databaseUrl: string | undefined,
  environment: Readonly<Record<string, string | undefined>> = {},
  until: 'ready' | 'listening' = 'ready',
  answerMs?: number,
): Promise<Gatehouse> {
  const output = createLines(parseLine);
  let errors = '';
  const stdout = new PassThrough().on('data', (text) => output.write(String(text)));
  const stderr = new PassThrough().on('data', (text) => {
    errors += String(text);
  });
  const given = { ...variables(databaseUrl), METRICS_PORT: '0', ...environment };
  const configuration = await configure(services, 'serve', given);
  const log = output.parsed;
  const limit = answerMs === undefined ? {} : { answerMs };
  const inside = createInside();
  const all = configuration.services.map((service) => inside.watch({ ...service, ...limit }));
  const gatehouse = await startServices({ ...configuration, services: all }, { stdout, stderr });
  const listenerOf = (service: ServiceName) =>
    gatehouse.listenerOf(service) ?? assert.fail(`no ${service}`);
  for (const service of services) raiseTimeouts(listenerOf(service).server, answerMs);
  let isStopped = false;
  const stop = () => {
    isStopped = true;
    return gatehouse.stop();
  };
  owner.after(async () => {
    if (!isStopped) await noteCodes(gatehouse.ports.metrics);
    await stop();
  });
  const [message, count] =
    until === 'ready' ? ['ready', services.length] : ['listening', services.length + 1];
  const seen = async () => {
    while (log().filter((line) => line.message === message).length < count)
      await once(stdout, 'data');
  };
  const failed = gatehouse.ready.then(() => new Promise<never>(() => {}));
  failed.catch(() => {});
  await Promise.race([seen(), failed]);
  const url = (name: keyof Gatehouse['url']) => `http://127.0.0.1:${gatehouse.ports[name]}`;
  return {
    url: {
      identity: url('identity'),
      secrets: url('secrets'),
      webhook: url('webhook'),
      metrics: url('metrics'),
    },
    stdout: output.text,
    stderr: () => errors,
    log,
    listenerOf,
    runJobs: inside.runJobs,
    holdHashes: inside.holdHashes,
    hashed: () => inside.hashed,
    stop,
  };
}

const parseLine = (line: string): Array<Record<string, unknown>> =>
  line === '' ? [] : [JSON.parse(line)];

/** No limit of a connection is shorter than that of its replies. */
function raiseTimeouts(server: Server, ms = 0): void {
  for (const limit of ['headersTimeout', 'requestTimeout', 'timeout'] as const)
    server[limit] = Math.max(server[limit], ms);
}

/** Whoever runs it next waits for the run before. */
function oneAtATime(job: Job): Job {
  let last: Promise<unknown> = Promise.resolve();
  const batch = () => {
    const run = last.then(job.batch);
    last = run.catch(() => {});
    return run;
  };
  return { ...job, batch };
}

/** Lets a test decide when the services do what they do in their own time. */
function createInside() {
  const jobs: Job[] = [];
  const hashed: string[] = [];
  let held = Promise.resolve();
  const watchHashes = (limiter: LimiterShare, service: string): LimiterShare => ({
    run: (work, hasPriority) =>
      limiter.run(async (hasWaited) => {
        hashed.push(service);
        await held;
        return work(hasWaited);
      }, hasPriority),
  });
  return {
    hashed,
    watch: (service: ConfiguredService): ConfiguredService => ({
      ...service,
      async start(context) {
        const hashing = watchHashes(context.hashing, service.name);
        const started = await service.start({ ...context, hashing });
        const own = (started.jobs ?? []).map(oneAtATime);
        jobs.push(...own);
        return { ...started, jobs: own };
      },
    }),
    async runJobs(name: RegExp) {
      const chosen = jobs.filter((job) => name.test(job.name));
      if (chosen.length === 0) throw new Error(`no job is called ${String(name)}`);
      for (const job of chosen) while (await job.batch());
    },
    holdHashes() {
      const { opened, open } = latch();
      held = opened;
      return open;
    },
  };
}

/** Services on a database of their own. */
export interface Launched extends Gatehouse, Readonly<Gatehouse['url']> {
  readonly databaseUrl: string;
  /** One connection, for looking at what is stored. */
  readonly sql: Sql;
  drop(): Promise<void>;
}

/** As `startGatehouse`. Without an owner, they live as long as the tests of the file. */
export async function launch(
  services: readonly ServiceName[],
  settings: Readonly<Record<string, string | undefined>> = {},
  owner: Owner = { after },
  answerMs?: number,
): Promise<Launched> {
  const { url: databaseUrl, sql, drop } = await createDatabase(owner);
  const gatehouse = await startGatehouse(owner, services, databaseUrl, settings, 'ready', answerMs);
  return { ...gatehouse, ...gatehouse.url, databaseUrl, sql, drop };
}

/** Notes which errors the routes have sent, for `scripts/reply-codes.ts`. */
async function noteCodes(port: number | undefined): Promise<void> {
  const { TEST_CODES: file } = process.env;
  if (file === undefined || port === undefined) return;
  // After a failed start, there is nothing to note.
  const answer = await ask('GET', `http://127.0.0.1:${port}/metrics`).catch(() => null);
  const text = answer?.text ?? '';
  const lines = text.match(/^gatehouse_requests_refused_total\{.*\n/gm) ?? [];
  appendFileSync(file, lines.join(''));
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /**
   * The parsed body, or undefined where it is empty or no JSON. Tests look into it as they like.
   */
  readonly json: any;
}

/** One request. `body` may be a value (sent as JSON) or text and bytes (sent as they are). */
export interface AskOptions {
  readonly bearer?: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly agent?: Agent;
}

/** Not `fetch`, which takes several times the processor time of the request itself. */
export async function ask(method: string, url: string, options: AskOptions = {}): Promise<Answer> {
  const { headers, content } = encode(options);
  const sent = request(url, { method, headers, agent: options.agent });
  sent.end(content);
  const [response]: IncomingMessage[] = await once(sent, 'response');
  if (!response) throw new Error('no response');
  const text = await readText(response);
  return { status: response.statusCode ?? 0, headers: headersOf(response), ...parse(text) };
}

/** What the head and the body of a request are. */
export function encode({ bearer, body, headers }: AskOptions) {
  const isRaw = typeof body === 'string' || body instanceof Uint8Array;
  const content = isRaw ? body : JSON.stringify(body);
  return {
    content,
    headers: {
      'user-agent': 'tests',
      ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(content === undefined ? {} : { 'content-length': Buffer.byteLength(content) }),
      ...headers,
    },
  };
}

export function parse(text: string): Pick<Answer, 'text' | 'json'> {
  try {
    return { text, json: JSON.parse(text) };
  } catch {
    return { text, json: undefined };
  }
}

/** A failed assertion shows the reply, unless it says what it is about. */
export function assertStatus(
  { status, text }: Pick<Answer, 'status' | 'text'>,
  expected: number,
  what = text,
): void {
  assert.equal(status, expected, what);
}

function headersOf({ rawHeaders }: IncomingMessage): Headers {
  const headers = new Headers();
  for (let index = 0; index < rawHeaders.length; index += 2)
    headers.append(rawHeaders[index] ?? '', rawHeaders[index + 1] ?? '');
  return headers;
}

/** Logs in and returns the session token. */
export async function logIn(
  identityUrl: string,
  username = 'admin',
  password = ADMIN_PASSWORD,
): Promise<string> {
  const answer = await ask('POST', `${identityUrl}/api/auth/login`, {
    body: { username, password },
  });
  if (answer.status !== 200) throw new Error(`login answered ${answer.status}: ${answer.text}`);
  return answer.json.data.session;
}
