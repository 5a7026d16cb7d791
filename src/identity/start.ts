import { createDatabase } from '../db/pool.ts';
import { bindRoutes } from '../http/call.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { createRoutes } from './routes.ts';
import { SCHEMA } from './schema.ts';
import { createIdentity } from './service.ts';
import type { IdentitySettings } from './settings.ts';
import { anyUserExists } from './store/users.ts';

export async function start(settings: IdentitySettings, context: ServiceContext) {
  const { database: address, admin, ...options } = settings;
  const { portal } = options;
  const database = createDatabase(address, SCHEMA.name, context.log, context.metrics);
  const factors = portal && (await import('./factors/codes.ts'));
  const checkCode = factors && { checkCode: factors.createCodeCheck(portal.secrets) };
  const service = { ...createIdentity(options, database, context), ...checkCode };
  const { createJobs } = await import('./store/housekeeping.ts');
  return {
    routes: bindRoutes(await createRoutes(portal && context.site), service),
    storage: { database, schema: SCHEMA },
    async firstRun() {
      await factors?.reportKeys(service);
      if (await database.read(anyUserExists)) return;
      await (await import('./administrator.ts')).createFirstAdministrator(admin, service, context);
    },
    jobs: createJobs(service),
  };
}
