import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Writable } from 'node:stream';
import { migrate, type Migration, requireCurrent } from './db/migrate.ts';
import type { Database } from './db/pool.ts';
import { codeOf } from './db/retry.ts';
import { anonymous, bindRoutes, route, type RouteMatcher, routeDefaults } from './http/call.ts';
import { livez } from './http/probes.ts';
import { createBodyReader } from './http/receive.ts';
import { createListener, type Listener } from './http/server.ts';
import type { ServiceContext } from './runtime/context.ts';
import { describeError, StartupError, Unavailable } from './runtime/errors.ts';
import { type Job, startJobs } from './runtime/jobs.ts';
import { createLimiter } from './runtime/limiter.ts';
import { createLineWriter, createLog, type Log } from './runtime/log.ts';
import { createMetrics } from './runtime/metrics.ts';
import type { Environment, Variables } from './runtime/variables.ts';
import {
  type Address, type ConfiguredService, type ProcessSettings, readSettings, type ServiceReader, serviceReader,
  type ServiceSettings,
} from './settings.ts';

/** What a service's `start` returns. */
export interface Service {
  readonly routes: RouteMatcher;
  /** Null for a service that stores nothing. */
  readonly storage: Readonly<{ database: Database; schema: string; migrations: readonly Migration[] }> | null;
  /** What must happen exactly once, whichever of any number of replicas does it. */
  readonly firstRun: () => Promise<void>;
  readonly jobs: readonly Job[];
  /** Continuous work that begins once the service is ready. */
  readonly startWork?: () => { stop(graceMs: number): Promise<void> };
}

type Open = (context: ServiceContext) => Promise<Service>;

/** The services. A service's modules are loaded if it is served, its settings always, so that their names are known. */
export const SERVICES = {
  identity: register(() => import('./identity/settings.ts'), () => import('./identity/start.ts')),
  secrets: register(() => import('./secrets/settings.ts'), () => import('./secrets/start.ts')),
  webhook: register(() => import('./webhook/settings.ts'), () => import('./webhook/start.ts')),
} as const;

export type ServiceName = keyof typeof SERVICES;
export const SERVICE_NAMES: readonly string[] = Object.keys(SERVICES);

function register<V extends Variables, S>(
  settings: () => Promise<ServiceSettings<V, S>>,
  modules: () => Promise<{ readonly start: (settings: S, context: ServiceContext) => Service | Promise<Service> }>,
) {
  return async (name: string): Promise<ServiceReader<Open>> =>
    serviceReader(name, await settings(), (values) => async (context) => (await modules()).start(values, context));
}

export type Configuration = ReturnType<typeof readSettings<Open>>;

/** Reads the settings of the named services. @throws ConfigurationError */
export async function configure(
  names: readonly string[], purpose: 'serve' | 'administer', environment?: Environment,
): Promise<Configuration> {
  const readers = await Promise.all(Object.entries(SERVICES).map(([name, load]) => load(name)));
  return readSettings(readers, names, purpose, environment);
}

/** Where the process writes: log lines and events as JSON on one stream, announcements as plain text on the other. */
export interface Output {
  readonly stdout: Writable;
  readonly stderr: NodeJS.WritableStream;
}

/** What exists once in a process. */
type ProcessContext = ReturnType<typeof createProcessContext>;

/** How long a shutdown may last after SHUTDOWN_GRACE, whatever hangs. */
const SHUTDOWN_LATE_MS = 750;

/** How many callers of one service may wait for a password hash. */
const HASHES_WAITING = 32;

function createProcessContext(settings: ProcessSettings, output: Output) {
  const lines = createLineWriter(output.stdout);
  const metrics = createMetrics();
  const hashing = createLimiter(settings.passwordHashes, HASHES_WAITING, 'a password hash');
  metrics.gauge('gatehouse_password_hashes_running', 'Password hashes being computed.', {}, () => hashing.running);
  metrics.gauge('gatehouse_password_hashes_waiting', 'Password hashes waiting for a slot.', {}, () => hashing.waiting);
  const log = createLog(settings.logLevel, lines.write);
  const state = { isStopping: false };
  return { settings, output, log, lines, metrics, hashing, state, readBody: createBodyReader() };
}

