import type { Output } from './platform/process/runner.ts';
import { ConfigurationError } from './platform/process/settings.ts';
import { type RunningServices, startServices } from './platform/process/start.ts';
import { configure, SERVICE_NAMES, type ServiceName } from './serve.ts';

export { ConfigurationError };
export { StartupError } from './platform/runtime/errors.ts';
export type { Output, ServiceName };

export type Gatehouse = Omit<RunningServices, 'ports'> &
  Readonly<{
    /** The port of each service, and of `metrics` if METRICS_PORT is set. */
    ports: Readonly<Partial<Record<ServiceName | 'metrics', number>>>;
  }>;

export type StartOptions = Readonly<{
  services: readonly ServiceName[];
  /** By the names of the environment variables. The environment itself is not read. */
  settings: Readonly<Record<string, string | undefined>>;
  /**
   * Where log lines and announcements go; by default the standard output and error of this process.
   */
  output?: Output;
}>;

/**
 * Starts services in this process, any number of times at once. No signal is handled: call `stop`.
 * @returns once the listeners are open
 * @throws ConfigurationError for wrong settings  @throws StartupError if a port is not available
 */
export async function start({
  services,
  settings = {},
  output = process,
}: StartOptions): Promise<Gatehouse> {
  const isKnown = Array.isArray(services) && services.every((name) => SERVICE_NAMES.includes(name));
  if (!isKnown || services.length === 0) {
    throw new ConfigurationError([`services must be a list of ${SERVICE_NAMES.join(', ')}.`]);
  }
  return startServices(await configure(services, 'serve', settings), output);
}
