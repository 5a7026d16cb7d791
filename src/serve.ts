import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Writable } from 'node:stream';
import { NO_DATABASE } from './db/address.ts';
import type { Database } from './db/pool.ts';
import { isCurrent, type Schema } from './db/schema.ts';
import type { RouteMatcher } from './http/call.ts';
import { createBodyReader } from './http/receive.ts';
import { createListener } from './http/server.ts';
import type { ServiceContext } from './runtime/context.ts';
import { codeOf, describeError, StartupError, Unavailable } from './runtime/errors.ts';
import { type Job, startJobs } from './runtime/jobs.ts';
import { createLimiter } from './runtime/limiter.ts';
import { createLineWriter, createLog } from './runtime/log.ts';
import { noMetrics } from './runtime/metrics.ts';
import type { Variables } from './runtime/variables.ts';
import {
  ConfigurationError,
  type ConfiguredService,
  ENVIRONMENT,
  readSettings,
  serviceReader,
  type ServiceSettings,
} from './settings.ts';

/** What a service's `start` returns. */
export interface Service {
  readonly routes: RouteMatcher;
  /** Null for a service that stores nothing. */
  readonly storage: Readonly<{ database: Database; schema: Schema }> | null;
  /** What must happen exactly once, whichever of any number of replicas does it. */
  readonly firstRun: () => Promise<void>;
  readonly jobs: readonly Job[];
  /** Continuous work that begins once the service is ready. */
  readonly startWork?: () => { stop(graceMs: number): Promise<void> };
  /** @throws StartupError if that work could not begin */
  readonly checkWork?: () => void;
}

type Open = (context: ServiceContext) => Promise<Service>;

/** Only the modules of served services are loaded, but the settings of all, so that their names are known. */
export const SERVICES = {
  identity: register(
    () => import('./identity/settings.ts'),
    () => import('./identity/start.ts'),
  ),
  secrets: register(
    () => import('./secrets/settings.ts'),
    () => import('./secrets/start.ts'),
  ),
  webhook: register(
    () => import('./webhook/settings.ts'),
    () => import('./webhook/start.ts'),
  ),
} as const;

export type ServiceName = keyof typeof SERVICES;
export const SERVICE_NAMES: readonly string[] = Object.keys(SERVICES);

function register<V extends Variables, S>(
  settings: () => Promise<ServiceSettings<V, S>>,
  modules: () => Promise<{
    readonly start: (settings: S, context: ServiceContext) => Service | Promise<Service>;
  }>,
) {
  return async (name: string) => {
    const open =
      (values: S): Open =>
      async (context) =>
        (await modules()).start(values, context);
    return serviceReader(name, await settings(), open);
  };
}

export type Configuration = ReturnType<typeof readSettings<Open>>;

/** Reads the settings of the named services. @throws ConfigurationError */
export async function configure(
  names: readonly string[],
  purpose: 'serve' | 'administer',
  environment = ENVIRONMENT,
): Promise<Configuration> {
  const readers = await Promise.all(Object.entries(SERVICES).map(([name, load]) => load(name)));
  const isUrlSet = Object.keys(environment).some((name) => /DATABASE_URL(_FILE)?$/.test(name));
  const { parseUrl } = isUrlSet ? await import('./db/url.ts') : { parseUrl: () => NO_DATABASE };
  const configuration = readSettings(readers, names, purpose, parseUrl, environment);
  const { SITE_LOGO_FILE: logo } = configuration.shared;
  const form = logo === null ? null : (await import('./http/site.ts')).logoProblem(logo);
  if (form !== null) throw new ConfigurationError([`SITE_LOGO_FILE must be ${form}.`]);
  return configuration;
}

/** Where the process writes: log lines and events as JSON on one stream, announcements as plain text on the other. */
export interface Output {
  readonly stdout: Writable & { readonly isTTY?: boolean };
  readonly stderr: NodeJS.WritableStream;
}

/** How long a shutdown may last after SHUTDOWN_GRACE, even if something hangs. */
const SHUTDOWN_LATE_MS = 750;

/** How many callers of one service may wait for a password hash. */
const HASHES_WAITING = 32;

type ProcessContext = Awaited<ReturnType<typeof createProcessContext>>;

export async function createProcessContext({ shared }: Configuration, output: Output) {
  const isText = shared.LOG_FORMAT === 'auto' ? output.stdout.isTTY : shared.LOG_FORMAT === 'text';
  const text = isText ? await import('./runtime/text-log.ts') : null;
  const lines = createLineWriter(output.stdout, text?.formatLine);
  const metrics =
    shared.METRICS_PORT === null
      ? noMetrics
      : (await import('./runtime/prometheus.ts')).createMetrics();
  const hashing = createLimiter(shared.PASSWORD_HASHES, HASHES_WAITING, 'a password hash');
  metrics.gauge(
    'gatehouse_password_hashes_running',
    'Password hashes being computed.',
    {},
    hashing.running,
  );
  metrics.gauge(
    'gatehouse_password_hashes_waiting',
    'Password hashes waiting for a slot.',
    {},
    hashing.waiting,
  );
  const log = createLog(shared.LOG_LEVEL, lines.write);
  const stopping = new AbortController();
  return { shared, output, log, lines, metrics, hashing, stopping, readBody: createBodyReader() };
}

/** On a listener of its own, because metrics are for the operator and not for the services' callers. */
const METRICS = {
  style: { envelope: 'bare', unavailable: 'unavailable' },
  logFields: {},
  use: async (context: ServiceContext) => (await import('./http/metrics.ts')).start(context),
} as const;

