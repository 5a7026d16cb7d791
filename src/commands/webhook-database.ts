import { ConfigurationError } from '../platform/process/settings.ts';
import { SCHEMA } from '../webhook/migrations.ts';
import { createSigningKey } from '../webhook/service.ts';
import * as settings from '../webhook/settings.ts';
import type { SigningKeys } from '../webhook/store/signing-secrets.ts';
import { databaseOf } from './database.ts';

export const inWebhook = databaseOf(settings, SCHEMA);

/** None without WEBHOOK_SECRET. */
export const keysOf = ({ secrets }: settings.WebhookSettings) => secrets.map(createSigningKey);

/** @throws ConfigurationError without a key */
export function requireKeys(own: settings.WebhookSettings): SigningKeys {
  const [key, ...earlier] = keysOf(own);
  if (key) return [key, ...earlier];
  throw new ConfigurationError(['WEBHOOK_SECRET must be set to the value that the service has.']);
}
