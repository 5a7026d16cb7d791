import type { IncomingHttpHeaders } from 'node:http';
import { createInProcess } from './platform/http/wire/in-process.ts';
import type { Output } from './platform/process/runner.ts';
import { ConfigurationError } from './platform/process/settings.ts';
import { type RunningServices, startServices } from './platform/process/start.ts';
import { configure, SERVICE_NAMES, type ServiceName } from './serve.ts';

export { ConfigurationError };
export { StartupError } from './platform/runtime/errors.ts';
export type { Output, ServiceName };

/** What `GET /api/auth/verify` would answer. */
export type Verified = Readonly<{
  status: number;
  /** With status 200, `X-Auth-User-Id` and the others of the caller. */
  headers: Readonly<Record<string, string | readonly string[]>>;
  /** JSON, with an error unless the status is 200. */
  body: string;
}>;

export type VerifyOptions = Readonly<{
  /** Such as `require=group:staff&require=scope:orders:read`. */
  query?: string;
  /** Of the client: wrong credentials count for its network. */
  address?: string | undefined;
}>;

export type Gatehouse = Pick<RunningServices, 'ready' | 'stop'> &
  Readonly<{
    /**
     * Who sends a request with these headers, as `GET /api/auth/verify` says: with the same limits,
     * metrics and log, and without a request to it.
     * @throws Error if identity is not among the services
     */
    verify(headers: IncomingHttpHeaders, options?: VerifyOptions): Promise<Verified>;
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
  const running = await startServices(await configure(services, 'serve', settings), output);
  const { ports, ready, stop, listenerOf } = running;
  const listener = listenerOf('identity');
  const askVerify = listener && createInProcess(listener, '/api/auth/verify');
  return {
    ports,
    ready,
    stop,
    async verify(headers, { query = '', address = '127.0.0.1' } = {}) {
      if (!askVerify) throw new Error('verify needs the service identity');
      const { status, headers: own, body } = await askVerify(query, headers, address);
      return { status, headers: own, body: String(body) };
    },
  };
}
