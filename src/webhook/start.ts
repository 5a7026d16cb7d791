import { randomUUID } from 'node:crypto';
import { staleKeys } from '../platform/crypto/service-secret.ts';
import { sha256, randomToken } from '../platform/crypto/token.ts';
import { createDatabase } from '../platform/db/pool.ts';
import { insertToken } from '../platform/db/tokens.ts';
import { bindRoutes } from '../platform/http/route/route.ts';
import type { ServiceContext } from '../platform/runtime/context.ts';
import { removalJob } from '../platform/runtime/jobs.ts';
import { SCHEMA } from './migrations.ts';
import type { Status } from './model.ts';
import { startDispatcher } from './dispatcher.ts';
import { startPlain } from './plain.ts';
import { createRoutes } from './routes.ts';
import { createWebhook, type WebhookService } from './service.ts';
import type { WebhookSettings } from './settings.ts';
import { listEmitters, storeSettings } from './store/outbox.ts';
import { type Backlog, readBacklog, removeEnded } from './store/events.ts';
import { countByKey } from './store/signing-secrets.ts';
import { anyTokenExists, findTokenCaller, lockTable, markTokensUsed } from './store/tokens.ts';
import { addUnstored, removeUnstored } from './store/unstored.ts';
import { removeIdlePages } from './store/work.ts';
import { loadTarget } from './target.ts';
import { UNKNOWN_KEY } from './verification.ts';

export async function start(settings: WebhookSettings, context: ServiceContext) {
  if (!settings.database) return startPlain(settings, context);
  const database = createDatabase(settings.database, SCHEMA.name, context.log, context.metrics);
  const service = createWebhook(settings, database, context);
  const { commonTarget, forwardSecret, delivery } = settings;
  const loaded = commonTarget && (await loadTarget(commonTarget, forwardSecret, delivery));
  return {
    routes: bindRoutes(createRoutes(settings.inboxPage ? context.site : null), service),
    storage: { database, schema: SCHEMA },
    beforeReady: () => beforeReady(service, settings.token),
    jobs: jobs(service),
    report: async () =>
      (await listEmitters(database)).map(
        ({ role, token, token_id, state }) =>
          `role ${role} may emit events for token "${token}" (${token_id}, ${state})`,
      ),
    async observe(since: string, until: string) {
      return (await import('./notices.ts')).observe(service, since, until);
    },
    ...(loaded && { checkWork: loaded.check }),
    startWork() {
      loaded?.check();
      return startDispatcher(service, loaded?.create());
    },
  };
}

/** @param given WEBHOOK_TOKEN */
async function beforeReady(service: WebhookService, given: string | null) {
  const { database, log, announce, commonTarget, delivery, maxSignedBytes } = service;
  await storeSettings(database, {
    has_target: commonTarget !== null,
    events: delivery.events,
    max_body_bytes: maxSignedBytes ?? service.MAX_BODY_BYTES,
  });
  const { unknown, earlier } = staleKeys(service.signingKeys, await countByKey(database));
  for (const row of unknown) log.error(UNKNOWN_KEY, row);
  for (const row of earlier) {
    log.info(
      'signing secrets are sealed under WEBHOOK_SECRET_PREVIOUS; before you remove it: gatehouse token reseal',
      row,
    );
  }
  // Looks without the lock first, because the lock waits for each change of a token that another
  // replica makes.
  const hasToken = await database.read(anyTokenExists);
  const created = hasToken ? null : await createFirstToken(service, given);
  if (created !== null) return announce(`webhook: created the first token: ${created}`);
  if (given === null || (await findTokenCaller(database, sha256(given)))?.is_active) return;
  log.warn('WEBHOOK_TOKEN ignored: tokens already exist and it is not among the active ones');
}

/**
 * On any number of replicas exactly once: not if there is any token, even a revoked one.
 * @returns where the token is; null if another replica has created one
 */
const createFirstToken = ({ database, handOut }: WebhookService, given: string | null) =>
  database.transaction(async (sql) => {
    await lockTable(sql);
    if (await anyTokenExists(sql)) return null;
    const id = randomUUID();
    const token = given ?? randomToken();
    await insertToken(sql, SCHEMA.name, {
      id,
      name: 'first',
      role: 'sender',
      digest: sha256(token),
    });
    if (given !== null) return 'the value of WEBHOOK_TOKEN';
    // Handed out before the commit, so that it is not lost.
    const shown = await handOut('webhook-token', token);
    return `${shown}\nwebhook: replace it before production use: gatehouse token rotate ${id}`;
  });

/** How old the numbers of the backlog may be. */
const BACKLOG_MS = 60_000;
/** More events than this count as this many. */
const MOST_COUNTED = 100_000;

const GAUGES = [
  ['gatehouse_events_waiting', 'Webhook events to be delivered.', 'waiting'],
  ['gatehouse_events_oldest_seconds', 'Age of the oldest event to be delivered.', 'oldest'],
  ['gatehouse_events_dead', 'Webhook events in dead letters.', 'dead'],
  ['gatehouse_delivery_paused', 'Whether an operator has paused delivery: 1 or 0.', 'paused'],
] as const;

function jobs(service: WebhookService) {
  const { database, lastSeen, metrics, unstored, eventSeconds, deadSeconds } = service;
  let backlog: Backlog | null = null;
  let measuredAt = -Infinity;
  for (const [name, help, key] of GAUGES) {
    metrics.gauge(name, help, () => {
      // Without the database, old numbers would look as if all were well.
      const isFresh = performance.now() - measuredAt < BACKLOG_MS;
      return backlog && isFresh ? backlog[key] : Number.NaN;
    });
  }
  const remove = (status: Status, seconds: number) =>
    removalJob(metrics, 'webhook.events', 300, (limit) =>
      removeEnded(database, status, seconds, limit),
    );
  return [
    lastSeen.job('record the last use of tokens', (ids) => markTokensUsed(database, ids)),
    {
      name: 'measure the backlog',
      everySeconds: 15,
      async batch() {
        backlog = await readBacklog(database, MOST_COUNTED);
        measuredAt = performance.now();
      },
    },
    {
      name: 'write what was not stored',
      everySeconds: 1,
      async batch() {
        const all = unstored.takeAll();
        if (all.length > 0) await addUnstored(database, all);
      },
    },
    removalJob(metrics, 'webhook.unstored', 3_600, (limit) => removeUnstored(database, limit)),
    remove('done', eventSeconds),
    remove('skipped', eventSeconds),
    remove('dead', deadSeconds),
    removalJob(metrics, 'webhook.pages', 300, (limit) => removeIdlePages(database, limit)),
  ];
}
