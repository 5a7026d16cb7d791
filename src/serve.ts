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
    start: (settings: S, context: ServiceContext) => Promise<Service>;
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
) {
  const loading = Object.entries(SERVICES).map(([name, load]) => load(name));
  return readSettings(await Promise.all(loading), names, purpose, environment);
}

/**
 * On a listener of its own, because metrics are for the operator and not for the services' callers.
 */
const METRICS = {
  style: { wrapping: 'bare', unavailable: 'unavailable' },
  start: async ({ metrics }: ServiceContext) => startMetrics(metrics),
} as const;

export type Gatehouse = Readonly<{
  /** The port of each service, and of `metrics` if METRICS_PORT is set. */
  ports: Readonly<Partial<Record<ServiceName | 'metrics', number>>>;
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
  // Writes the last lines however this process ends, except by kill -9.
  process.once('exit', context.lines.flush);
  for (const warning of configuration.warnings) context.log.warn(warning);
  const ports: Record<string, number> = {};
  const services: ServiceRunner[] = [];
  const metrics: ServiceRunner[] = [];
  const open = async (runners: ServiceRunner[], configured: ConfiguredService) => {
    const runner = await createServiceRunner(configured, context);
    runners.push(runner);
    ports[configured.name] = await runner.listen();
  };
  let prepared: Promise<unknown> = Promise.resolve();
  let ended: Promise<void> | null = null;
  const stop = (delaySeconds = 0) => {
    ended ??= shutDown(context, services, metrics, prepared, delaySeconds);
    return ended;
  };
  const becomeReady = async () => {
    try {
      prepared = Promise.all(services.map((service) => service.prepare()));
      await prepared;
    } catch (error) {
      await stop();
      throw error;
    }
    if (ended) throw new Error('stopped before it was ready');
  };
  try {
    // Listeners open first: the process is alive, and says so, while databases are connected.
    for (const service of configuration.services) await open(services, service);
    if (configuration.metrics) await open(metrics, { ...METRICS, ...configuration.metrics });
    const ready = becomeReady();
    // A caller may await `ready` later. Until then, a rejection must not count as unhandled.
    ready.catch(() => {});
    return { ports, ready, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function shutDown(
  { log, lines, shared, stopping }: ProcessContext,
  services: readonly ServiceRunner[],
  metrics: readonly ServiceRunner[],
  prepared: Promise<unknown>,
  delaySeconds: number,
) {
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
