import { setTimeout as sleep } from 'node:timers/promises';
import type { Listener } from '../http/wire/server.ts';
import { METRICS } from './metrics-listener.ts';
import {
  createProcessContext,
  createServiceRunner,
  type Output,
  type ProcessContext,
  type ServiceRunner,
} from './runner.ts';
import type { ConfiguredService } from './service.ts';
import type { Configuration } from './settings.ts';

export type RunningServices = Readonly<{
  /** The port of each service, and of `metrics` if METRICS_PORT is set. */
  ports: Readonly<Record<string, number>>;
  /**
   * Resolves once all services are ready. Rejects, after a shutdown, if a database rejects one of
   * them, or if they are stopped before.
   */
  ready: Promise<void>;
  /** The listener of a service, for requests in this process. */
  listenerOf: (name: string) => Listener | undefined;
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
  { shared, services, metrics, warnings }: Configuration,
  output: Output,
): Promise<RunningServices> {
  const context = createProcessContext(shared, output);
  for (const warning of warnings) context.log.warn(warning);
  const running: ServiceRunner[] = [];
  /** Metrics and the control socket, which are there until the services have ended. */
  const own: ServiceRunner[] = [];
  const ports: Record<string, number> = {};
  let stopped: Promise<void> | null = null;
  const stop = (delaySeconds = 0) => {
    stopped ??= shutDown(context, running, own, delaySeconds);
    return stopped;
  };
  const open = async (configured: ConfiguredService, runners: ServiceRunner[]) => {
    const runner = await createServiceRunner(configured, context);
    runners.push(runner);
    ports[configured.name] = await runner.listen();
  };
  try {
    // Listeners open first: the process is alive, and says so, while databases are connected.
    for (const service of services) await open(service, running);
    if (metrics) await open({ ...METRICS, ...metrics }, own);
    if (shared.CONTROL_SOCKET !== null) {
      const { createControl } = await import('./control.ts');
      await open(createControl(shared.CONTROL_SOCKET, { context, services: running }), own);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  const becomeReady = async () => {
    try {
      await Promise.all(running.map((service) => service.prepare()));
    } catch (error) {
      await stop();
      throw error;
    }
    if (stopped) throw new Error('stopped before it was ready');
  };
  const ready = becomeReady();
  // A caller may await `ready` later. Until then, a rejection must not count as unhandled.
  ready.catch(() => {});
  return {
    ports,
    ready,
    listenerOf: (name) => running.find((runner) => runner.name === name)?.listener,
    stop,
  };
}

async function shutDown(
  { log, lines, shared, stopping }: ProcessContext,
  services: readonly ServiceRunner[],
  own: readonly ServiceRunner[],
  delaySeconds: number,
) {
  log.info('shutting down');
  stopping.abort();
  // Meanwhile a load balancer notices that readiness fails, and sends no more requests here.
  await sleep(delaySeconds * 1000);
  const graceMs = shared.SHUTDOWN_GRACE * 1000;
  const stopAll = async () => {
    await Promise.all(services.map((service) => service.stop(graceMs)));
    await Promise.all(own.map((listener) => listener.stop(graceMs)));
  };
  // Something may hang after SHUTDOWN_GRACE.
  const limit = sleep(graceMs + 750, 'late', { ref: false });
  const ended = await Promise.race([stopAll(), limit]);
  if (ended === 'late') log.warn('shutdown took too long: work is left unfinished');
  lines.close();
}
