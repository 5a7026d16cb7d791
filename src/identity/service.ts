import type { Database } from '../db/pool.ts';
import { isReady } from '../db/migrate.ts';
import { createLimiter, type Limiter } from '../runtime/limiter.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import type { IdentitySettings } from './settings.ts';
import { readThrottleSecret } from './store/throttles.ts';

export type IdentityOptions = Omit<IdentitySettings, 'database' | 'admin'>;

/** What handlers work with. */
export interface IdentityService extends IdentityOptions {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly countPasswordCheck: ReturnType<Metrics['counter']>;
  readonly hashing: Limiter;
  /** Refusals that are held back for a moment; so many at once, and beyond them none. */
  readonly refusals: Limiter;
  /** Sessions and keys whose use is to be noted, away from any request's path. */
  readonly pendingLastSeen: { readonly sessions: Set<string>; readonly keys: Set<string> };
  throttleSecret(): Promise<Buffer>;
  ready(): Promise<boolean>;
}

const REFUSALS_HELD = 512;

export function createIdentity(options: IdentityOptions, database: Database, { log, metrics, hashing, isServing }: ServiceContext): IdentityService {
  let secret: Buffer | null = null;
  return {
    passwords: options.passwords,
    sessionSeconds: options.sessionSeconds,
    idleSeconds: options.idleSeconds,
    retentionSeconds: options.retentionSeconds,
    auditSeconds: options.auditSeconds,
    database,
    log,
    metrics,
    countPasswordCheck: metrics.counter('gatehouse_password_checks_total', 'Passwords checked at login and before a change, by outcome: right, wrong, throttled.', ['outcome']),
    hashing,
    refusals: createLimiter(REFUSALS_HELD, 0, 'a refusal'),
    pendingLastSeen: { sessions: new Set(), keys: new Set() },
    throttleSecret: async () => (secret ??= await readThrottleSecret(database)),
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
