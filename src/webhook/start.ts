import { digest } from '../crypto/token.ts';
import { createDatabase, type DatabaseAddress } from '../db/pool.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { createPlain } from './plain.ts';
import { routes } from './routes.ts';
import { createExtended } from './service.ts';
import { findToken } from './store.ts';
import { createFirstToken } from './tokens.ts';

interface Options {
  /** `null` for the plain variant, which keeps nothing. */
  readonly database: DatabaseAddress | null;
  readonly token: string | null;
  readonly appName: string;
}

/** The service as the process runs it. */
export function webhook({ database: address, token, appName }: Options, surroundings: Surroundings) {
  const { log, metrics, announce } = surroundings;
  const common = { routes, envelope: 'bare', unavailable: 'unavailable', jobs: [] } as const;
  if (!address) return { ...common, service: createPlain(token, appName, surroundings), storage: null, firstRun: async () => {} };
  const database = createDatabase(address, SCHEMA, log, metrics);
  return {
    ...common,
    service: createExtended(database, surroundings),
    storage: { database, schema: SCHEMA, migrations: MIGRATIONS },
    async firstRun() {
      const first = await createFirstToken(database, token);
      if (first !== null) return announce(`webhook: created the first token: ${token === null ? first : 'that of WEBHOOK_TOKEN'}`);
      if (token !== null && (await findToken(database, digest(token))) === null) {
        log.warn('WEBHOOK_TOKEN is not used, because there are tokens already and it is not a live one of them');
      }
    },
  };
}
