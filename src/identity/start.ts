import { createDatabase } from '../db/pool.ts';
import { bindRoutes } from '../http/call.ts';
import type { ServiceContext } from '../runtime/context.ts';
import type { Job } from '../runtime/jobs.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { createRoutes } from './routes.ts';
import { createIdentity, type IdentityService } from './service.ts';
import type { IdentitySettings } from './settings.ts';
import { writeLastSeen } from './store/sessions.ts';
import { anyUserExists } from './store/users.ts';

export async function start(settings: IdentitySettings, context: ServiceContext) {
  const { database: address, admin, ...options } = settings;
  const { portal } = settings;
  const database = createDatabase(address, SCHEMA, context.log, context.metrics);
  const factors = portal && (await import('./factors/check.ts'));
  const checkCode = factors && { checkCode: factors.createCodeCheck(portal.secrets) };
  const service = { ...createIdentity(options, database, context), ...checkCode };
  const { createJobs } = await import('./store/housekeeping.ts');
  return {
    routes: bindRoutes(await createRoutes(portal && context.site), service),
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    async firstRun() {
      await factors?.reportKeys(service);
      if (await database.read(anyUserExists)) return;
      await (await import('./administrator.ts')).createFirstAdministrator(admin, service, context);
    },
    jobs: [recordLastUse(service), ...createJobs(service)],
  };
}

export const recordLastUse = (service: IdentityService): Job => ({
  name: 'record last use',
  everySeconds: 5,
  async batch() {
    const ids = [...service.pendingLastSeen];
    service.pendingLastSeen.clear();
    // If this fails, the next use is recorded.
    if (ids.length > 0) await writeLastSeen(service, ids);
    return false;
  },
});
