import { hashPassword } from '../crypto/password.ts';
import { randomToken } from '../crypto/token.ts';
import { createDatabase, type Database } from '../db/pool.ts';
import { bindRoutes } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { validate } from '../http/shape.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { StartupError } from '../runtime/errors.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { routes } from './routes.ts';
import { createIdentity, type IdentityService } from './service.ts';
import type { IdentitySettings } from './settings.ts';
import { createFirstAdministrator, newUserShape } from './users.ts';
import { type Job, removalJob } from '../runtime/jobs.ts';
import { removeOldAudit } from './store/audit.ts';
import { removeEndedSessions } from './store/sessions.ts';
import { writeLastSeen } from './store/last-seen.ts';
import { removeForgotten } from './store/throttles.ts';

/** The service as the process runs it. The specification wants 500 from identity when its database fails. */
export function start(options: IdentitySettings, context: ServiceContext) {
  const database = createDatabase(options.database, SCHEMA, context.log, context.metrics);
  const service = createIdentity(options, database, context);
  return {
    routes: bindRoutes(routes, service),
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    firstRun: () => firstRun(options, database, context),
    jobs: jobs(service),
  };
}

async function firstRun({ admin, passwords }: IdentitySettings, database: Database, { announce }: ServiceContext): Promise<void> {
  const password = admin.password ?? randomToken();
  const input = { username: admin.username, email: admin.email, password, verified: true, super_admin: true };
  const taken = validate(newUserShape, input, '');
  const user = taken.ok
    ? await createFirstAdministrator(database, taken.value, { minLength: passwords.minLength, hash: (text) => hashPassword(text, passwords.cost) })
    : new Failure('invalid_body', { fields: taken.errors });
  if (user === null) return;
  if (user instanceof Failure) {
    const faults = (user.details.fields ?? []).map(({ path, message }) => `ADMIN_${path.slice(1).toUpperCase()} ${message}`);
    throw new StartupError(`identity: the first administrator cannot be made: ${faults.join('; ')}.`);
  }
  announce(`identity: created the first administrator "${user.username}" with ${admin.password === null ? `password ${password}` : 'the password of ADMIN_PASSWORD'}`);
}

/** Several replicas may run these at once: a row that another one removed is simply not there. */
export function jobs(service: IdentityService): readonly Job[] {
  const { database, metrics, pendingLastSeen, retentionSeconds, auditSeconds } = service;
  return [
    removalJob(metrics, 'identity.sessions', 300, (most) => removeEndedSessions(database, retentionSeconds, most)),
    removalJob(metrics, 'identity.throttles', 300, (most) => removeForgotten(database, most)),
    removalJob(metrics, 'identity.audit', 300, (most) => removeOldAudit(database, auditSeconds, most)),
    {
      name: 'note what was seen',
      everySeconds: 5,
      async batch() {
        const [sessions, keys] = [[...pendingLastSeen.sessions], [...pendingLastSeen.keys]];
        pendingLastSeen.sessions.clear();
        pendingLastSeen.keys.clear();
        // What fails to be written is noted at its next use.
        if (sessions.length + keys.length > 0) await writeLastSeen(service, sessions, keys);
        return false;
      },
    },
  ];
}
