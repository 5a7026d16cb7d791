import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect } from 'node:net';
import { json } from '../http/route/json-body.ts';
import { bindRoutes, Failure, publicRead, route, routeDefaults } from '../http/route/route.ts';
import { boolean, object, oneOf } from '../http/route/schema.ts';
import type { Listener } from '../http/wire/server.ts';
import { codeOf, StartupError } from '../runtime/errors.ts';
import { LOG_LEVELS } from '../runtime/log.ts';
import type { ProcessContext, ServiceRunner } from './runner.ts';
import type { ConfiguredService } from './service.ts';
import { readVersion } from '../runtime/version.ts';

/**
 * The service behind CONTROL_SOCKET, with which an operator sees and changes what the process does.
 * A Unix socket of mode 0600: only this user and root can connect, no browser (CWE-352), and no
 * other machine or container.
 */
export const createControl = (path: string, running: Process): ConfiguredService => ({
  name: 'control',
  host: path,
  port: 0,
  style: { wrapping: 'bare', unavailable: 'unavailable' },
  open: (listener) => open(listener, path),
  start: async () => ({ routes: bindRoutes([status, logLevel, drain], running) }),
});

type Process = Readonly<{ context: ProcessContext; services: readonly ServiceRunner[] }>;

const status = route({
  ...publicRead,
  pattern: '/status',
  summary: 'What the process does now',
  handle: async (_call, running: Process) => ({ data: statusOf(running) }),
});

const change = {
  ...routeDefaults,
  method: 'PUT',
  guard: publicRead.guard,
  reply: null,
} as const;

const logLevel = route({
  ...change,
  pattern: '/log-level',
  summary: 'Changes LOG_LEVEL until the process ends',
  body: json(object({ level: oneOf(...LOG_LEVELS) })),
  async handle({ body: { level } }, { context: { log } }: Process) {
    const from = log.level;
    // Before the change: the log says why it is silent from here on.
    log.warn('log level changed', { from, to: level });
    log.level = level;
    return { data: { from, to: level } };
  },
});

const drain = route({
  ...change,
  pattern: '/drain',
  summary: 'Lets readiness fail while requests are served, or ends this',
  body: json(object({ drain: boolean() })),
  errors: ['conflict'],
  async handle({ body }, { context: { stopping, drain: state, log } }: Process) {
    if (stopping.signal.aborted)
      return new Failure('conflict', { message: 'The process is shutting down.' });
    const wasOn = state.isOn;
    state.isOn = body.drain;
    if (wasOn !== body.drain) log.warn(body.drain ? 'draining' : 'no longer draining');
    return { data: { changed: wasOn !== body.drain } };
  },
});

function statusOf({ context, services }: Process) {
  const { log, shared, metrics, drain, stopping, recent } = context;
  const working = drain.isOn ? 'draining' : 'serving';
  return {
    version: readVersion(),
    node: process.version,
    instance: shared.INSTANCE_NAME,
    pid: process.pid,
    started_at: new Date(performance.timeOrigin),
    state: stopping.signal.aborted ? 'shutting down' : working,
    log_level: log.level,
    memory_bytes: process.memoryUsage.rss(),
    services: services.map(serviceStatus),
    /** How long the queues are, and how old what waits is. */
    measurements: metrics.readings().filter(({ name }) => name.startsWith('gatehouse_')),
    recent: recent.map((line): unknown => JSON.parse(line)),
  };
}

function serviceStatus({ name, listener, isPrepared }: ServiceRunner) {
  const { connections, inFlight } = listener;
  const now = performance.now();
  const routes = new Map<string, { route: string; requests: number; oldest_ms: number }>();
  // In the order of their arrival: the first one of a route is its oldest.
  for (const { progress, startedAt } of inFlight) {
    const { route } = progress;
    const oldest_ms = Math.round(now - startedAt);
    const counted = routes.get(route) ?? {
      route,
      requests: 0,
      oldest_ms,
    };
    routes.set(route, { ...counted, requests: counted.requests + 1 });
  }
  return {
    name,
    prepared: isPrepared(),
    connections: connections.all.size,
    requests: [...routes.values()],
  };
}

/** @throws StartupError with what the operator can do */
async function open({ server }: Listener, path: string) {
  try {
    await removeStale(path);
    // The socket is made at once, with this mode: a later change would leave a gap.
    const before = process.umask(0o177);
    const listening = once(server.listen(path), 'listening');
    process.umask(before);
    await listening;
    return 0;
  } catch (error) {
    throw new StartupError(
      `CONTROL_SOCKET=${path} cannot be made (${codeOf(error)}): name a file in a directory that exists, that only this user can write, and that no other process uses for its own.`,
    );
  }
}

/** A process that was killed has left its socket behind. One that answers is in use. */
async function removeStale(path: string) {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
  } catch (error) {
    if (codeOf(error) === 'ECONNREFUSED') rmSync(path);
  } finally {
    socket.destroy();
  }
}
