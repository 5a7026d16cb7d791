import { setTimeout as sleep } from 'node:timers/promises';
import type { Config, ServiceName } from './config.ts';
import { migrate, type Migration, requireCurrent } from './db/migrate.ts';
import type { Database } from './db/pool.ts';
import { open, plain, type Route, route } from './http/call.ts';
import type { Envelope } from './http/openapi.ts';
import { createListener, type Listener } from './http/server.ts';
import { createGate, type Gate } from './runtime/gate.ts';
import { type Job, startJobs } from './runtime/jobs.ts';
import { createLog, type Log } from './runtime/log.ts';
import { createMetrics, type Metrics } from './runtime/metrics.ts';
import type { Surroundings } from './runtime/surroundings.ts';
import { describeTrouble, StartupError, Unavailable } from './runtime/trouble.ts';

/** What a service brings to the process; each has one function that makes it, and one line in `createParts`. */
interface Kit<Service> {
  readonly routes: ReadonlyArray<Route<Service>>;
  readonly service: Service;
  readonly envelope: Envelope;
  readonly unavailable: 'service_failed' | 'unavailable';
  /** `null` for a service that keeps nothing. */
  readonly storage: { readonly database: Database; readonly schema: string; readonly migrations: readonly Migration[] } | null;
  /** What must happen exactly once, whichever of any number of replicas does it. */
  readonly firstRun: () => Promise<void>;
  readonly jobs: readonly Job[];
  /** Work that goes on all the time, begun once the service is ready. */
  readonly work?: () => { stop(): Promise<void> };
}

interface Door {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly listener: Listener;
  readonly log: Log;
}

/** A service in this process. */
interface Part extends Door {
  /** @returns how many steps were applied */
  migrate(): Promise<number>;
  /** Schema, first run, background work. May be called again after a failure. */
  prepare(): Promise<void>;
  /** Background work stops at a safe point, then connections close. */
  stop(): Promise<void>;
}

/** Where the process writes: log lines and events as JSON on one, announcements as plain text on the other. */
export interface Output {
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream;
}

interface World {
  readonly config: Config;
  readonly output: Output;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly hashing: Gate;
  stopping: boolean;
}

/** How many may wait for a password hash. */
const HASHES_WAITING = 32;

function createWorld(config: Config, output: Output): World {
  const log = createLog(config.logLevel, (line) => output.stdout.write(line));
  const metrics = createMetrics();
  const hashing = createGate(config.hashesAtOnce, HASHES_WAITING, 'a password hash');
  metrics.gauge('gatehouse_password_hashes_running', {}, () => hashing.running);
  metrics.gauge('gatehouse_password_hashes_waiting', {}, () => hashing.waiting);
  return { config, output, log, metrics, hashing, stopping: false };
}

/**
 * Runs the configured services until `signal` fires, then shuts down in order: readiness fails, doors close, requests
 * in flight finish, background work stops, connections close.
 * @throws StartupError when a port is taken, or the database refuses in a way that waiting does not mend
 */
export async function serve(config: Config, output: Output, signal: AbortSignal): Promise<void> {
  const world = createWorld(config, output);
  for (const warning of config.warnings) world.log.warn(warning);
  const parts: Part[] = [];
  const doors: Door[] = [];
  // The signal may have come while the modules were loaded.
  const stopped = new Promise<void>((resolve) => (signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true })));
  let prepared: Promise<unknown> = Promise.resolve();
  try {
    // The doors open first: the process is alive, and says so, while the rest is loaded and its database on the way.
    for await (const part of createParts(world)) {
      parts.push(part);
      await openDoor(part, doors);
    }
    for (const door of metricsDoor(world)) await openDoor(door, doors);
    prepared = Promise.all(parts.map((part) => prepareUntilDone(part, world, signal)));
    await Promise.race([stopped, prepared.then(() => stopped)]);
    world.log.info('shutting down');
  } finally {
    world.stopping = true;
    await Promise.all(doors.map((door) => door.listener.close(config.shutdownGraceMs)));
    await Promise.all(parts.map((part) => part.stop()));
    // Without connections it cannot go on; only its end is waited for.
    await prepared.catch(() => {});
  }
}