/**
 * Runs the configured services until `signal` fires, then shuts down: readiness fails, listeners close, requests in
 * flight and background work finish within the grace period, and then database connections close.
 * @throws StartupError if a port is in use, or if the database rejects a service and waiting does not help
 */
export async function serve(
  configuration: Configuration,
  output: Output,
  signal: AbortSignal,
  progress: {
    readonly onListening?: (ports: Record<string, number>) => void;
    readonly onReady?: () => void;
  } = {},
): Promise<void> {
  const context = await createProcessContext(configuration, output);
  const { log, lines } = context;
  // Writes the last lines however this process ends, except by kill -9.
  process.once('exit', lines.flush);
  for (const warning of configuration.warnings) log.warn(warning);
  const metrics =
    configuration.metrics && createRunning({ ...METRICS, ...configuration.metrics }, context);
  const running = configuration.services.map((service) => createRunning(service, context));
  // The signal may have come while modules were loaded.
  const stopped: Promise<unknown> = signal.aborted ? Promise.resolve() : once(signal, 'abort');
  let prepared: Promise<unknown> = Promise.resolve();
  try {
    // Listeners open first: the process is alive, and says so, while modules load and databases are connected.
    const ports: Record<string, number> = {};
    for (const service of [...(metrics ? [metrics] : []), ...running])
      ports[service.name] = await service.listen();
    progress.onListening?.(ports);
    for (const service of running) await service.load();
    prepared = Promise.all(running.map((service) => service.prepare()));
    await Promise.race([stopped, prepared.then(progress.onReady).then(() => stopped)]);
    log.info('shutting down');
  } finally {
    context.stopping.abort();
    const graceMs = configuration.shared.SHUTDOWN_GRACE * 1000;
    const stopAll = async () => {
      await Promise.all(running.map((service) => service.stop(graceMs)));
      // The database connections are closed now, so this ends.
      await prepared.catch(() => {});
      await metrics?.stop(graceMs);
    };
    const late = new AbortController();
    const limit = sleep(graceMs + SHUTDOWN_LATE_MS, 'late', { signal: late.signal }).catch(
      () => {},
    );
    const isLate = (await Promise.race([stopAll(), limit])) === 'late';
    if (isLate) log.warn('shutdown took too long: work is left unfinished');
    late.abort();
    lines.flush();
    process.off('exit', lines.flush);
  }
}

export function createRunning(configured: ConfiguredService<Open>, context: ProcessContext) {
  const { name, host, port, style, logFields, use: open } = configured;
  const { shared, metrics, output, readBody } = context;
  const stopping = context.stopping.signal;
  let isPrepared = false;
  const background: Array<{ stop(graceMs: number): Promise<void> }> = [];
  const log = context.log.with({ service: name, ...logFields });
  const serviceContext: ServiceContext = {
    log,
    metrics,
    hashing: context.hashing.share(),
    site: shared,
    isServing: () => isPrepared && !stopping.aborted,
    announce: (line) => void output.stderr.write(`${line}\n`),
    async handOut(file, secret) {
      const directory = shared.FIRST_CREDENTIALS_DIR;
      return directory === null
        ? secret
        : (await import('./credentials.ts')).writeCredential(directory, file, secret);
    },
    stdout: output.stdout,
  };
  let loading: Promise<Service> | null = null;
  const load = () => (loading ??= open(serviceContext));
  const listener = createListener({
    name,
    host,
    port,
    style,
    log,
    metrics,
    readBody,
    routes: async () => (await load()).routes,
    maxBodyBytes: shared.MAX_BODY_BYTES,
    trustedProxies: shared.TRUSTED_PROXIES,
    logProbes: shared.LOG_PROBES,
  });
  /** Schema, first run, background work. May be called again after a failure. */
  async function prepareOnce(): Promise<void> {
    const { storage, firstRun, jobs, startWork } = await load();
    if (storage && !(await isCurrent(storage.database, storage.schema))) {
      const { migrate, requireCurrent } = await import('./db/migrate.ts');
      await (shared.MIGRATE ? migrate : requireCurrent)(storage.database, storage.schema);
    }
    await firstRun();
    if (stopping.aborted) return;
    background.push(startJobs(jobs, log, metrics), ...(startWork ? [startWork()] : []));
    isPrepared = true;
    log.info('ready');
  }
  return {
    name,
    /** @throws StartupError with what the operator can do, if the port is not available */
    async listen(): Promise<number> {
      const bound = await listener.listen().catch(async (error: unknown) => {
        throw (await import('./listen-error.ts')).listenError(codeOf(error), configured);
      });
      log.info('listening', { host, port: bound });
      return bound;
    },
    /** Loads its modules, which `/livez` does not need. */
    load,
    /** Waits without limit for a database to become available. @throws StartupError if it rejects the service */
    async prepare(): Promise<void> {
      for (let pause = 250; !stopping.aborted; pause = Math.min(pause * 2, 5_000)) {
        try {
          return await prepareOnce();
        } catch (error) {
          if (!(error instanceof Unavailable)) throw error;
          if (stopping.aborted) return;
          if (!error.isTemporary) throw new StartupError(`${name}: ${error.message}.`);
          log.warn('not ready yet, trying again', { pause_ms: pause, ...describeError(error) });
          await sleep(pause, undefined, { signal: stopping }).catch(() => {});
        }
      }
    },
    /** Requests in flight finish, background work stops at a safe point, then connections close. */
    async stop(graceMs = 0): Promise<void> {
      await Promise.all([listener.close(graceMs), ...background.map((one) => one.stop(graceMs))]);
      await (await loading)?.storage?.database.close();
    },
  };
}
