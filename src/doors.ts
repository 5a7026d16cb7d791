import { livez } from './http/builtin.ts';
import { open, plain, route } from './http/call.ts';
import { bind } from './http/rows.ts';
import { createListener, type Listener } from './http/server.ts';
import type { Log } from './runtime/log.ts';
import { StartupError } from './runtime/trouble.ts';
import type { World } from './world.ts';

/** A port that is listened on. */
export interface Door {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly listener: Listener;
  readonly log: Log;
}

/** What all doors of a process have in common. */
export const doorOptions = ({ config, metrics }: World) => ({ maxBodyBytes: config.maxBodyBytes, trustedProxies: config.trustedProxies, metrics });

/** @throws StartupError with what the operator can do, where the port cannot be had */
export async function openDoor({ name, host, port, listener, log }: Door): Promise<void> {
  try {
    log.info('listening', { host, port: await listener.listen() });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    const reasons: Readonly<Record<string, string>> = {
      EADDRINUSE: `another program listens there; stop it, or set another ${name.toUpperCase()}_PORT`,
      EACCES: 'this user may not use that port; take one above 1023',
      EADDRNOTAVAIL: 'this machine does not have that address',
    };
    throw new StartupError(`${name} cannot listen on ${host}:${port} (${code}): ${reasons[code] ?? 'check its host and port'}.`);
  }
}

/**
 * Does the work with a listener of its own beside it, where METRICS_PORT is set: numbers for the operator are not for the
 * services' callers.
 */
export async function withMetrics(world: World, numbers: () => Promise<string>, work: () => Promise<void>): Promise<void> {
  const { config } = world;
  if (!config.metrics) return work();
  const name = 'metrics';
  const log = world.log.with({ service: name });
  const row = route({
    ...plain,
    method: 'GET',
    pattern: '/metrics',
    summary: 'Numbers for Prometheus',
    guard: open,
    reply: null,
    handle: async () => ({ text: await numbers(), contentType: 'text/plain; version=0.0.4; charset=utf-8' }),
  });
  const rows = async () => bind([row, livez], null);
  const listener = createListener({ ...doorOptions(world), ...config.metrics, name, rows, envelope: 'bare', unavailable: 'unavailable', log });
  await openDoor({ ...config.metrics, name, listener, log });
  return work().finally(() => listener.close(config.shutdownGraceMs));
}
