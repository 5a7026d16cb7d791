import { accessSync, constants } from 'node:fs';
import { isAbsolute } from 'node:path';
import { createDatabase, type Database, type DatabaseAddress } from '../db/pool.ts';
import { digest } from '../crypto/token.ts';
import type { Job } from '../runtime/jobs.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { StartupError } from '../runtime/trouble.ts';
import { createForward, isOutOfBounds, PRIVATE_TARGET } from './forward.ts';
import { createHandler } from './handler.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { createPlain } from './plain.ts';
import { createProgram } from './program.ts';
import { createRoutes } from './routes.ts';
import { orderKeyOf, selector } from './rules.ts';
import { createExtended } from './service.ts';
import { createSigningKey } from './signing.ts';
import { removeEnded } from './store/events.ts';
import { countByKey, findSender, noteUse } from './store/tokens.ts';
import { readBacklog } from './store/work.ts';
import { createFirstToken } from './tokens.ts';
import { type Delivery, startWorker, type Worker, type WorkSettings } from './worker.ts';

export type Target =
  | { readonly kind: 'forward'; readonly url: URL; readonly secret: string | null; readonly allowPrivate: boolean }
  | { readonly kind: 'command'; readonly command: readonly [string, ...string[]] }
  | { readonly kind: 'handler'; readonly module: string };

export interface DeliverySettings extends WorkSettings {
  /** Names in which `*` stands for anything; none for all events. */
  readonly events: readonly string[];
  readonly ordered: boolean;
  /** For programs and handlers: everything in ours that is not Gatehouse's own, such as its secrets. */
  readonly environment: Readonly<Record<string, string>>;
}

export interface WebhookSettings {
  /** `null` for the plain variant, which keeps nothing. */
  readonly database: DatabaseAddress | null;
  readonly token: string | null;
  /** What signing secrets are sealed under; null if there is to be none. */
  readonly secret: string | null;
  readonly appName: string;
  /** Where events go; null if they wait in the inbox. */
  readonly target: Target | null;
  readonly delivery: DeliverySettings;
  /** Events a second for each token, in one process. */
  readonly rate: number;
  readonly eventSeconds: number;
  readonly deadSeconds: number;
  readonly inboxPage: boolean;
}

/** The service as the process runs it. */
export function webhook(options: WebhookSettings, surroundings: Surroundings) {
  const { token, secret, appName, target, delivery, rate } = options;
  const { log, metrics, announce } = surroundings;
  if (!options.database) return { routes: createRoutes('plain'), service: createPlain(token, appName, surroundings), storage: null, firstRun: async () => {}, jobs: [] };
  const database = createDatabase(options.database, SCHEMA, log, metrics);
  const signingKey = secret === null ? null : createSigningKey(secret);
  const isSelected = selector(delivery.events);
  const sightings = new Set<string>();
  let worker: Worker | null = null;
  const service = createExtended(
    database,
    {
      signingKey,
      planFor: (event, pageId) => (!target ? { kind: 'store' } : isSelected(event) ? { kind: 'work', orderKey: delivery.ordered && pageId !== null ? orderKeyOf(pageId) : null } : { kind: 'skip' }),
      rate,
      sightings,
      ring: target && (() => worker?.wake()),
    },
    surroundings,
  );
  return {
    routes: createRoutes('extended', options.inboxPage),
    service,
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    async firstRun() {
      for (const { key_id, secrets } of await countByKey(database)) {
        if (key_id !== signingKey?.id) log.error('WEBHOOK_SECRET is missing, or is not the one that signing secrets are sealed under', { key_id, secrets });
      }
      const first = await createFirstToken(database, token);
      if (first !== null) return announce(`webhook: created the first token: ${token === null ? first : 'that of WEBHOOK_TOKEN'}`);
      if (token !== null && (await findSender(database, digest(token))) === null) {
        log.warn('WEBHOOK_TOKEN is not used, because there are tokens already and it is not a live one of them');
      }
    },
    jobs: jobs(database, metrics, options, sightings),
    ...(target ? { work: () => (worker = startWorker(database, deliveryTo(target, delivery), delivery, log, metrics)) } : {}),
  };
}

/** @throws StartupError where every attempt would fail: better no start than a thousand dead events */
function deliveryTo(target: Target, { concurrency, environment }: DeliverySettings): Delivery {
  if (target.kind === 'forward') {
    if (!target.allowPrivate && isOutOfBounds(target.url)) throw new StartupError(`webhook: WEBHOOK_FORWARD_URL: ${PRIVATE_TARGET}.`);
    return createForward({ ...target, concurrency });
  }
  if (target.kind === 'command') {
    const [program] = target.command;
    if (isAbsolute(program)) mustAllow(program, constants.X_OK, 'WEBHOOK_COMMAND names a program that cannot be run');
    return createProgram({ ...target, environment });
  }
  mustAllow(target.module, constants.R_OK, 'WEBHOOK_HANDLER names a module that cannot be read');
  return createHandler({ ...target, environment });
}

function mustAllow(path: string, mode: number, otherwise: string): void {
  try {
    accessSync(path, mode);
  } catch (error) {
    throw new StartupError(`webhook: ${otherwise} (${error instanceof Error && 'code' in error ? String(error.code) : 'unknown'}).`);
  }
}

const BATCH = 500;

function jobs(database: Database, metrics: Metrics, { eventSeconds, deadSeconds }: WebhookSettings, sightings: Set<string>): readonly Job[] {
  const backlog = { waiting: 0, oldest: 0, dead: 0 };
  metrics.gauge('gatehouse_events_waiting', {}, () => backlog.waiting);
  metrics.gauge('gatehouse_events_oldest_seconds', {}, () => backlog.oldest);
  metrics.gauge('gatehouse_events_dead', {}, () => backlog.dead);
  return [
    {
      name: 'note which tokens were used',
      everySeconds: 5,
      everywhere: true,
      async batch() {
        const ids = [...sightings];
        sightings.clear();
        // What fails to be written is noted at its next use.
        if (ids.length > 0) await noteUse(database, ids);
        return false;
      },
    },
    {
      name: 'measure the backlog',
      everySeconds: 15,
      async batch() {
        Object.assign(backlog, await readBacklog(database));
        return false;
      },
    },
    {
      name: 'remove ended events',
      everySeconds: 300,
      async batch() {
        let isFull = false;
        for (const [status, seconds] of [['done', eventSeconds], ['skipped', eventSeconds], ['dead', deadSeconds]] as const) {
          const removed = await removeEnded(database, status, seconds, BATCH);
          metrics.count('gatehouse_rows_removed_total', { table: 'webhook.events' }, removed);
          isFull ||= removed === BATCH;
        }
        return isFull;
      },
    },
  ];
}
