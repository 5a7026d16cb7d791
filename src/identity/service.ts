import { createReadiness } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import { createGuessLimit } from '../http/guesses.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { createLimiter } from '../runtime/limiter.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import type { IdentitySettings } from './settings.ts';
import { readThrottleSecret } from './store/throttles.ts';

const MAX_HELD = 512;
const CHECKS = ['gatehouse_password_checks_total', 'Passwords checked, by outcome: right, wrong, throttled.'] as const;

/** What handlers work with. */
export type IdentityService = ReturnType<typeof createIdentity>;

/** @param options the settings without secrets */
export function createIdentity(
  options: Omit<IdentitySettings, 'database' | 'admin'>, database: Database, context: ServiceContext,
) {
  const { log, metrics, hashing, isServing } = context;
  let secret: Buffer | null = null;
  return {
    ...options,
    database,
    log,
    metrics,
    hashing,
    limitGuesses: createGuessLimit(),
    /** Throttled logins whose answer is held back. */
    held: createLimiter(MAX_HELD, 0, 'a throttled login'),
    countPasswordCheck: metrics.counter(...CHECKS, ['outcome']),
    /** Ids of sessions and keys in use, written in the background. */
    pendingLastSeen: { sessions: new Set<string>(), keys: new Set<string>() },
    throttleSecret: async () => (secret ??= await readThrottleSecret(database)),
    isServing,
    readiness: createReadiness(database, SCHEMA, MIGRATIONS, log),
  };
}
