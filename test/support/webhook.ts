import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after } from 'node:test';
import { sealSecret } from '../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../src/webhook/service.ts';
import type { CustomSource } from '../../src/webhook/sources.ts';
import { type Answer, launch } from './gatehouse.ts';
import { openWebhook, WEBHOOK_SECRET } from './senders.ts';
import { createToken } from './tokens.ts';

/** The signing secret of custom sources. */
export const CUSTOM_SECRET = 'the secret of a custom sender';
/** A signature of such a source. */
export const macOf = (content: string | Buffer, secret = CUSTOM_SECRET): string =>
  createHmac('sha256', secret).update(content).digest('hex');

/** How a request was accepted, or the code of a refusal. */
export const outcomeOf = ({ status, json }: Answer): string =>
  json.status ?? `${status} ${json.error.code}`;

/** Webhook with the secret for signing secrets, and connections of its own. */
export async function launchWebhook(
  settings: Readonly<Record<string, string>> = {},
  answerMs?: number,
) {
  const all = { WEBHOOK_SECRET, ...settings };
  const launched = await launch(['webhook'], all, { after }, answerMs);
  const { sql } = launched;
  const database = openWebhook({ after }, launched.databaseUrl);
  const count = async () => {
    const [found] = await sql`select (select count(*)::int from webhook.events) as events,
      (select count(*)::int from webhook.signing_secrets) as secrets`;
    return { ...found };
  };
  return {
    ...launched,
    database,
    base: `${launched.webhook}/webhook`,
    /** An event as it is stored. */
    stored: async (id: string) => ({
      ...(await sql`select * from webhook.events where id = ${id}`)[0],
    }),
    count,
    /** Neither an event nor a signing secret. */
    async storesNothing(act: () => Promise<unknown>): Promise<void> {
      const before = await count();
      await act();
      assert.deepEqual(await count(), before);
    },
    /** @returns a token of a custom source, which does not sign by default */
    async customToken(described: Partial<CustomSource> = {}): Promise<string> {
      const custom = { scheme: null, event: ['/type'], deliveryId: [], ...described };
      const row = { name: 'custom', role: 'sender', source: 'custom', custom } as const;
      const sealed = custom.scheme && sealSecret(createSigningKey(WEBHOOK_SECRET), CUSTOM_SECRET);
      return (await createToken(database, row, sealed)).token;
    },
  };
}
