import { createDatabase, type Database, type DatabaseAddress } from '../db/pool.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { StartupError } from '../runtime/trouble.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { routes } from './routes.ts';
import { createIdentity, type IdentityOptions, type IdentityService } from './service.ts';
import { createFirstAdministrator } from './users.ts';
import type { Job } from '../runtime/jobs.ts';
import { removeEndedSessions } from './store.ts';

interface Options extends IdentityOptions {
  readonly database: DatabaseAddress;
  readonly admin: { readonly username: string; readonly password: string | null; readonly email: string };
}

/** The service as the process runs it. The specification wants 500 from identity when its database fails. */
export function identity(options: Options, surroundings: Surroundings) {
  const database = createDatabase(options.database, SCHEMA, surroundings.log, surroundings.metrics);
  const service = createIdentity(options, database, surroundings);
  return {
    routes,
    service,
    envelope: 'data',
    unavailable: 'service_failed',
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    firstRun: () => firstRun(options, database, surroundings),
    jobs: jobs(service),
  } as const;
}

async function firstRun(options: Options, database: Database, { announce }: Surroundings): Promise<void> {
  const creation = await createFirstAdministrator(database, options.admin, options.passwords);
  if (creation === null) return;
  if (creation.outcome !== 'created') {
    const faults = creation.faults.map(({ path, message }) => `ADMIN_${path.slice(1).toUpperCase()} ${message}`);
    throw new StartupError(`identity: the first administrator cannot be made: ${faults.join('; ')}.`);
  }
  const password = creation.generatedPassword === null ? 'the password of ADMIN_PASSWORD' : `password ${creation.generatedPassword}`;
  announce(`identity: created the first administrator "${creation.user.username}" with ${password}`);
}

const BATCH = 500;

/** Several replicas may run these at once: a row that another one removed is simply not there. */
export function jobs(service: IdentityService): readonly Job[] {
  return [
    {
      name: 'remove ended sessions',
      everySeconds: 300,
      batch: async () => (await removeEndedSessions(service.database, service.retentionSeconds, BATCH)) === BATCH,
    },
  ];
}
