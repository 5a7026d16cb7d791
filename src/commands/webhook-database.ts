import { ConfigurationError } from '../settings.ts';
import type { ServerKey } from '../crypto/envelope.ts';
import type { Database } from '../db/pool.ts';
import { SCHEMA } from '../webhook/migrations.ts';
import { createSigningKey, type SigningKeys } from '../webhook/service.ts';
import * as settings from '../webhook/settings.ts';
import type { Terminal } from './command.ts';
import { withDatabase } from './database.ts';

/** @throws ConfigurationError without a key */
export function requireKeys([key, ...earlier]: readonly ServerKey[]): SigningKeys {
  if (key) return [key, ...earlier];
  throw new ConfigurationError(['WEBHOOK_SECRET must be set to the value that the service has.']);
}

type Work<T> = (
  database: Database,
  keys: readonly ServerKey[],
  own: settings.WebhookSettings,
) => Promise<T>;

/** Runs work on the webhook database. There are no keys without WEBHOOK_SECRET. */
export const withWebhook = <T>(terminal: Terminal, work: Work<T>): Promise<T> =>
  withDatabase(terminal, settings, SCHEMA, (database, own) =>
    work(database, own.secrets.map(createSigningKey), own),
  );
