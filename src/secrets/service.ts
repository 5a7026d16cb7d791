import { createServerKey, type ServerKey } from '../crypto/box.ts';
import { digest } from '../crypto/token.ts';
import { isReady } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import type { Log } from '../runtime/log.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';

export interface SecretsOptions {
  readonly serverSecret: string;
  readonly previousSecrets: readonly string[];
  readonly authToken: string;
  /** How long a secret lives unless its maker says otherwise; 0 for ever. */
  readonly secretSeconds: number;
}

/** What handlers work with: keys and digests, no longer the texts they were made from. */
export interface SecretsService {
  readonly database: Database;
  readonly log: Log;
  readonly serverKey: ServerKey;
  /** The current key first, then those that may still open what was sealed under them. */
  readonly openingKeys: readonly ServerKey[];
  readonly authDigest: Buffer;
  readonly secretSeconds: number;
  ready(): Promise<boolean>;
}

export function createSecrets(options: SecretsOptions, database: Database, { log, isServing }: Surroundings): SecretsService {
  const serverKey = createServerKey(options.serverSecret);
  return {
    database,
    log,
    serverKey,
    openingKeys: [serverKey, ...options.previousSecrets.map(createServerKey)],
    authDigest: digest(options.authToken),
    secretSeconds: options.secretSeconds,
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
