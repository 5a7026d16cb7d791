import { setTimeout as sleep } from 'node:timers/promises';
import type { ServiceContext } from '../runtime/context.ts';
import {
  type ConfiguredService,
  createProcessContext,
  createServiceRunner,
  type Output,
  type ProcessContext,
  type ServiceRunner,
} from './runner.ts';
import { startMetrics } from './metrics-listener.ts';
import type { readSettings } from './settings.ts';

export type Configuration = ReturnType<typeof readSettings<ConfiguredService>>;

/**
 * On a listener of its own, because metrics are for the operator and not for the services' callers.
 */
const METRICS = {
  style: { wrapping: 'bare', unavailable: 'unavailable' },
  start: async ({ metrics }: ServiceContext) => startMetrics(metrics),
} as const;

export type RunningServices = Readonly<{
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
): Promise<RunningServices> {
  const context = await createProcessContext(configuration.shared, output);
  for (const warning of configuration.warnings) context.log.warn(warning);
  const services: ServiceRunner[] = [];
  const metrics: ServiceRunner[] = [];
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
  const open = async (configured: ConfiguredService, runners: ServiceRunner[]) => {
    const runner = await createServiceRunner(configured, context);
    runners.push(runner);
    return [configured.name, await runner.listen()] as const;
  };
  const ports: Array<readonly [name: string, port: number]> = [];
  try {
    // Listeners open first: the process is alive, and says so, while databases are connected.
    for (const service of configuration.services) ports.push(await open(service, services));
    if (configuration.metrics)
      ports.push(await open({ ...METRICS, ...configuration.metrics }, metrics));
  } catch (error) {
    await stop();
    throw error;
  }
  const ready = becomeReady();
  // A caller may await `ready` later. Until then, a rejection must not count as unhandled.
  ready.catch(() => {});
  return { ports: Object.fromEntries(ports), ready, stop };
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
  lines.close();
}
