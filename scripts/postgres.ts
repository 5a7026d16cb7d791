/**
 * A private PostgreSQL for `make start` and for the tests, kept in one directory:
 *
 *   postgres/data      the data, owned by the user that PostgreSQL runs as
 *   postgres/password  of the role gatehouse, generated together with the data
 *   postgres.log       the server's log since its last start
 *
 * It listens on a free port of 127.0.0.1 only, and stops when this process ends, even by a kill.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { findBinaries, reachableBinaries, unprivilegedUser } from './binaries.ts';
import {
  initialise,
  pidFile,
  prepareDirectory,
  readPidFile,
  role,
  runProgram,
  tail,
} from './data-directory.ts';
import type { ServerFiles } from './data-directory.ts';
import { errorCode, SetupError } from './setup-error.ts';
import type { Supervised } from './supervise.ts';
import { isAlive } from './temporary.ts';

export interface PostgresOptions {
  /** Holds all of these files. Created if it does not exist. */
  directory: string;
  /** False turns off what protects the data from a power failure, and nothing else: for tests. */
  durable: boolean;
  maxConnections?: number;
}

export interface PostgresServer {
  /** The URL of the database `postgres`. databaseUrl() derives that of another. */
  url: string;
  processId: number;
  /** Settles when the server ends, for whatever reason. */
  ended: Promise<number>;
  logTail(): string;
  stop(): Promise<void>;
  /** Lets this process end without stopping the server first. The server then stops by itself. */
  unref(): void;
}

const timeLimit = 60_000;

export async function startPostgres(options: PostgresOptions): Promise<PostgresServer> {
  const native = findBinaries();
  const directory = resolve(options.directory);
  const home = join(directory, 'postgres');
  const data = join(home, 'data');
  prepareDirectory(directory);
  await untilPreviousServerEnds({ data, home });
  const user = unprivilegedUser(data, dirname(directory));
  const binaries = reachableBinaries(native, user);
  const files: ServerFiles = {
    directory,
    home,
    data,
    log: join(directory, 'postgres.log'),
    user,
    binaries,
  };
  try {
    rmSync(files.log, { force: true });
    if (!existsSync(home)) await initialise(files, options.durable);
    return await launch(files, options);
  } catch (error) {
    binaries.remove();
    throw error;
  }
}

const serverUrl = (password: string, port: number) =>
  `postgres://${role}:${password}@127.0.0.1:${port}/postgres`;

export function databaseUrl(server: string, database: string): string {
  const url = new URL(server);
  url.pathname = `/${encodeURIComponent(database)}`;
  return url.href;
}

/** A client with one connection, for the few statements of the scripts. */
export function connect(url: string): postgres.Sql {
  return postgres(url, { max: 1, ssl: false, connect_timeout: 10, onnotice: () => undefined });
}

/** Runs `work` on a connection of its own, which is closed afterwards. */
export async function withConnection<T>(
  url: string,
  work: (sql: postgres.Sql) => Promise<T>,
): Promise<T> {
  const sql = connect(url);
  try {
    return await work(sql);
  } finally {
    await sql.end();
  }
}

async function launch(files: ServerFiles, options: PostgresOptions): Promise<PostgresServer> {
  const password = readFileSync(join(files.home, 'password'), 'utf8');
  for (let attempt = 1; ; attempt += 1) {
    const port = await freePort();
    const url = serverUrl(password, port);
    // "fast" shutdown: PostgreSQL rolls open transactions back and ends.
    const run = runProgram('INT', files, 'postgres', settings(port, options));
    const problem = await untilReady(url, run);
    if (problem === undefined) return running(files, url, run);

    await stop(run);
    // A simultaneous start may have been faster. Then the log may be that of the other server.
    await untilPreviousServerEnds(files);
    const log = readFileSync(files.log, 'utf8');
    const isTemporary = /could not bind|already exists|is empty|still in use/.test(log);
    const isOther = log.includes('incompatible with server');
    const advice = isOther ? '\nSee "Upgrade of a clone" in docs/deploy.md.' : '';
    if (!isTemporary || attempt === 5)
      throw new SetupError(`PostgreSQL did not start: ${problem}\n${tail(files.log)}${advice}`);
    await sleep(200 * attempt);
  }
}

