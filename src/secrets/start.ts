import { createDatabase, type DatabaseAddress } from '../db/pool.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { jobs } from './jobs.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { routes } from './routes.ts';
import { createSecrets, type SecretsOptions } from './service.ts';

/** The service as the process runs it. */
export function secrets(options: SecretsOptions & { readonly database: DatabaseAddress }, surroundings: Surroundings) {
  const database = createDatabase(options.database, SCHEMA, surroundings.log, surroundings.metrics);
  const service = createSecrets(options, database, surroundings);
  return {
    routes,
    service,
    envelope: 'bare',
    unavailable: 'unavailable',
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    firstRun: async () => {},
    jobs: jobs(service),
  } as const;
}
