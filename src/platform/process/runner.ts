import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { compareClocks } from '../db/clock.ts';
import { distributedTables, isCurrent, migrate, requireCurrent } from '../db/schema.ts';
import { sitePage } from '../http/site/pages.ts';
import { createBodyReader } from '../http/wire/body-reader.ts';
import { close, createListener, listen } from '../http/wire/server.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { codeOf, describeError, StartupError, Unavailable } from '../runtime/errors.ts';
import { startJobs } from '../runtime/jobs.ts';
import { createLimiter } from '../runtime/limiter.ts';
import { createLineWriter, createLog, type Log, type LogLevel } from '../runtime/log.ts';
import { createMetrics, type Metrics } from '../runtime/metrics.ts';
import type { ConfiguredService, Service, ServiceStorage, Work } from './service.ts';
import type { Shared } from './settings.ts';
import { readVersion } from '../runtime/version.ts';

/**
 * Where the process writes: log lines and events as JSON on one stream, announcements as plain text
 * on the other.
 */
export interface Output {
  readonly stdout: Writable;
  readonly stderr: NodeJS.WritableStream;
  /** Rewrites the lines of the log for human readers. */
  readonly format?: ((line: string) => string) | undefined;
}

/** How many warnings and errors an operator can ask for. */
const MAX_RECENT = 20;

/** How many callers may wait for a password hash, in each of the two queues of a service. */
const HASHES_WAITING = 32;

export type ProcessContext = ReturnType<typeof createProcessContext>;

/** What all services of a process share. */
export function createProcessContext(shared: Shared, output: Output) {
  const lines = createLineWriter(output.stdout, output.format);
  const recent: string[] = [];
  const write = (line: string, level: LogLevel) => {
    lines.write(line);
    if (level === 'error' || level === 'warn') recent.push(line);
    if (recent.length > MAX_RECENT) recent.shift();
  };
  const version = readVersion();
  const metrics = createMetrics();
  const { gauge } = metrics;
  gauge('gatehouse_build_info', 'Always 1.', () => 1, { version, node: process.versions.node });
  const drain = { isOn: false };
  gauge('gatehouse_draining', 'Whether an operator drains the process: 1 or 0.', () =>
    Number(drain.isOn),
  );
  const hashing = createLimiter(shared.PASSWORD_HASHES, HASHES_WAITING, 'a password hash');
  gauge('gatehouse_password_hashes_running', 'Password hashes being computed.', hashing.running);
  gauge(
    'gatehouse_password_hashes_waiting',
    'Password hashes waiting for a slot.',
    hashing.waiting,
  );
  return {
    shared,
    output,
    lines,
    log: createLog(shared.LOG_LEVEL, write, { instance: shared.INSTANCE_NAME, version }),
    metrics,
    hashing,
    bodies: createBodyReader(),
    stopping: new AbortController(),
    /** Set by an operator: readiness fails, and requests are still served. */
    drain,
    /** The latest warnings and errors, as they were written. */
    recent,
  };
}

export type ServiceRunner = Awaited<ReturnType<typeof createServiceRunner>>;

/** Loads the modules of one service of the process, and then starts and stops it. */
export async function createServiceRunner(configured: ConfiguredService, context: ProcessContext) {
  const { name, host, logFields } = configured;
  const { shared, metrics } = context;
  const stopping = context.stopping.signal;
  const log = context.log.with({ service: name, ...logFields });
  const background: Work[] = [];
  let isPrepared = false;
  let preparing = Promise.resolve();
  const options = listenerOptions(context);
  const isServing = () => isPrepared && !options.isLeaving();
  const service = await configured.start(contextOf(context, log, isServing));
  const { routes, storage, beforeReady, startWork } = service;
  const jobs = await jobsOf(name, service, context);
  const listener = createListener({
    ...configured,
    ...options,
    log,
    routes,
  });

  /** May be called again after a failure. */
  async function tryToPrepare() {
    if (storage) await ensureSchema(storage, shared.MIGRATE);
    await beforeReady?.();
    if (stopping.aborted) return;
    background.push(startJobs(jobs, log, metrics));
    if (startWork) background.push(startWork());
    isPrepared = true;
    log.info('ready');
  }
  return {
    name,
    service,
    listener,
    isPrepared: () => isPrepared,
    /** @throws StartupError with what the operator can do, if the port is not available */
    async listen() {
      const port = await (configured.open ?? listen)(listener);
      log.info('listening', { host, port });
      return port;
    },
    /** Schema, `beforeReady`, background work. @throws StartupError if the database rejects it */
    prepare() {
      preparing = retryUntilAvailable(name, log, stopping, tryToPrepare);
      return preparing;
    },
    /** Requests in flight finish, background work stops at a safe point, then connections close. */
    async stop(graceMs = 0) {
      await Promise.all([
        close(listener, graceMs),
        ...background.map((work) => work.stop(graceMs)),
      ]);
      await storage?.database.close();
      // Without connections, this ends.
      await preparing.catch(() => {});
    },
  };
}

