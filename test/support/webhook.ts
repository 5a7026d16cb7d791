import { after } from 'node:test';
import { launch } from './gatehouse.ts';
import { openWebhook, WEBHOOK_SECRET } from './senders.ts';

/** Webhook with the secret for signing secrets, and connections of its own. */
export async function launchWebhook(settings: Readonly<Record<string, string>> = {}) {
  const launched = await launch(['webhook'], { WEBHOOK_SECRET, ...settings });
  const database = openWebhook({ after }, launched.databaseUrl);
  return { ...launched, database, base: `${launched.webhook}/webhook` };
}
