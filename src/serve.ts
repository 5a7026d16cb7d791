import { setTimeout as sleep } from 'node:timers/promises';
import type { Config, ServiceName } from './config.ts';
import { migrate, type Migration, requireCurrent } from './db/migrate.ts';
import type { Database } from './db/pool.ts';
import { type Door, doorOptions, openDoor, withMetrics } from './doors.ts';
import type { Route } from './http/call.ts';
import { bind } from './http/rows.ts';
import { createListener, type ListenerOptions } from './http/server.ts';
import { type Job, startJobs } from './runtime/jobs.ts';
import type { Surroundings } from './runtime/surroundings.ts';
import { describeTrouble, Overloaded, StartupError, Unavailable } from './runtime/trouble.ts';
import { createWorld, type Output, type World } from './world.ts';

/** What a service brings to the process; each has one function that makes it, and one line in `createParts`. */
interface Kit<Service> {
  readonly routes: ReadonlyArray<Route<Service>>;
  readonly service: Service;
  /** `null` for a service that keeps nothing. */
  readonly storage: { readonly database: Database; readonly schema: string; readonly migrations: readonly Migration[] } | null;
  /** What must happen exactly once, whichever of any number of replicas does it. */
  readonly firstRun: () => Promise<void>;
  readonly jobs: readonly Job[];
  /** Work that goes on all the time, begun once the service is ready. */
  readonly work?: () => { stop(): Promise<void> };
}

/** A service in this process. */
interface Part extends Door {
  /** Loads its modules, which are not needed to say that the process lives. */
  load(): Promise<unknown>;
  /** @returns how many steps were applied */
  migrate(): Promise<number>;
  /** Schema, first run, background work. May be called again after a failure. */
  prepare(): Promise<void>;
  /** Background work stops at a safe point, then connections close. */
  stop(): Promise<void>;
}

/** What a process of several has to do besides serving. */
export interface Place {
  /** Does what is to be done once. */
  readonly isFirst: boolean;
  readonly onReady: () => void;
  /** The numbers of this process are asked for by who answers for all. */
  readonly onNumbers: (text: () => string) => void;
}

/**
 * Runs the configured services until `signal` fires, then shuts down in order: readiness fails, doors close, requests
 * in flight finish, background work stops, connections close.
 * @throws StartupError when a port is taken, or the database refuses in a way that waiting does not mend
 */
export async function serve(config: Config, output: Output, signal: AbortSignal, place: Place | null = null): Promise<void> {
  const world = createWorld(config, output);
  place?.onNumbers(world.metrics.text);
  if (place) return serveIn(world, signal, place);
  return withMetrics(world, async () => world.metrics.text(), () => serveIn(world, signal, place));
}

async function serveIn(world: World, signal: AbortSignal, place: Place | null): Promise<void> {
  const { config } = world;
  // However this process ends, but by kill -9, what it has said is written.
  process.once('exit', world.lines.flush);
  if (!place || place.isFirst) for (const warning of config.warnings) world.log.warn(warning);
  const parts: Part[] = [];
  // The signal may have come while the modules were loaded.
  const stopped = new Promise<void>((resolve) => (signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true })));
  let prepared: Promise<unknown> = Promise.resolve();
  try {
    // The doors open first: the process is alive, and says so, while the rest is loaded and its database on the way.
    for (const part of createParts(world, place)) {
      await openDoor(part);
      parts.push(part);
    }
    for (const part of parts) await part.load();
    prepared = Promise.all(parts.map((part) => prepareUntilDone(part, world, signal))).then(place?.onReady);
    await Promise.race([stopped, prepared.then(() => stopped)]);
    world.log.info('shutting down');
  } finally {
    world.stopping = true;
    await Promise.all(parts.map((part) => part.listener.close(config.shutdownGraceMs)));
    await Promise.all(parts.map((part) => part.stop()));
    // Without connections it cannot go on; only its end is waited for.
    await prepared.catch(() => {});
    world.lines.flush();
    process.off('exit', world.lines.flush);
  }
}

