import { accessSync, constants } from 'node:fs';
import { isAbsolute } from 'node:path';
import { createDatabase, type Database } from '../db/pool.ts';
import { bindRoutes } from '../http/call.ts';
import { digest } from '../crypto/token.ts';
import { type Job, removalJob } from '../runtime/jobs.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { StartupError } from '../runtime/errors.ts';
import { createForward, isOutOfBounds, PRIVATE_TARGET } from './targets/forward.ts';
import { createHandler } from './targets/handler.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { createPlain } from './plain.ts';
import { createProgram } from './targets/command.ts';
import { createRoutes } from './routes.ts';
import { orderKeyOf, selector } from './rules.ts';
import { createExtended } from './service.ts';
import type { DeliverySettings, Target, WebhookSettings } from './settings.ts';
import { createSigningKey } from './signing.ts';
import { removeEnded } from './store/events.ts';
import { countByKey, findSender, noteUse } from './store/tokens.ts';
import { readBacklog } from './store/work.ts';
import { createFirstToken } from './tokens.ts';
import { type Delivery, startWorker, type Worker } from './worker.ts';

/** The service as the process runs it. */
export function start(options: WebhookSettings, context: ServiceContext) {
  const { token, secret, appName, target, delivery, rate } = options;
  const { log, metrics, announce } = context;
  if (!options.database) {
    return { routes: bindRoutes(createRoutes('plain'), createPlain(token, appName, context)), storage: null, firstRun: async () => {}, jobs: [] };
  }
  const database = createDatabase(options.database, SCHEMA, log, metrics);
  const signingKey = secret === null ? null : createSigningKey(secret);
  const isSelected = selector(delivery.events);
  const pendingLastSeen = new Set<string>();
  let worker: Worker | null = null;
  const service = createExtended(
    database,
    {
      signingKey,
      planFor: (event, pageId) => (!target ? { kind: 'store' } : isSelected(event) ? { kind: 'work', orderKey: delivery.ordered && pageId !== null ? orderKeyOf(pageId) : null } : { kind: 'skip' }),
      rate,
      pendingLastSeen,
      notify: target && (() => worker?.notify()),
    },
    context,
  );
  return {
    routes: bindRoutes(createRoutes('extended', options.inboxPage), service),
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
    jobs: jobs(database, metrics, options, pendingLastSeen),
    ...(target ? { startWork: () => (worker = startWorker(database, deliveryTo(target, delivery), delivery, log, metrics)) } : {}),
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

function jobs(database: Database, metrics: Metrics, { eventSeconds, deadSeconds }: WebhookSettings, pendingLastSeen: Set<string>): readonly Job[] {
  const backlog = { waiting: 0, oldest: 0, dead: 0 };
  metrics.gauge('gatehouse_events_waiting', 'Webhook events that wait for their delivery, or are being delivered.', {}, () => backlog.waiting);
  metrics.gauge('gatehouse_events_oldest_seconds', 'Age of the oldest of them.', {}, () => backlog.oldest);
  metrics.gauge('gatehouse_events_dead', 'Webhook events whose delivery has failed for good.', {}, () => backlog.dead);
  return [
    {
      name: 'note which tokens were used',
      everySeconds: 5,
      async batch() {
        const ids = [...pendingLastSeen];
        pendingLastSeen.clear();
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
    ...([['done', eventSeconds], ['skipped', eventSeconds], ['dead', deadSeconds]] as const).map(([status, seconds]) =>
      removalJob(metrics, 'webhook.events', 300, (most) => removeEnded(database, status, seconds, most)),
    ),
  ];
}