/** Brings the schemas of the configured services up to date. @returns how many steps were applied, by service */
export async function migrateAll(config: Config, output: Output): Promise<ReadonlyMap<string, number>> {
  const applied = new Map<string, number>();
  for await (const part of createParts(createWorld(config, output))) {
    applied.set(part.name, await part.migrate().finally(() => part.stop()));
  }
  return applied;
}

/** The services that are asked for, one after the other, and only their modules: what is not asked for is not loaded. */
async function* createParts(world: World): AsyncGenerator<Part> {
  const { identity, secrets, webhook } = world.config;
  if (identity) yield createPart('identity', identity, (await import('./identity/start.ts')).identity, world);
  if (secrets) yield createPart('secrets', secrets, (await import('./secrets/start.ts')).secrets, world);
  if (webhook) yield createPart('webhook', webhook, (await import('./webhook/start.ts')).webhook, world, { app: webhook.appName });
}

function createPart<Options extends { readonly host: string; readonly port: number }, Service>(
  name: ServiceName,
  options: Options,
  make: (options: Options, surroundings: Surroundings) => Kit<Service>,
  world: World,
  logFields: Readonly<Record<string, string>> = {},
): Part {
  const { config, metrics, output } = world;
  let isPrepared = false;
  const background: Array<{ stop(): Promise<void> }> = [];
  const log = world.log.with({ service: name, ...logFields });
  const kit = make(options, {
    log,
    metrics,
    hashing: world.hashing,
    isServing: () => isPrepared && !world.stopping,
    announce: (line) => void output.stderr.write(`${line}\n`),
    print: (line) => new Promise((resolve, reject) => output.stdout.write(line, (error) => (error ? reject(new Unavailable('standard output is closed', false)) : resolve()))),
  });
  const { storage } = kit;
  const bringUpToDate = async () => (storage ? migrate(storage.database, storage.schema, storage.migrations) : 0);
  return {
    name,
    host: options.host,
    port: options.port,
    log,
    listener: createListener({ ...kit, ...doorOptions(world), name, host: options.host, port: options.port, log }),
    migrate: bringUpToDate,
    async prepare() {
      if (config.migrate) await bringUpToDate();
      else if (storage) await requireCurrent(storage.database, storage.schema, storage.migrations);
      await kit.firstRun();
      if (world.stopping) return;
      background.push(startJobs(kit.jobs, log), ...(kit.work ? [kit.work()] : []));
      isPrepared = true;
      log.info('ready');
    },
    async stop() {
      await Promise.all(background.map((one) => one.stop()));
      await storage?.database.close();
    },
  };
}

const doorOptions = ({ config, metrics }: World) => ({ maxBodyBytes: config.maxBodyBytes, trustedProxies: config.trustedProxies, metrics });

/** A listener of its own, off unless METRICS_PORT is set: numbers for the operator are not for the services' callers. */
function metricsDoor(world: World): Door[] {
  const { config, metrics } = world;
  const log = world.log.with({ service: 'metrics' });
  if (!config.metrics) return [];
  const rows = [
    route({
      ...plain,
      method: 'GET',
      pattern: '/metrics',
      summary: 'Numbers for Prometheus',
      guard: open,
      reply: null,
      handle: async () => ({ text: metrics.text(), contentType: 'text/plain; version=0.0.4; charset=utf-8' }),
    }),
  ];
  const name = 'metrics';
  const listener = createListener({ ...doorOptions(world), ...config.metrics, name, routes: rows, service: null, envelope: 'bare', unavailable: 'unavailable', log });
  return [{ ...config.metrics, name, listener, log }];
}

async function openDoor(door: Door, doors: Door[]): Promise<void> {
  const { name, host, port, listener, log } = door;
  try {
    log.info('listening', { host, port: await listener.listen() });
    doors.push(door);
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

/** A database that is away at the start is waited for, however long; one that refuses us is not. */
async function prepareUntilDone(part: Part, world: World, signal: AbortSignal): Promise<void> {
  for (let pause = 250; !world.stopping; pause = Math.min(pause * 2, 5_000)) {
    try {
      return await part.prepare();
    } catch (error) {
      if (error instanceof StartupError) throw error;
      if (!(error instanceof Unavailable)) throw error;
      if (world.stopping) return;
      if (!error.mayPass) throw new StartupError(`${part.name}: ${error.message}.`);
      part.log.warn('not ready yet, trying again', describeTrouble(error));
      await sleep(pause, undefined, { signal }).catch(() => {});
    }
  }
}