function settings(port: number, { durable, maxConnections = 100 }: PostgresOptions): string[] {
  const values = [
    'listen_addresses=127.0.0.1',
    `port=${port}`,
    // The path of a socket is limited to about a hundred characters, that of a checkout is not.
    'unix_socket_directories=',
    `max_connections=${maxConnections}`,
    ...(durable ? [] : ['fsync=off']),
  ];
  return values.flatMap((value) => ['-c', value]);
}

function running(files: ServerFiles, url: string, run: Supervised): PostgresServer {
  return {
    url,
    processId: readPidFile(files.data)?.processId ?? 0,
    ended: run.ended,
    logTail: () => tail(files.log),
    stop: async () => {
      await stop(run);
      files.binaries.remove();
    },
    unref: () => run.unref(),
  };
}

async function stop(run: Supervised): Promise<void> {
  run.tell('INT');
  const limit = setTimeout(() => run.tell('QUIT'), timeLimit);
  await run.ended.catch(() => undefined);
  clearTimeout(limit);
}

/** @returns undefined when the server accepts connections, otherwise why it does not */
async function untilReady(url: string, run: Supervised): Promise<string | undefined> {
  let end: string | undefined;
  run.ended.then(
    (status) => {
      end = `it ended with status ${status}`;
    },
    (error: unknown) => {
      end = String(error);
    },
  );
  const deadline = performance.now() + timeLimit;
  while (end === undefined) {
    const answer = await tryConnecting(url);
    if (answer === 'ready') return undefined;
    if (!TEMPORARY.has(answer)) return `it rejects the connection (${answer})`;
    if (performance.now() > deadline) return `not ready after ${timeLimit / 1000} s`;
    await sleep(25);
  }
  return end;
}

// 57P03: starting up, recovering or stopping.
const TEMPORARY = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'CONNECTION_CLOSED',
  'CONNECT_TIMEOUT',
  '57P03',
]);

async function tryConnecting(url: string): Promise<string> {
  const sql = connect(url);
  try {
    await sql`select`;
    return 'ready';
  } catch (error) {
    return errorCode(error) ?? String(error);
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/**
 * PostgreSQL itself rejects data that another server uses. This reports it in terms of `make
 * start`, waits for a server that is shutting down, and removes a stale pid file that PostgreSQL
 * would take for that of a running server.
 */
async function untilPreviousServerEnds({
  data,
  home,
}: Pick<ServerFiles, 'data' | 'home'>): Promise<void> {
  const deadline = performance.now() + timeLimit;
  for (let file = readPidFile(data); file !== undefined; file = readPidFile(data)) {
    if (isStale(data, file.processId)) return rmSync(pidFile(data), { force: true });
    if (file.processId > 0 && !isAlive(file.processId)) return;
    if ((await answersAt(file.port, home)) || performance.now() > deadline) {
      const server = `its PostgreSQL is process ${file.processId}`;
      throw new SetupError(
        `Another "make start" is running in this directory (${server}). Stop it first.`,
      );
    }
    await sleep(50);
  }
}

/** A file that has been empty for seconds, or one whose number now belongs to another program. */
function isStale(data: string, processId: number): boolean {
  if (processId > 0) return isAlive(processId) && !isPostgres(processId);
  const made = statSync(pidFile(data), { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
  return Date.now() - made > 3000;
}

async function answersAt(port: number, home: string): Promise<boolean> {
  if (port === 0) return false;
  const password = readFileSync(join(home, 'password'), 'utf8');
  return (await tryConnecting(serverUrl(password, port))) === 'ready';
}

function isPostgres(processId: number): boolean {
  if (process.platform === 'linux') {
    try {
      return readFileSync(`/proc/${processId}/cmdline`, 'utf8').includes('postgres');
    } catch {
      return false;
    }
  }
  return spawnSync('ps', ['-p', String(processId), '-o', 'command='], {
    encoding: 'utf8',
  }).stdout.includes('postgres');
}

export function freePort(): Promise<number> {
  return new Promise((resolvePort, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        resolvePort(typeof address === 'object' && address !== null ? address.port : 0),
      );
    });
  });
}
