import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { distributedTables, isCurrent, migrate, requireCurrent } from '../db/schema.ts';
import { sitePage } from '../http/site/pages.ts';
import { createBodyReader } from '../http/wire/body-reader.ts';
import { close, createListener, listen } from '../http/wire/server.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { codeOf, describeError, StartupError, Unavailable } from '../runtime/errors.ts';
import { type Job, startJobs } from '../runtime/jobs.ts';
import { createLimiter } from '../runtime/limiter.ts';
import { createLineWriter, createLog, type Log } from '../runtime/log.ts';
import { type Metrics, noMetrics } from '../runtime/metrics.ts';
import type { ConfiguredService, Service, ServiceStorage, Work } from './service.ts';
import type { Shared } from './settings.ts';

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

/** How many callers may wait for a password hash, in each of the two queues of a service. */
const HASHES_WAITING = 32;

export type ProcessContext = Awaited<ReturnType<typeof createProcessContext>>;

/** What all services of a process share. */
export async function createProcessContext(shared: Shared, output: Output) {
  const lines = createLineWriter(output.stdout, output.format);
  const log = createLog(shared.LOG_LEVEL, lines.write);
  const prometheus = shared.METRICS_PORT === null ? null : await import('../runtime/prometheus.ts');
  const metrics = prometheus?.createMetrics() ?? noMetrics;
  const hashing = createLimiter(shared.PASSWORD_HASHES, HASHES_WAITING, 'a password hash');
  metrics.gauge(
    'gatehouse_password_hashes_running',
    'Password hashes being computed.',
    hashing.running,
  );
  metrics.gauge(
    'gatehouse_password_hashes_waiting',
    'Password hashes waiting for a slot.',
    hashing.waiting,
  );
  const stopping = new AbortController();
  const bodies = createBodyReader();
  return {
    shared,
    output,
    lines,
    log,
    metrics,
    hashing,
    bodies,
    stopping,
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
  const isServing = () => isPrepared && !stopping.aborted;
  const service = await configured.start(contextOf(context, log, isServing));
  const { routes, storage, beforeReady, startWork } = service;
  const listener = createListener({
    ...configured,
    log,
    metrics,
    routes,
    stopping,
    bodies: context.bodies,
    maxBodyBytes: shared.MAX_BODY_BYTES,
    trustedProxies: shared.TRUSTED_PROXIES,
    logProbes: shared.LOG_PROBES,
    failurePage: () => sitePage(shared, 'not-found'),
  });

  /** May be called again after a failure. */
  async function tryToPrepare() {
    if (storage) await ensureSchema(storage, shared.MIGRATE);
    await beforeReady?.();
    if (stopping.aborted) return;
    background.push(startJobs(withMeasuring(name, service, metrics), log, metrics));
    if (startWork) background.push(startWork());
    isPrepared = true;
    log.info('ready');
  }
  return {
    name,
    service,
    /** @throws StartupError with what the operator can do, if the port is not available */
    async listen() {
      const port = await listen(listener);
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

/** The jobs of a service, and one for alerts if it gets no requests or probes. */
function withMeasuring(
  name: string,
  { storage, jobs }: Service,
  { gauge }: Metrics,
): readonly Job[] {
  if (!storage) return jobs;
  const { database, schema } = storage;
  let upAt = performance.now();
  gauge(
    'gatehouse_database_up',
    'Whether the database could be read within the last 45 seconds: 1 or 0.',
    () => Number(performance.now() - upAt < 45_000),
    { service: name },
  );
  const measuring = {
    name: 'measure the database',
    everySeconds: 15,
    async batch() {
      if (await isCurrent(database, schema)) upAt = performance.now();
    },
  };
  return [...jobs, measuring];
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
