import { accessSync, constants as mode } from 'node:fs';
import { isAbsolute } from 'node:path';
import { digest } from '../crypto/token.ts';
import { createDatabase } from '../db/pool.ts';
import { codeOf } from '../db/retry.ts';
import { bindRoutes } from '../http/call.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { StartupError } from '../runtime/errors.ts';
import { type Job, removalJob } from '../runtime/jobs.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { createPlain } from './plain.ts';
import { WRONG_SECRET } from './receive.ts';
import { createPlainRoutes, createRoutes } from './routes.ts';
import { createWebhook, type WebhookService } from './service.ts';
import type { DeliverySettings, TargetSettings, WebhookSettings } from './settings.ts';
import { removeEnded, type Status } from './store/events.ts';
import { countByKey, findTokenCaller, markTokensUsed } from './store/tokens.ts';
import { readBacklog, removeIdlePages } from './store/work.ts';
import { createFirstToken } from './tokens.ts';
import { type DeliveryTarget, startWorker } from './worker.ts';

/** Assembles the service for `serve`. */
export async function start(settings: WebhookSettings, context: ServiceContext) {
  if (!settings.database) {
    const routes = bindRoutes(createPlainRoutes(), createPlain(settings, context));
    return { routes, storage: null, firstRun: async () => {}, jobs: [] };
  }
  const { target, delivery } = settings;
  const { log, metrics } = context;
  const database = createDatabase(settings.database, SCHEMA, log, metrics);
  const service = createWebhook(settings, database, context);
  const createTarget = target && (await loadTarget(target, delivery));
  const startWork = createTarget && (() => {
    const worker = startWorker(database, createTarget(), delivery, log, metrics);
    service.notifyWorker = worker.notify;
    return worker;
  });
  return {
    routes: bindRoutes(await createRoutes(settings.inboxPage), service),
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    firstRun: () => firstRun(service, settings.token, context),
    jobs: jobs(service, settings, metrics),
    ...(startWork && { startWork }),
  };
}

const RESEAL = 'signing secrets are sealed under WEBHOOK_SECRET_PREVIOUS; before you remove it: gatehouse token reseal';

async function firstRun(
  { database, signingKeys, log }: WebhookService, given: string | null, { announce, handOut }: ServiceContext,
): Promise<void> {
  for (const { key_id, secrets } of await countByKey(database)) {
    if (!signingKeys.some(({ id }) => id === key_id)) log.error(WRONG_SECRET, { key_id, secrets });
    else if (key_id !== signingKeys[0]?.id) log.info(RESEAL, { key_id, secrets });
  }
  const shown = await createFirstToken(database, given, (token) => handOut('webhook-token', token));
  if (shown !== null) return announce(`webhook: created the first token: ${shown}`);
  if (given === null || (await findTokenCaller(database, digest(given)))?.is_active) return;
  log.warn('WEBHOOK_TOKEN ignored: tokens already exist and it is not among the active ones');
}

/** Loads the target in use. @returns a function that throws StartupError if every attempt would fail */
async function loadTarget(settings: TargetSettings, delivery: DeliverySettings): Promise<() => DeliveryTarget> {
  const { concurrency, environment } = delivery;
  if (settings.kind === 'forward') {
    const { createForwardTarget, hasPrivateAddress, PRIVATE_TARGET } = await import('./targets/forward.ts');
    return () => {
      if (settings.allowPrivate || !hasPrivateAddress(settings.url)) return createForwardTarget(settings, concurrency);
      throw new StartupError(`webhook: WEBHOOK_FORWARD_URL: ${PRIVATE_TARGET}.`);
    };
  }
  if (settings.kind === 'handler') {
    const { createHandlerTarget } = await import('./targets/handler.ts');
    return () => {
      checkAccess(settings.module, mode.R_OK, 'WEBHOOK_HANDLER names a module that cannot be read');
      return createHandlerTarget(settings.module, environment);
    };
  }
  const { createCommandTarget } = await import('./targets/command.ts');
  return () => {
    const [program] = settings.command;
    // A name without a path is looked up in PATH at each attempt.
    if (isAbsolute(program)) checkAccess(program, mode.X_OK, 'WEBHOOK_COMMAND names a program that cannot be run');
    return createCommandTarget(settings.command, environment);
  };
}

function checkAccess(path: string, access: number, problem: string): void {
  try {
    accessSync(path, access);
  } catch (error) {
    throw new StartupError(`webhook: ${problem} (${codeOf(error)}).`);
  }
}

function jobs({ database, pendingLastSeen }: WebhookService, settings: WebhookSettings, metrics: Metrics): Job[] {
  const { eventSeconds, deadSeconds } = settings;
  const backlog = { waiting: 0, oldest: 0, dead: 0 };
  const { gauge } = metrics;
  gauge('gatehouse_events_waiting', 'Webhook events to be delivered.', {}, () => backlog.waiting);
  gauge('gatehouse_events_oldest_seconds', 'Age of the oldest event to be delivered.', {}, () => backlog.oldest);
  gauge('gatehouse_events_dead', 'Webhook events in dead letters.', {}, () => backlog.dead);
  const recordUse = async () => {
    const ids = [...pendingLastSeen];
    pendingLastSeen.clear();
    // If this fails, the next use is recorded.
    if (ids.length > 0) await markTokensUsed(database, ids);
    return false;
  };
  const measure = async () => {
    Object.assign(backlog, await readBacklog(database));
    return false;
  };
  const remove = (status: Status, seconds: number) =>
    removalJob(metrics, 'webhook.events', 300, (limit) => removeEnded(database, status, seconds, limit));
  return [
    { name: 'record the last use of tokens', everySeconds: 5, batch: recordUse },
    { name: 'measure the backlog', everySeconds: 15, batch: measure },
    removalJob(metrics, 'webhook.pages', 300, (limit) => removeIdlePages(database, limit)),
    remove('done', eventSeconds), remove('skipped', eventSeconds), remove('dead', deadSeconds),
  ];
}
