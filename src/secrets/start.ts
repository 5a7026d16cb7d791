import { createDatabase, type DatabaseAddress } from '../db/pool.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { routes } from './routes.ts';
import { createSecrets, type SecretsOptions, type SecretsService } from './service.ts';
import type { Job } from '../runtime/jobs.ts';
import { removeEnded } from './store.ts';

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

const BATCH = 500;

/** No answer depends on this: every statement checks the expiry itself. It keeps what has ended from lying around. */
export function jobs({ database }: SecretsService): readonly Job[] {
  return [{ name: 'remove ended secrets', everySeconds: 60, batch: async () => (await removeEnded(database, BATCH)) >= BATCH }];
}
