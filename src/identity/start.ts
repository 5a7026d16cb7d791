import { hashPassword } from '../crypto/password.ts';
import { randomToken } from '../crypto/token.ts';
import { createDatabase, type Database, type DatabaseAddress } from '../db/pool.ts';
import { Failure } from '../http/errors.ts';
import { take } from '../http/shape.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { StartupError } from '../runtime/trouble.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { routes } from './routes.ts';
import { createIdentity, type IdentityOptions, type IdentityService } from './service.ts';
import { createFirstAdministrator, newUserShape } from './users.ts';
import type { Job } from '../runtime/jobs.ts';
import { removeOldAudit } from './store/audit.ts';
import { removeEndedSessions } from './store/sessions.ts';
import { writeSightings } from './store/sightings.ts';
import { removeForgotten } from './store/throttles.ts';

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
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    firstRun: () => firstRun(options, database, surroundings),
    jobs: jobs(service),
  } as const;
}

async function firstRun({ admin, passwords }: Options, database: Database, { announce }: Surroundings): Promise<void> {
  const password = admin.password ?? randomToken();
  const input = { username: admin.username, email: admin.email, password, verified: true, super_admin: true };
  const taken = take(newUserShape, input, '');
  const user = taken.ok
    ? await createFirstAdministrator(database, taken.value, { minLength: passwords.minLength, hash: (text) => hashPassword(text, passwords.cost) })
    : new Failure('invalid_body', { fields: taken.faults });
  if (user === null) return;
  if (user instanceof Failure) {
    const faults = (user.details.fields ?? []).map(({ path, message }) => `ADMIN_${path.slice(1).toUpperCase()} ${message}`);
    throw new StartupError(`identity: the first administrator cannot be made: ${faults.join('; ')}.`);
  }
  announce(`identity: created the first administrator "${user.username}" with ${admin.password === null ? `password ${password}` : 'the password of ADMIN_PASSWORD'}`);
}

const BATCH = 500;

/** Several replicas may run these at once: a row that another one removed is simply not there. */
export function jobs(service: IdentityService): readonly Job[] {
  const { database, metrics, sightings, retentionSeconds, auditSeconds } = service;
  const removal = (table: string, remove: () => Promise<number>): Job => ({
    name: `remove from ${table}`,
    everySeconds: 300,
    async batch() {
      const count = await remove();
      metrics.count('gatehouse_rows_removed_total', { table: `identity.${table}` }, count);
      return count === BATCH;
    },
  });
  return [
    removal('sessions', () => removeEndedSessions(database, retentionSeconds, BATCH)),
    removal('throttles', () => removeForgotten(database, BATCH)),
    removal('audit', () => removeOldAudit(database, auditSeconds, BATCH)),
    {
      name: 'note what was seen',
      everySeconds: 5,
      everywhere: true,
      async batch() {
        const [sessions, keys] = [[...sightings.sessions], [...sightings.keys]];
        sightings.sessions.clear();
        sightings.keys.clear();
        // What fails to be written is noted at its next use.
        if (sessions.length + keys.length > 0) await writeSightings(service, sessions, keys);
        return false;
      },
    },
  ];
}