/** What all listeners of a process have in common. */
const listenerOptions = ({ shared, metrics, bodies, stopping, drain }: ProcessContext) => ({
  metrics,
  bodies,
  maxBodyBytes: shared.MAX_BODY_BYTES,
  trustedProxies: shared.TRUSTED_PROXIES,
  logProbes: shared.LOG_PROBES,
  logRequests: shared.LOG_REQUESTS,
  isLeaving: () => stopping.signal.aborted || drain.isOn,
  failurePage: () => sitePage(shared, 'not-found'),
});

const contextOf = (
  { shared, output, metrics, hashing }: ProcessContext,
  log: Log,
  isServing: () => boolean,
): ServiceContext => ({
  log,
  metrics,
  hashing: hashing.share(),
  site: shared,
  MAX_BODY_BYTES: shared.MAX_BODY_BYTES,
  isServing,
  announce(text) {
    output.stderr.write(`${text}\n`);
    // Without the credential: what a log holds, many can read (ASVS 16.2.5).
    log.info('a first credential was created: standard error says which');
  },
  handOut: async (name, secret) => handOut(shared.FIRST_CREDENTIALS_DIR, name, secret),
  stdout: output.stdout,
});

/**
 * To a file, if there is a directory for it: what is printed stays in the log of a container
 * (ASVS 16.2.5).
 * @returns the secret, or where it is now
 */
function handOut(directory: string | null, name: string, secret: string) {
  if (directory === null) return secret;
  const file = join(directory, name);
  try {
    // A new file, so that neither the mode nor a link of an old one matters.
    rmSync(file, { force: true });
    writeFileSync(file, `${secret}\n`, {
      mode: 0o600,
      flag: 'wx',
      flush: true,
    });
    return `in ${file}`;
  } catch (error) {
    throw new StartupError(
      `cannot write ${file} (${codeOf(error)}). Make FIRST_CREDENTIALS_DIR writable.`,
    );
  }
}

/** The jobs of a service, one that measures its database, and one that tells what it has seen. */
async function jobsOf(name: string, service: Service, { shared, metrics }: ProcessContext) {
  const { jobs = [], storage } = service;
  if (!storage) return jobs;
  const all = [...jobs, measuringJob(name, storage, metrics)];
  if (shared.NOTIFY === null) return all;
  const { noticeJobs } = await import('./notify.ts');
  return [...all, ...noticeJobs(name, service, shared.SITE_NAME, shared.NOTIFY, metrics)];
}

/** For alerts if the service gets no requests or probes. */
function measuringJob(service: string, { database }: ServiceStorage, { gauge }: Metrics) {
  let upAt = performance.now();
  let aheadMs = NaN;
  gauge(
    'gatehouse_database_up',
    'Whether the database could be read within the last 45 seconds: 1 or 0.',
    () => Number(performance.now() - upAt < 45_000),
    { service },
  );
  gauge(
    'gatehouse_database_clock_ahead_seconds',
    "By how much the clock of PostgreSQL is ahead of this machine's.",
    () => aheadMs / 1_000,
    { service },
  );
  return {
    name: 'measure the database',
    everySeconds: 15,
    async batch() {
      const clock = await database.readiness(compareClocks);
      aheadMs = clock.aheadMs;
      upAt = performance.now();
    },
  };
}

async function ensureSchema({ database, schema }: ServiceStorage, mayMigrate: boolean) {
  const tables = await distributedTables(database, schema);
  const misplaced = tables.find((table) => table !== schema.distributable);
  if (misplaced) {
    throw new StartupError(
      `Citus distributes ${misplaced}, whose locks and unique indexes need one node: call undistribute_table or citus_schema_undistribute.`,
    );
  }
  if (await isCurrent(database, schema)) return;
  await (mayMigrate ? migrate : requireCurrent)(database, schema);
}

/**
 * Repeats the work, without limit, until the database is available.
 * @throws StartupError if the database rejects the service
 */
async function retryUntilAvailable(
  name: string,
  log: Log,
  stopping: AbortSignal,
  work: () => Promise<void>,
) {
  for (let pauseMs = 250; !stopping.aborted; pauseMs = Math.min(pauseMs * 2, 1_000)) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      if (stopping.aborted) return;
      if (!error.isTemporary) throw new StartupError(`${name}: ${error.message}.`);
      log.warn('not ready yet, trying again', { pause_ms: pauseMs, ...describeError(error) });
      await sleep(pauseMs, undefined, { signal: stopping }).catch(() => {});
    }
  }
}
