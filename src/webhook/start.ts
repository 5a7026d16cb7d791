import { randomUUID } from 'node:crypto';
import { digest, randomToken } from '../crypto/token.ts';
import { createDatabase } from '../db/pool.ts';
import { bindRoutes } from '../http/call.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { type Job, removalJob } from '../runtime/jobs.ts';
import { WRONG_SECRET } from './receive.ts';
import { createRoutes } from './routes.ts';
import { SCHEMA } from './schema.ts';
import { createWebhook, type WebhookService } from './service.ts';
import type { WebhookSettings } from './settings.ts';
import { type Backlog, readBacklog, removeEnded, type Status } from './store/events.ts';
import {
  anyTokenExists,
  countByKey,
  findTokenCaller,
  insertToken,
  lockTable,
  markTokensUsed,
} from './store/tokens.ts';

export async function start(settings: WebhookSettings, context: ServiceContext) {
  if (!settings.database) return (await import('./plain.ts')).startPlain(settings, context);
  const database = createDatabase(settings.database, SCHEMA.name, context.log, context.metrics);
  const service = createWebhook(settings, database, context);
  const { target, inboxUsers } = settings;
  if (inboxUsers) {
    service.namedOperator = (await import('../http/user.ts')).trustedUser(
      inboxUsers.header,
      inboxUsers.names,
    );
  }
  const delivery =
    target && (await (await import('./delivery.ts')).load(target, settings.delivery, service));
  return {
    routes: bindRoutes(await createRoutes(settings.inboxPage ? context.site : null), service),
    storage: { database, schema: SCHEMA },
    firstRun: () => firstRun(service, settings.token),
    jobs: [...jobs(service, settings), ...(delivery?.jobs ?? [])],
    ...(delivery && { startWork: delivery.startWork, checkWork: delivery.checkWork }),
  };
}

const RESEAL =
  'signing secrets are sealed under WEBHOOK_SECRET_PREVIOUS; before you remove it: gatehouse token reseal';

/** Creates the first token, on any number of replicas exactly once: not if there is any, even a revoked one. */
async function firstRun(service: WebhookService, given: string | null): Promise<void> {
  const { database, signingKeys, log, announce, handOut } = service;
  for (const { key_id, secrets } of await countByKey(database)) {
    if (!signingKeys.some(({ id }) => id === key_id)) log.error(WRONG_SECRET, { key_id, secrets });
    else if (key_id !== signingKeys[0]?.id) log.info(RESEAL, { key_id, secrets });
  }
  // Looks without the lock first, because the lock waits for each change of a token that another replica makes.
  const created = (await database.read(anyTokenExists))
    ? null
    : await database.transaction(async (sql) => {
        await lockTable(sql);
        if (await anyTokenExists(sql)) return null;
        const [id, token] = [randomUUID(), given ?? randomToken()];
        await insertToken(sql, {
          id,
          name: 'first',
          role: 'sender',
          source: 'generic',
          digest: digest(token),
        });
        if (given !== null) return 'the value of WEBHOOK_TOKEN';
        // Handed out before the commit, so that it is not lost.
        const shown = await handOut('webhook-token', token);
        return `${shown}\nwebhook: replace it before production use: gatehouse token rotate ${id}`;
      });
  if (created !== null) return announce(`webhook: created the first token: ${created}`);
  if (given === null || (await findTokenCaller(database, digest(given)))?.is_active) return;
  log.warn('WEBHOOK_TOKEN ignored: tokens already exist and it is not among the active ones');
}

function jobs(
  { database, pendingLastSeen, metrics }: WebhookService,
  settings: WebhookSettings,
): Job[] {
  const { eventSeconds, deadSeconds } = settings;
  const backlog: Backlog = { waiting: 0, oldest: 0, dead: 0, paused: 0 };
  const { gauge } = metrics;
  gauge('gatehouse_events_waiting', 'Webhook events to be delivered.', {}, () => backlog.waiting);
  gauge(
    'gatehouse_events_oldest_seconds',
    'Age of the oldest event to be delivered.',
    {},
    () => backlog.oldest,
  );
  gauge('gatehouse_events_dead', 'Webhook events in dead letters.', {}, () => backlog.dead);
  gauge(
    'gatehouse_delivery_paused',
    'Whether an operator has paused delivery: 1 or 0.',
    {},
    () => backlog.paused,
  );
  const recordUse = async () => {
    const ids = [...pendingLastSeen];
    pendingLastSeen.clear();
    // If this fails, the next use is recorded.
    if (ids.length > 0) await markTokensUsed(database, ids);
  };
  const measure = async () => void Object.assign(backlog, await readBacklog(database));
  const remove = (status: Status, seconds: number) =>
    removalJob(metrics, 'webhook.events', 300, (limit) =>
      removeEnded(database, status, seconds, limit),
    );
  return [
    { name: 'record the last use of tokens', everySeconds: 5, batch: recordUse },
    { name: 'measure the backlog', everySeconds: 15, batch: measure },
    remove('done', eventSeconds),
    remove('skipped', eventSeconds),
    remove('dead', deadSeconds),
  ];
}
