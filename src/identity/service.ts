import { isReady } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { createLimiter, type Limiter } from '../runtime/limiter.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import type { IdentitySettings } from './settings.ts';
import { readThrottleSecret } from './store/throttles.ts';

/** The settings without secrets. */
export type IdentityOptions = Omit<IdentitySettings, 'database' | 'admin'>;

/** What handlers work with. */
export interface IdentityService extends IdentityOptions {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly countPasswordCheck: ReturnType<Metrics['counter']>;
  readonly hashing: Limiter;
  /** Throttled logins whose answer is held back. */
  readonly held: Limiter;
  /** Ids of sessions and keys in use, written in the background. */
  readonly pendingLastSeen: { readonly sessions: Set<string>; readonly keys: Set<string> };
  throttleSecret(): Promise<Buffer>;
  ready(): Promise<boolean>;
}

const MAX_HELD = 512;
const CHECKS = ['gatehouse_password_checks_total', 'Passwords checked, by outcome: right, wrong, throttled.'] as const;

export function createIdentity(options: IdentityOptions, database: Database, context: ServiceContext): IdentityService {
  const { log, metrics, hashing, isServing } = context;
  let secret: Buffer | null = null;
  return {
    ...options,
    database,
    log,
    metrics,
    countPasswordCheck: metrics.counter(...CHECKS, ['outcome']),
    hashing,
    held: createLimiter(MAX_HELD, 0, 'a throttled login'),
    pendingLastSeen: { sessions: new Set(), keys: new Set() },
    throttleSecret: async () => (secret ??= await readThrottleSecret(database)),
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
