import type { Database } from '../db/pool.ts';
import type { DatabaseSchema } from '../db/schema.ts';
import type { ResponseStyle, RouteMatcher } from '../http/route/route.ts';
import type { Listener } from '../http/wire/server.ts';
import type { ServiceContext } from '../runtime/context.ts';
import type { Job } from '../runtime/jobs.ts';

/** What a service's `start` returns. */
export type Service = Readonly<{
  routes: RouteMatcher;
  storage?: ServiceStorage;
  /** Runs at each start, before the service is ready. Replicas create only once what it creates. */
  beforeReady?: () => Promise<void>;
  jobs?: readonly Job[];
  /** What an operator must see of the time between two times of the database, in few words. */
  observe?: (since: string, until: string) => Promise<readonly string[]>;
  /** Continuous work that begins once the service is ready. */
  startWork?: () => Work;
  /** @throws StartupError if that work could not begin */
  checkWork?: () => void;
  /** What `check` says besides: who has been given a right in the database. */
  report?: () => Promise<readonly string[]>;
}>;
export type ServiceStorage = Readonly<{ database: Database; schema: DatabaseSchema }>;
export type Work = { stop(graceMs: number): Promise<void> };

/** A service with its settings bound, so that different services fit one list. */
export type ConfiguredService = Readonly<{
  name: string;
  host: string;
  port: number;
  style: ResponseStyle;
  logFields?: Readonly<Record<string, string>> | undefined;
  answerMs?: number;
  /** Opens the listener otherwise than at `host` and `port`. @returns the port */
  open?: (listener: Listener) => Promise<number>;
  /** Loads the modules of the service and assembles it. */
  start: (context: ServiceContext) => Promise<Service>;
}>;
