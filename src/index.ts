import { EventEmitter, once } from 'node:events';
import { configure, type Output, serve, SERVICE_NAMES, type ServiceName } from './serve.ts';
import { ConfigurationError } from './settings.ts';

export { ConfigurationError };
export { StartupError } from './runtime/errors.ts';
export type { Output, ServiceName };

export interface StartOptions {
  readonly services: readonly ServiceName[];
  /** By the names of the environment variables. The environment itself is not read. */
  readonly settings: Readonly<Record<string, string | undefined>>;
  /** Where log lines and announcements go; by default the standard output and error of this process. */
  readonly output?: Output;
}

export interface Gatehouse {
  /** The port of each service, and of `metrics` if METRICS_PORT is set. */
  readonly ports: Readonly<Record<string, number>>;
  /** Resolves once all services are ready. Rejects if a database rejects them, or if they are stopped before. */
  readonly ready: Promise<void>;
  /** Shuts down in the same order as the command `serve` does at SIGTERM. May be called more than once. */
  stop(): Promise<void>;
}

/**
 * Starts services in this process, any number of times at once. No signal is handled: call `stop`.
 * @returns once the listeners are open
 * @throws ConfigurationError for wrong settings  @throws StartupError if a port is not available
 */
export async function start({
  services,
  settings,
  output = process,
}: StartOptions): Promise<Gatehouse> {
  const isKnown = services.every((name) => SERVICE_NAMES.includes(name));
  if (!isKnown || services.length === 0) {
    throw new ConfigurationError([`services must be a list of ${SERVICE_NAMES.join(', ')}.`]);
  }
  const configuration = await configure(services, 'serve', settings);
  const stopping = new AbortController();
  const steps = new EventEmitter();
  let ports: Gatehouse['ports'] = {};
  const ended = serve(configuration, output, stopping.signal, {
    onListening: (opened) => void steps.emit('listening', (ports = opened)),
    onReady: () => void (stopping.signal.aborted || steps.emit('ready')),
  });
  const reach = async (step: string): Promise<void> => {
    const early = ended.then(() => Promise.reject(new Error(`stopped before it was ${step}`)));
    await Promise.race([once(steps, step), early]);
  };
  const ready = reach('ready');
  // A caller may await `ready` later. Until then, a rejection must not count as unhandled.
  ready.catch(() => {});
  await reach('listening');
  return {
    ports,
    ready,
    async stop() {
      stopping.abort();
      // `ready` has reported any failure.
      await ended.catch(() => {});
    },
  };
}
