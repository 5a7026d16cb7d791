import { ConfigurationError } from '../settings.ts';
import type { Database } from '../db/pool.ts';
import { SCHEMA } from '../webhook/migrations.ts';
import { createSigningKey, type SigningKeys } from '../webhook/service.ts';
import * as settings from '../webhook/settings.ts';
import type { Terminal } from './command.ts';
import { withDatabase } from './database.ts';

export function requireKeys(keys: SigningKeys | null): SigningKeys {
  if (keys) return keys;
  throw new ConfigurationError(['WEBHOOK_SECRET must be set to the value that the service has.']);
}

/** Runs work on the webhook database. The keys are null without WEBHOOK_SECRET. */
export function withWebhook<T>(
  terminal: Terminal,
  work: (database: Database, keys: SigningKeys | null, own: settings.WebhookSettings) => Promise<T>,
): Promise<T> {
  return withDatabase(terminal, settings, SCHEMA, (database, own) => {
    const [key, ...earlier] = own.secrets.map(createSigningKey);
    return work(database, key ? [key, ...earlier] : null, own);
  });
}
