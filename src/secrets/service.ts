import { createServerKey, type ServerKey } from '../crypto/box.ts';
import type { ScryptCost } from '../crypto/password.ts';
import { digest } from '../crypto/token.ts';
import { isReady } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import type { Gate } from '../runtime/gate.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { createTurns, type Turns } from '../runtime/turns.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';

/** What who stores a secret may ask for, and what holds if nothing is asked; 0 for no such limit. */
export interface Limits {
  readonly seconds: number;
  readonly mostSeconds: number;
  readonly reads: number;
  readonly mostReads: number;
}

interface Choices {
  readonly limits: Limits;
  readonly passphraseCost: ScryptCost;
  /** How long a receipt outlives its secret. */
  readonly receiptSeconds: number;
  readonly sharePages: boolean;
}

export interface SecretsOptions extends Choices {
  readonly serverSecret: string;
  readonly previousSecrets: readonly string[];
  readonly authToken: string;
}

/** What handlers work with: keys and digests, no longer the texts they were made from. */
export interface SecretsService extends Choices {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly hashing: Gate;
  /** Passphrases of one secret are tried one after the other. */
  readonly turns: Turns;
  readonly serverKey: ServerKey;
  /** The current key first, then those that may still open what was sealed under them. */
  readonly openingKeys: readonly ServerKey[];
  readonly authDigest: Buffer;
  ready(): Promise<boolean>;
}

const READERS_WAITING = 32;

export function createSecrets(options: SecretsOptions, database: Database, { log, metrics, hashing, isServing }: Surroundings): SecretsService {
  const { serverSecret, previousSecrets, authToken, ...choices } = options;
  const serverKey = createServerKey(serverSecret);
  return {
    ...choices,
    database,
    log,
    metrics,
    hashing,
    turns: createTurns(READERS_WAITING, 'the passphrase of one secret'),
    serverKey,
    openingKeys: [serverKey, ...previousSecrets.map(createServerKey)],
    authDigest: digest(authToken),
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