/** Brings the schemas of the configured services up to date. @returns how many steps were applied, by service */
export async function migrateAll(config: Config, output: Output): Promise<ReadonlyMap<string, number>> {
  const applied = new Map<string, number>();
  for (const part of createParts(createWorld(config, output), null)) {
    applied.set(part.name, await part.migrate().finally(() => part.stop()));
  }
  return applied;
}

/** How a service speaks: how it wraps a success, and what it calls a dependency that failed. */
type Voice = Pick<ListenerOptions, 'envelope' | 'unavailable'>;
const BARE = { envelope: 'bare', unavailable: 'unavailable' } as const;

/** The services that are asked for. What is not asked for is never loaded. */
function createParts(world: World, place: Place | null): Part[] {
  const { identity, secrets, webhook } = world.config;
  const parts: Part[] = [];
  if (identity) parts.push(createPart('identity', identity, async () => (await import('./identity/start.ts')).identity, { envelope: 'data', unavailable: 'service_failed' }, world, place));
  if (secrets) parts.push(createPart('secrets', secrets, async () => (await import('./secrets/start.ts')).secrets, BARE, world, place));
  if (webhook) parts.push(createPart('webhook', webhook, async () => (await import('./webhook/start.ts')).webhook, BARE, world, place, { app: webhook.appName }));
  return parts;
}

function createPart<Options extends { readonly host: string; readonly port: number }, Service>(
  name: ServiceName,
  options: Options,
  load: () => Promise<(options: Options, surroundings: Surroundings) => Kit<Service>>,
  voice: Voice,
  world: World,
  place: Place | null,
  logFields: Readonly<Record<string, string>> = {},
): Part {
  const { config, metrics, output } = world;
  let isPrepared = false;
  const background: Array<{ stop(): Promise<void> }> = [];
  const log = world.log.with({ service: name, ...logFields });
  const surroundings: Surroundings = {
    log,
    metrics,
    hashing: world.hashing,
    isServing: () => isPrepared && !world.stopping,
    announce: (line) => void output.stderr.write(`${line}\n`),
    print: (line) => print(output, line),
  };
  let loading: Promise<Kit<Service>> | null = null;
  const kit = () => (loading ??= load().then((make) => make(options, surroundings)));
  const rows = async () => {
    const { routes, service } = await kit();
    return bind(routes, service);
  };
  const bringUpToDate = async () => {
    const { storage } = await kit();
    return storage ? migrate(storage.database, storage.schema, storage.migrations) : 0;
  };
  return {
    name,
    host: options.host,
    port: options.port,
    log,
    listener: createListener({ ...doorOptions(world), ...voice, name, host: options.host, port: options.port, rows, log }),
    load: kit,
    migrate: bringUpToDate,
    async prepare() {
      const { storage, firstRun, jobs, work } = await kit();
      if (config.migrate) await bringUpToDate();
      else if (storage) await requireCurrent(storage.database, storage.schema, storage.migrations);
      // The first worker is ready before there are others.
      if (!place || place.isFirst) await firstRun();
      if (world.stopping) return;
      const mine = jobs.filter(({ everywhere }) => everywhere || !place || place.isFirst);
      background.push(startJobs(mine, log), ...(work ? [work()] : []));
      isPrepared = true;
      log.info('ready');
    },
    async stop() {
      await Promise.all(background.map((one) => one.stop()));
      await (await loading)?.storage?.database.close();
    },
  };
}

/** What may wait to be printed for a reader that has stopped: its senders leave, and it stays. */
const MOST_UNPRINTED = 8 * 1024 * 1024;

function print({ stdout }: Output, line: string): Promise<void> {
  return new Promise((resolve, reject) => {
    if (stdout.writableLength > MOST_UNPRINTED) return reject(new Overloaded('too much waits to be read from standard output'));
    stdout.write(line, (error) => (error ? reject(new Unavailable('standard output is closed', false)) : resolve()));
  });
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
