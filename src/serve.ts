import { setTimeout as sleep } from 'node:timers/promises';
import { startMetrics } from './http/built-in-routes.ts';
import type { ServiceContext } from './runtime/context.ts';
import type { Environment, Variables } from './runtime/variables.ts';
import {
  type ConfiguredService,
  createProcessContext,
  createServiceRunner,
  type Output,
  type ProcessContext,
  type Service,
  type ServiceRunner,
} from './service-runner.ts';
import {
  type ProcessSettings,
  readSettings,
  serviceReader,
  type ServiceSettings,
} from './settings.ts';

/**
 * Only the modules of served services are loaded, but the settings of all, so that their names are
 * known.
 */
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
  loadSettings: () => Promise<ServiceSettings<V, S>>,
  loadModules: () => Promise<{
    start: (settings: S, context: ServiceContext) => Service | Promise<Service>;
  }>,
) {
  return async (name: string) => {
    const reader = serviceReader(name, await loadSettings());
    return {
      ...reader,
      read(process: ProcessSettings): ConfiguredService {
        const { settings, ...listener } = reader.read(process);
        return {
          ...listener,
          async start(context) {
            const { start } = await loadModules();
            return start(settings, context);
          },
        };
      },
    };
  };
}

export type Configuration = ReturnType<typeof readSettings<ConfiguredService>>;

/**
 * Reads the settings of the named services, or of all if none is named.
 * @throws ConfigurationError
 */
export async function configure(
  names: readonly string[],
  purpose: 'serve' | 'administer',
  environment: Environment,
): Promise<Configuration> {
  const loading = Object.entries(SERVICES).map(([name, load]) => load(name));
  return readSettings(await Promise.all(loading), names, purpose, environment);
}

/**
 * On a listener of its own, because metrics are for the operator and not for the services' callers.
 */
const METRICS = {
  style: { wrapping: 'bare', unavailable: 'unavailable' },
  logFields: {},
  start: async ({ metrics }: ServiceContext) => startMetrics(metrics),
} as const;

export type Gatehouse = Readonly<{
  /** The port of each service, and of `metrics` if METRICS_PORT is set. */
  ports: Readonly<Record<string, number>>;
  /**
   * Resolves once all services are ready. Rejects, after a shutdown, if a database rejects one of
   * them, or if they are stopped before.
   */
  ready: Promise<void>;
  /**
   * Shuts down: readiness fails, listeners close after `delaySeconds` (0), requests in flight and
   * background work finish within SHUTDOWN_GRACE, and then database connections close. May be
   * called more than once.
   */
  stop: (delaySeconds?: number) => Promise<void>;
}>;

/**
 * Starts the configured services.
 * @returns once the listeners are open  @throws StartupError if a port is not available
 */
export async function startServices(
  configuration: Configuration,
  output: Output,
): Promise<Gatehouse> {
  const context = await createProcessContext(configuration.shared, output);
  const { log, lines } = context;
  // Writes the last lines however this process ends, except by kill -9.
  process.once('exit', lines.flush);
  for (const warning of configuration.warnings) log.warn(warning);
  const { services, metrics } = configuration;
  const running: Running = {
    context,
    services: [],
    metrics: [],
    prepared: Promise.resolve(),
    ended: null,
  };
  const ports: Record<string, number> = {};
  const open = async (runners: ServiceRunner[], configured: ConfiguredService) => {
    const runner = await createServiceRunner(configured, context);
    runners.push(runner);
    ports[configured.name] = await runner.listen();
  };
  try {
    // Listeners open first: the process is alive, and says so, while databases are connected.
    for (const service of services) await open(running.services, service);
    if (metrics) await open(running.metrics, { ...METRICS, ...metrics });
    const ready = becomeReady(running);
    // A caller may await `ready` later. Until then, a rejection must not count as unhandled.
    ready.catch(() => {});
    return {
      ports,
      ready,
      stop: (delaySeconds) => shutDownOnce(running, delaySeconds),
    };
  } catch (error) {
    await shutDownOnce(running);
    throw error;
  }
}

/** Changed as the process becomes ready, and as it ends. */
type Running = {
  readonly context: ProcessContext;
  readonly services: ServiceRunner[];
  readonly metrics: ServiceRunner[];
  prepared: Promise<unknown>;
  ended: Promise<void> | null;
};

async function becomeReady(running: Running) {
  try {
    running.prepared = Promise.all(running.services.map((service) => service.prepare()));
    await running.prepared;
  } catch (error) {
    await shutDownOnce(running);
    throw error;
  }
  if (running.ended) throw new Error('stopped before it was ready');
}

function shutDownOnce(running: Running, delaySeconds = 0) {
  running.ended ??= shutDown(running, delaySeconds);
  return running.ended;
}

async function shutDown({ context, services, metrics, prepared }: Running, delaySeconds: number) {
  const { log, lines, shared, stopping } = context;
  log.info('shutting down');
  stopping.abort();
  // Meanwhile a load balancer notices that readiness fails, and sends no more requests here.
  await sleep(delaySeconds * 1000);
  const graceMs = shared.SHUTDOWN_GRACE * 1000;
  const stopAll = async () => {
    await Promise.all(services.map((service) => service.stop(graceMs)));
    // The database connections are closed now, so this ends.
    await prepared.catch(() => {});
    for (const listener of metrics) await listener.stop(graceMs);
  };
  // Something may hang after SHUTDOWN_GRACE.
  const limit = sleep(graceMs + 750, 'late', { ref: false });
  const ended = await Promise.race([stopAll(), limit]);
  if (ended === 'late') log.warn('shutdown took too long: work is left unfinished');
  lines.flush();
  process.off('exit', lines.flush);
}
