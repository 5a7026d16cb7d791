import { createDatabase } from '../platform/db/pool.ts';
import { removeForgotten } from '../platform/db/throttle.ts';
import { bindRoutes } from '../platform/http/route/route.ts';
import type { ServiceContext } from '../platform/runtime/context.ts';
import { describeError } from '../platform/runtime/errors.ts';
import { BATCH_ROWS, removalJob } from '../platform/runtime/jobs.ts';
import { createRoutes } from './routes.ts';
import { SCHEMA } from './migrations.ts';
import { createSecrets, KEY_MISSING, recordEvent, type SecretsService } from './service.ts';
import type { SecretsSettings } from './settings.ts';
import { removeRequests } from './store/requests.ts';
import { expireSecrets, removeReceipts } from './store/secrets.ts';
import { listKeys, rememberKey } from './store/server-keys.ts';

export async function start(settings: SecretsSettings, context: ServiceContext) {
  const routes = await createRoutes(settings.limits, settings.sharePages ? context.site : null);
  const database = createDatabase(settings.database, SCHEMA.name, context.log, context.metrics);
  const service = createSecrets(settings, database, context);
  return {
    routes: bindRoutes(routes, service),
    storage: { database, schema: SCHEMA },
    beforeReady: () => noteServerKey(service),
    jobs: createJobs(service),
  };
}

/** Secrets under one key, at startup and every minute. The command `secret keys` counts all. */
const MOST_COUNTED = 10_000;
const KEY_NEW =
  'SERVER_SECRET was never used with this database before: correct in a rotation, otherwise a mistake';

/** Records which server secret is in use, and logs which ones are configured or missing. */
async function noteServerKey({ database, log, serverKey, openingKeys }: SecretsService) {
  if (await rememberKey(database, serverKey.id)) log.warn(KEY_NEW, { key_id: serverKey.id });
  // Not awaited: nothing depends on it.
  void listKeys(database, serverKey, openingKeys, MOST_COUNTED)
    .then((keys) => {
      for (const { key_id, secrets, state } of keys) {
        if (state === 'missing') log.error(KEY_MISSING, { key_id, state, secrets });
        else if (state !== 'retired') log.info('server secret', { key_id, state, secrets });
      }
    })
    .catch((error) => log.warn('counting secrets by server secret failed', describeError(error)));
}

/**
 * No reply depends on these, because every statement checks the expiry itself. They remove content
 * that has ended.
 */
function createJobs(service: SecretsService) {
  const { database, metrics, receiptSeconds } = service;
  return [
    {
      name: 'empty expired secrets',
      everySeconds: 60,
      async batch() {
        const expired = await expireSecrets(database, BATCH_ROWS);
        for (const secret of expired) recordEvent(service, 'expired', secret, null);
        return expired.length === BATCH_ROWS;
      },
    },
    removalJob(metrics, 'secrets.secrets', 60, (limit) =>
      removeReceipts(database, receiptSeconds, limit),
    ),
    removalJob(metrics, 'secrets.requests', 60, (limit) =>
      removeRequests(database, receiptSeconds, limit),
    ),
    removalJob(metrics, 'secrets.throttles', 60, (limit) =>
      removeForgotten(database, SCHEMA.name, limit),
    ),
    {
      name: 'count secrets by server secret',
      everySeconds: 60,
      async batch() {
        for (const { key_id, secrets } of await listKeys(database, null, [], MOST_COUNTED)) {
          metrics.gauge(
            'gatehouse_secrets_stored',
            'Readable secrets and requests, by key id.',
            () => secrets,
            {
              key_id,
            },
          );
        }
      },
    },
  ];
}