/** A service in this process. */
type RunningService = ReturnType<typeof createRunning>;

/**
 * Runs the configured services until `signal` fires, then shuts down: readiness fails, listeners close, requests in
 * flight and background work finish within the grace period, and then database connections close.
 * @throws StartupError if a port is in use, or if the database rejects us in a way that waiting does not cure
 */
export async function serve(configuration: Configuration, output: Output, signal: AbortSignal): Promise<void> {
  const { process: settings, services } = configuration;
  const context = createProcessContext(settings, output);
  const { log, lines } = context;
  // However this process ends, short of kill -9, its last lines are written.
  process.once('exit', lines.flush);
  for (const warning of settings.warnings) log.warn(warning);
  const metrics = settings.metrics && metricsListener(context, settings.metrics);
  const running = services.map((service) => createRunning(service, context));
  // The signal may have come while modules were loaded.
  const stopped: Promise<unknown> = signal.aborted ? Promise.resolve() : once(signal, 'abort');
  let prepared: Promise<unknown> = Promise.resolve();
  try {
    // Listeners open first: the process is alive, and says so, while modules load and databases are dialed.
    await metrics?.listen();
    for (const service of running) await service.listen();
    for (const service of running) await service.load();
    prepared = Promise.all(running.map((service) => prepareUntilDone(service, context, signal)));
    await Promise.race([stopped, prepared.then(() => stopped)]);
    log.info('shutting down');
  } finally {
    context.state.isStopping = true;
    const graceMs = settings.shutdownGraceMs;
    const stopAll = async () => {
      await Promise.all(running.map((service) => service.stop(graceMs)));
      // Without connections it cannot go on.
      await prepared.catch(() => {});
      await metrics?.listener.close(graceMs);
    };
    const late = new AbortController();
    const limit = sleep(graceMs + SHUTDOWN_LATE_MS, 'late', { signal: late.signal }).catch(() => {});
    const isLate = (await Promise.race([stopAll(), limit])) === 'late';
    if (isLate) log.warn('shutdown took too long: work is left unfinished');
    late.abort();
    lines.flush();
    process.off('exit', lines.flush);
  }
}

/** Brings the schemas of the configured services up to date. @returns how many steps were applied, by service */
export async function migrateAll(configuration: Configuration, output: Output): Promise<ReadonlyMap<string, number>> {
  const context = createProcessContext(configuration.process, output);
  const applied = new Map<string, number>();
  for (const service of configuration.services.map((one) => createRunning(one, context))) {
    applied.set(service.name, await service.migrate().finally(() => service.stop()));
  }
  return applied;
}

function createRunning(configured: ConfiguredService<Open>, context: ProcessContext) {
  const { name, host, port, style, logFields, use: open } = configured;
  const { settings, metrics, hashing, output, state } = context;
  let isPrepared = false;
  const background: Array<{ stop(graceMs: number): Promise<void> }> = [];
  const log = context.log.with({ service: name, ...logFields });
  const serviceContext: ServiceContext = {
    log,
    metrics,
    hashing: hashing.share(),
    isServing: () => isPrepared && !state.isStopping,
    announce: (line) => void output.stderr.write(`${line}\n`),
    handOut: (file, secret) => handOut(settings.firstCredentialsDir, file, secret),
    stdout: output.stdout,
  };
  let loading: Promise<Service> | null = null;
  const load = () => (loading ??= open(serviceContext));
  const bringUpToDate = async () => {
    const { storage } = await load();
    return storage ? migrate(storage.database, storage.schema, storage.migrations) : 0;
  };
  const routes = async () => (await load()).routes;
  const listener = createListener({ ...listenerDefaults(context), style, name, host, port, routes, log });
  return {
    name,
    listen: () => listen(name, configured, log, listener),
    /** Loads its modules, which `/livez` does not need. */
    load,
    /** @returns how many steps were applied */
    migrate: bringUpToDate,
    /** Schema, first run, background work. May be called again after a failure. */
    async prepare(): Promise<void> {
      const { storage, firstRun, jobs, startWork } = await load();
      if (settings.migrate) await bringUpToDate();
      else if (storage) await requireCurrent(storage.database, storage.schema, storage.migrations);
      await firstRun();
      if (state.isStopping) return;
      background.push(startJobs(jobs, log), ...(startWork ? [startWork()] : []));
      isPrepared = true;
      log.info('ready');
    },
    /** Requests in flight finish, background work stops at a safe point, then connections close. */
    async stop(graceMs = 0): Promise<void> {
      await Promise.all([listener.close(graceMs), ...background.map((one) => one.stop(graceMs))]);
      await (await loading)?.storage?.database.close();
    },
  };
}

