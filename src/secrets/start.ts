import { createDatabase, type DatabaseAddress } from '../db/pool.ts';
import type { Job } from '../runtime/jobs.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { beginWithKey } from './keys.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { record } from './record.ts';
import { createRoutes } from './routes.ts';
import { createSecrets, type SecretsOptions, type SecretsService } from './service.ts';
import { countByKey, expireSecrets, removeReceipts, removeTries } from './store.ts';

/** The service as the process runs it. */
export function secrets(options: SecretsOptions & { readonly database: DatabaseAddress }, surroundings: Surroundings) {
  const database = createDatabase(options.database, SCHEMA, surroundings.log, surroundings.metrics);
  const service = createSecrets(options, database, surroundings);
  return {
    routes: createRoutes(options.limits, options.sharePages),
    service,
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    firstRun: () => beginWithKey(service),
    jobs: jobs(service),
  } as const;
}

const BATCH = 500;

/** No answer depends on these: every statement checks the expiry itself. They keep what has ended from lying around. */
export function jobs(service: SecretsService): readonly Job[] {
  const { database, metrics, receiptSeconds } = service;
  const removal = (table: string, remove: () => Promise<number>): Job => ({
    name: `remove from ${table}`,
    everySeconds: 60,
    async batch() {
      const count = await remove();
      metrics.count('gatehouse_rows_removed_total', { table: `secrets.${table}` }, count);
      return count === BATCH;
    },
  });
  return [
    {
      name: 'empty expired secrets',
      everySeconds: 60,
      async batch() {
        const expired = await expireSecrets(database, BATCH);
        for (const { id, key_id: keyId } of expired) record(service, 'expired', { id, keyId }, null);
        return expired.length === BATCH;
      },
    },
    removal('secrets', () => removeReceipts(database, receiptSeconds, BATCH)),
    removal('throttles', () => removeTries(database, BATCH)),
    {
      name: 'count secrets by server secret',
      everySeconds: 60,
      async batch() {
        for (const { key_id, secrets } of await countByKey(database)) metrics.gauge('gatehouse_secrets_stored', { key_id }, () => secrets);
        return false;
      },
    },
  ];
}
