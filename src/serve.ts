import { setTimeout as sleep } from 'node:timers/promises';
import type { Writable } from 'node:stream';
import { migrate, type Migration, requireCurrent } from './db/migrate.ts';
import type { Database } from './db/pool.ts';
import { anonymous, bindRoutes, route, type RouteMatcher, routeDefaults } from './http/call.ts';
import { livez } from './http/probes.ts';
import { createListener, type Listener } from './http/server.ts';
import type { ServiceContext } from './runtime/context.ts';
import { describeError, Overloaded, StartupError, Unavailable } from './runtime/errors.ts';
import { type Job, startJobs } from './runtime/jobs.ts';
import { createLimiter, type Limiter } from './runtime/limiter.ts';
import { createLineWriter, createLog, type LineWriter, type Log } from './runtime/log.ts';
import { createMetrics, type Metrics } from './runtime/metrics.ts';
import type { Environment, Variables } from './runtime/variables.ts';
import {
  type ConfiguredService, type Place, type ProcessSettings, readSettings, type ServiceReader, serviceReader, type ServiceSettings,
} from './settings.ts';

/** What a service's `start` returns. */
export interface Service {
  readonly routes: RouteMatcher;
  /** Null for a service that stores nothing. */
  readonly storage: { readonly database: Database; readonly schema: string; readonly migrations: readonly Migration[] } | null;
  /** What must happen exactly once, whichever of any number of replicas does it. */
  readonly firstRun: () => Promise<void>;
  readonly jobs: readonly Job[];
  /** Continuous work that begins once the service is ready. */
  readonly startWork?: () => { stop(): Promise<void> };
}

type Start<S> = (settings: S, context: ServiceContext) => Service;
type Open = (context: ServiceContext) => Promise<Service>;

/** The services. Only those that are served are loaded; the settings of all of them, so that no variable is unknown. */
export const SERVICES = {
  identity: () => register('identity', import('./identity/settings.ts'), async () => (await import('./identity/start.ts')).start),
  secrets: () => register('secrets', import('./secrets/settings.ts'), async () => (await import('./secrets/start.ts')).start),
  webhook: () => register('webhook', import('./webhook/settings.ts'), async () => (await import('./webhook/start.ts')).start),
} as const;

export type ServiceName = keyof typeof SERVICES;
export const SERVICE_NAMES: readonly string[] = Object.keys(SERVICES);

async function register<V extends Variables, S>(
  name: string,
  settings: Promise<ServiceSettings<V, S>>,
  load: () => Promise<Start<S>>,
): Promise<ServiceReader<Open>> {
  return serviceReader(name, await settings, (values) => async (context) => (await load())(values, context));
}

export const serviceReaders = (): Promise<Array<ServiceReader<Open>>> => Promise.all(Object.values(SERVICES).map((load) => load()));

/** The settings of the named services, or of all. @throws ConfigurationError */
export async function configure(names: readonly string[], purpose: 'serve' | 'administer', environment?: Environment): Promise<Configuration> {
  return readSettings(await serviceReaders(), names, purpose, environment);
}

export type Configuration = ReturnType<typeof readSettings<Open>>;

/** Where the process writes: log lines and events as JSON on one stream, announcements as plain text on the other. */
export interface Output {
  readonly stdout: Writable;
  readonly stderr: NodeJS.WritableStream;
}

/** What exists once in a process. */
interface ProcessContext {
  readonly settings: ProcessSettings;
  readonly output: Output;
  readonly log: Log;
  readonly lines: LineWriter;
  readonly metrics: Metrics;
  readonly hashing: Limiter;
  isStopping: boolean;
}

/** How many callers may wait for a password hash. */
const HASHES_WAITING = 32;

function createProcessContext(settings: ProcessSettings, output: Output): ProcessContext {
  const lines = createLineWriter(output.stdout);
  const metrics = createMetrics();
  const hashing = createLimiter(settings.passwordHashes, HASHES_WAITING, 'a password hash');
  metrics.gauge('gatehouse_password_hashes_running', 'Password hashes being computed.', {}, () => hashing.running);
  metrics.gauge('gatehouse_password_hashes_waiting', 'Password hashes waiting for a slot.', {}, () => hashing.waiting);
  return { settings, output, log: createLog(settings.logLevel, lines.write), lines, metrics, hashing, isStopping: false };
}

/** A service in this process. */
interface RunningService {
  readonly name: string;
  readonly listener: Listener;
  listen(): Promise<void>;
  /** Loads its modules, which `/livez` does not need. */
  load(): Promise<Service>;
  /** @returns how many steps were applied */
  migrate(): Promise<number>;
  /** Schema, first run, background work. May be called again after a failure. */
  prepare(): Promise<void>;
  /** Background work stops at a safe point, then connections close. */
  stop(): Promise<void>;
}

/**
 * Runs the configured services until `signal` fires, then shuts down in order: readiness fails, listeners close, requests
 * in flight finish, background work stops, connections close.
 * @throws StartupError if a port is taken, or if the database refuses in a way that waiting does not cure
 */
export async function serve({ process: settings, services }: Configuration, output: Output, signal: AbortSignal): Promise<void> {
  const context = createProcessContext(settings, output);
  const { log, lines } = context;
  // However this process ends, short of kill -9, its last lines are written.
  process.once('exit', lines.flush);
  for (const warning of settings.warnings) log.warn(warning);
  const metrics = settings.metrics && metricsListener(context, settings.metrics);
  const running = services.map((service) => createRunning(service, context));
  // The signal may have come while modules were loaded.
  const stopped = new Promise<void>((resolve) => (signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true })));
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
    context.isStopping = true;
    await Promise.all(running.map(({ listener }) => listener.close(settings.shutdownGraceMs)));
    await Promise.all(running.map((service) => service.stop()));
    // Without connections it cannot go on.
    await prepared.catch(() => {});
    await metrics?.listener.close(settings.shutdownGraceMs);
    lines.flush();
    process.off('exit', lines.flush);
  }
}

