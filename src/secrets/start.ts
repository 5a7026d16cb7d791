import { createDatabase } from '../db/pool.ts';
import { bindRoutes } from '../http/call.ts';
import { BATCH_ROWS, type Job, removalJob } from '../runtime/jobs.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { beginWithKey } from './keys.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { record } from './record.ts';
import { createRoutes } from './routes.ts';
import { createSecrets, type SecretsService } from './service.ts';
import type { SecretsSettings } from './settings.ts';
import { countByKey, expireSecrets, removeReceipts, removeTries } from './store.ts';

/** The service as the process runs it. */
export function start(options: SecretsSettings, context: ServiceContext) {
  const database = createDatabase(options.database, SCHEMA, context.log, context.metrics);
  const service = createSecrets(options, database, context);
  return {
    routes: bindRoutes(createRoutes(options.limits, options.sharePages), service),
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    firstRun: () => beginWithKey(service),
    jobs: jobs(service),
  } as const;
}

/** No answer depends on these: every statement checks the expiry itself. They keep what has ended from lying around. */
export function jobs(service: SecretsService): readonly Job[] {
  const { database, metrics, receiptSeconds } = service;
  return [
    {
      name: 'empty expired secrets',
      everySeconds: 60,
      async batch() {
        const expired = await expireSecrets(database, BATCH_ROWS);
        for (const { id, key_id: keyId } of expired) record(service, 'expired', { id, keyId }, null);
        return expired.length === BATCH_ROWS;
      },
    },
    removalJob(metrics, 'secrets.secrets', 60, (most) => removeReceipts(database, receiptSeconds, most)),
    removalJob(metrics, 'secrets.throttles', 60, (most) => removeTries(database, most)),
    {
      name: 'count secrets by server secret',
      everySeconds: 60,
      async batch() {
        for (const { key_id, secrets } of await countByKey(database)) metrics.gauge('gatehouse_secrets_stored', 'Secrets that can still be read, by the key id of their server secret, as counted within the last minute.', { key_id }, () => secrets);
        return false;
      },
    },
  ];
}
