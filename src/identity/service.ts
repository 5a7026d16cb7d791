import type { Database } from '../db/pool.ts';
import { isReady } from '../db/migrate.ts';
import { createGate, type Gate } from '../runtime/gate.ts';
import type { ScryptCost } from '../crypto/password.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { readThrottleSecret } from './store/throttles.ts';

export interface IdentityOptions {
  readonly passwords: { readonly minLength: number; readonly cost: ScryptCost };
  /** How long a session lives from login. */
  readonly sessionSeconds: number;
  /** How long it lives from its last use; 0 for as long. */
  readonly idleSeconds: number;
  /** How long an ended session is kept to be seen in lists. */
  readonly retentionSeconds: number;
  readonly auditSeconds: number;
}

/** What handlers work with. */
export interface IdentityService extends IdentityOptions {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly hashing: Gate;
  /** Refusals that are held back for a moment; so many at once, and beyond them none. */
  readonly refusals: Gate;
  /** Sessions and keys whose use is to be noted, away from any request's path. */
  readonly sightings: { readonly sessions: Set<string>; readonly keys: Set<string> };
  throttleSecret(): Promise<Buffer>;
  ready(): Promise<boolean>;
}

const REFUSALS_HELD = 512;

export function createIdentity(options: IdentityOptions, database: Database, { log, metrics, hashing, isServing }: Surroundings): IdentityService {
  let secret: Buffer | null = null;
  return {
    ...options,
    database,
    log,
    metrics,
    hashing,
    refusals: createGate(REFUSALS_HELD, 0, 'a refusal'),
    sightings: { sessions: new Set(), keys: new Set() },
    throttleSecret: async () => (secret ??= await readThrottleSecret(database)),
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