/** Brings the schemas of the configured services up to date. @returns how many steps were applied, by service */
export async function migrateAll({ process: settings, services }: Configuration, output: Output): Promise<ReadonlyMap<string, number>> {
  const context = createProcessContext(settings, output);
  const applied = new Map<string, number>();
  for (const service of services.map((one) => createRunning(one, context))) {
    applied.set(service.name, await service.migrate().finally(() => service.stop()));
  }
  return applied;
}

function createRunning({ name, host, port, style, logFields, use: open }: ConfiguredService<Open>, process: ProcessContext): RunningService {
  const { settings, metrics, hashing, output } = process;
  let isPrepared = false;
  const background: Array<{ stop(): Promise<void> }> = [];
  const log = process.log.with({ service: name, ...logFields });
  const context: ServiceContext = {
    log,
    metrics,
    hashing,
    isServing: () => isPrepared && !process.isStopping,
    announce: (line) => void output.stderr.write(`${line}\n`),
    print: (line) => print(output, line),
  };
  let loading: Promise<Service> | null = null;
  const load = () => (loading ??= open(context));
  const bringUpToDate = async () => {
    const { storage } = await load();
    return storage ? migrate(storage.database, storage.schema, storage.migrations) : 0;
  };
  const routes = async () => (await load()).routes;
  const listener = createListener({ ...listenerDefaults(process), style, name, host, port, routes, log });
  return {
    name,
    listener,
    listen: () => listen({ name, host, port, log }, listener),
    load,
    migrate: bringUpToDate,
    async prepare() {
      const { storage, firstRun, jobs, startWork } = await load();
      if (settings.migrate) await bringUpToDate();
      else if (storage) await requireCurrent(storage.database, storage.schema, storage.migrations);
      await firstRun();
      if (process.isStopping) return;
      background.push(startJobs(jobs, log), ...(startWork ? [startWork()] : []));
      isPrepared = true;
      log.info('ready');
    },
    async stop() {
      await Promise.all(background.map((one) => one.stop()));
      await (await loading)?.storage?.database.close();
    },
  };
}

/** A database that is away at the start is waited for, however long; one that refuses us is not. */
async function prepareUntilDone(service: RunningService, process: ProcessContext, signal: AbortSignal): Promise<void> {
  for (let pause = 250; !process.isStopping; pause = Math.min(pause * 2, 5_000)) {
    try {
      return await service.prepare();
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      if (process.isStopping) return;
      if (!error.isTemporary) throw new StartupError(`${service.name}: ${error.message}.`);
      process.log.warn('not ready yet, trying again', { service: service.name, ...describeError(error) });
      await sleep(pause, undefined, { signal }).catch(() => {});
    }
  }
}

/** What all listeners of a process have in common. */
const listenerDefaults = ({ settings, metrics }: ProcessContext) => ({ maxBodyBytes: settings.maxBodyBytes, trustedProxies: settings.trustedProxies, metrics });

/** @throws StartupError with what the operator can do, if the port cannot be had */
async function listen({ name, host, port, log }: Place & { readonly name: string; readonly log: Log }, listener: Listener): Promise<void> {
  try {
    log.info('listening', { host, port: await listener.listen() });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    const variable = `${name.toUpperCase()}_PORT`;
    const advice: Readonly<Record<string, string>> = {
      EADDRINUSE: `port ${port} is in use. Set ${variable}`,
      EACCES: `this user may not use port ${port}. Set ${variable} to a port above 1023`,
      EADDRNOTAVAIL: `this machine does not have the address ${host}. Set ${name.toUpperCase()}_HOST`,
    };
    throw new StartupError(`${name} cannot listen on ${host}:${port} (${code}): ${advice[code] ?? 'check its host and port'}.`);
  }
}

/** A listener of its own, because metrics are for the operator and not for the services' callers. */
function metricsListener(process: ProcessContext, place: Place) {
  const name = 'metrics';
  const log = process.log.with({ service: name });
  const row = route({
    ...routeDefaults,
    method: 'GET',
    pattern: '/metrics',
    summary: 'Metrics for Prometheus',
    guard: anonymous,
    reply: null,
    handle: async () => ({ text: process.metrics.text(), contentType: 'text/plain; version=0.0.4; charset=utf-8' }),
  });
  const routes = async () => bindRoutes([row, livez], null);
  const style = { envelope: 'bare', unavailable: 'unavailable' } as const;
  const listener = createListener({ ...listenerDefaults(process), ...place, name, routes, style, log });
  return { listener, listen: () => listen({ ...place, name, log }, listener) };
}

/** What may wait for a reader of standard output that has stopped. Beyond it, senders are told to come back. */
const MAX_UNPRINTED_BYTES = 8 * 1024 * 1024;

function print({ stdout }: Output, line: string): Promise<void> {
  return new Promise((resolve, reject) => {
    if (stdout.writableLength > MAX_UNPRINTED_BYTES) return reject(new Overloaded('too much waits to be read from standard output'));
    stdout.write(line, (error) => (error ? reject(new Unavailable('standard output is closed', false)) : resolve()));
  });
}
