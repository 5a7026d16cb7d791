import { createServerKey, type ServerKey } from '../crypto/box.ts';
import { digest } from '../crypto/token.ts';
import { isReady } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import { createKeyedQueue, type KeyedQueue, type Limiter } from '../runtime/limiter.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import type { SecretsSettings } from './settings.ts';

export type Limits = SecretsSettings['limits'];
export type SecretsOptions = Omit<SecretsSettings, 'database'>;
type Choices = Pick<SecretsSettings, 'limits' | 'passphraseCost' | 'receiptSeconds' | 'sharePages'>;

/** What handlers work with: keys and digests, no longer the texts they were made from. */
export interface SecretsService extends Choices {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly countEvent: ReturnType<Metrics['counter']>;
  readonly hashing: Limiter;
  /** Passphrases of one secret are tried one after the other. */
  readonly passphraseQueue: KeyedQueue;
  readonly serverKey: ServerKey;
  /** The current key first, then those that may still open what was sealed under them. */
  readonly openingKeys: readonly ServerKey[];
  readonly authDigest: Buffer;
  ready(): Promise<boolean>;
}

const READERS_WAITING = 32;

export function createSecrets(options: SecretsOptions, database: Database, { log, metrics, hashing, isServing }: ServiceContext): SecretsService {
  const { serverSecret, previousSecrets, authToken, limits, passphraseCost, receiptSeconds, sharePages } = options;
  const serverKey = createServerKey(serverSecret);
  return {
    limits,
    passphraseCost,
    receiptSeconds,
    sharePages,
    database,
    log,
    metrics,
    countEvent: metrics.counter('gatehouse_secret_events_total', 'Secrets stored, read, deleted and expired, and reads that failed, by event.', ['event']),
    hashing,
    passphraseQueue: createKeyedQueue(READERS_WAITING, 'the passphrase of one secret'),
    serverKey,
    openingKeys: [serverKey, ...previousSecrets.map(createServerKey)],
    authDigest: digest(authToken),
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