/** @returns the secret, or where it is: what is printed stays in the log of a container (ASVS 16.2.5) */
function handOut(directory: string | null, name: string, secret: string): string {
  if (directory === null) return secret;
  const file = join(directory, name);
  try {
    // A new file, so that neither the mode nor a link of an old one matters.
    rmSync(file, { force: true });
    writeFileSync(file, `${secret}\n`, { mode: 0o600, flag: 'wx', flush: true });
    return `in ${file}`;
  } catch (error) {
    throw new StartupError(`cannot write ${file} (${codeOf(error)}). Make FIRST_CREDENTIALS_DIR writable.`);
  }
}

/** Waits for a database that is in passing trouble at the start, without limit. One that rejects us ends the start. */
async function prepareUntilDone(service: RunningService, context: ProcessContext, signal: AbortSignal): Promise<void> {
  const { log, state } = context;
  for (let pause = 250; !state.isStopping; pause = Math.min(pause * 2, 5_000)) {
    try {
      return await service.prepare();
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      if (state.isStopping) return;
      if (!error.isTemporary) throw new StartupError(`${service.name}: ${error.message}.`);
      log.warn('not ready yet, trying again', { service: service.name, pause_ms: pause, ...describeError(error) });
      await sleep(pause, undefined, { signal }).catch(() => {});
    }
  }
}

/** What all listeners of a process have in common. */
const listenerDefaults = ({ settings: { maxBodyBytes, trustedProxies }, metrics, readBody }: ProcessContext) =>
  ({ maxBodyBytes, trustedProxies, metrics, readBody });

/** @throws StartupError with what the operator can do, if the port cannot be had */
async function listen(name: string, { host, port }: Address, log: Log, listener: Listener): Promise<void> {
  try {
    log.info('listening', { host, port: await listener.listen() });
  } catch (error) {
    const code = codeOf(error);
    const prefix = name.toUpperCase();
    const advice: Readonly<Record<string, string>> = {
      EADDRINUSE: `port ${port} is in use. Set ${prefix}_PORT`,
      EACCES: `this user may not use port ${port}. Set ${prefix}_PORT to a port above 1023`,
      EADDRNOTAVAIL: `this machine does not have the address ${host}. Set ${prefix}_HOST`,
    };
    const reason = advice[code] ?? 'check its host and port';
    throw new StartupError(`${name} cannot listen on ${host}:${port} (${code}): ${reason}.`);
  }
}

/** A listener of its own, because metrics are for the operator and not for the services' callers. */
function metricsListener(context: ProcessContext, address: Address) {
  const name = 'metrics';
  const log = context.log.with({ service: name });
  const row = route({
    ...routeDefaults, method: 'GET', pattern: '/metrics', summary: 'Prometheus metrics', guard: anonymous, reply: null,
    handle: async () => ({ text: context.metrics.text(), contentType: 'text/plain; version=0.0.4; charset=utf-8' }),
  });
  const routes = async () => bindRoutes([row, livez], null);
  const style = { envelope: 'bare', unavailable: 'unavailable' } as const;
  const listener = createListener({ ...listenerDefaults(context), ...address, name, routes, style, log });
  return { listener, listen: () => listen(name, address, log, listener) };
}
