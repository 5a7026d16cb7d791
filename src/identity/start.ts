import { createDatabase } from '../db/pool.ts';
import { removeForgotten } from '../db/throttle-table.ts';
import { bindRoutes } from '../http/call.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { BATCH_ROWS, type Job, removalJob } from '../runtime/jobs.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { createRoutes } from './routes.ts';
import { createIdentity, type IdentityService } from './service.ts';
import type { IdentitySettings } from './settings.ts';
import { removeOldAudit } from './store/audit.ts';
import { removeEndedSessions, writeLastSeen } from './store/sessions.ts';
import { anyUserExists, eraseDeletedUsers } from './store/users.ts';

export async function start(settings: IdentitySettings, context: ServiceContext) {
  const { database: address, admin, ...options } = settings;
  const { portal } = settings;
  const database = createDatabase(address, SCHEMA, context.log, context.metrics);
  const factors = portal && (await import('./factors/check.ts'));
  const checkCode = factors && { checkCode: factors.createCodeCheck(portal.secrets) };
  const service = { ...createIdentity(options, database, context), ...checkCode };
  return {
    routes: bindRoutes(await createRoutes(portal && context.site), service),
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    async firstRun() {
      await factors?.reportKeys(service);
      if (await database.read(anyUserExists)) return;
      await (await import('./administrator.ts')).createFirstAdministrator(admin, service, context);
    },
    jobs: [...jobs(service), ...(factors?.factorJobs(service) ?? [])],
  };
}

/** Replicas may run these at once: a row that another one removed is not there. */
export function jobs(service: IdentityService): readonly Job[] {
  const { database, metrics, pendingLastSeen, retentionSeconds, auditSeconds } = service;
  return [
    removalJob(metrics, 'identity.sessions', 300, (max) => removeEndedSessions(database, retentionSeconds, max)),
    removalJob(metrics, 'identity.throttles', 300, (max) => removeForgotten(database, SCHEMA, max)),
    removalJob(metrics, 'identity.audit', 300, (max) => removeOldAudit(database, auditSeconds, max)),
    {
      name: 'erase deleted users',
      everySeconds: 300,
      batch: async () => (await eraseDeletedUsers(database, retentionSeconds, BATCH_ROWS)) === BATCH_ROWS,
    },
    {
      name: 'record last use',
      everySeconds: 5,
      async batch() {
        const ids = [...pendingLastSeen];
        pendingLastSeen.clear();
        // If this fails, the next use is recorded.
        if (ids.length > 0) await writeLastSeen(service, ids);
        return false;
      },
    },
  ];
}
