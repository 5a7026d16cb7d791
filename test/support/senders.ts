/**
 * The senders' signatures, implemented a second time from their documentation, and tokens for them.
 */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { sealSecret } from '../../src/crypto/service-secret.ts';
import { readConfig } from './settings.ts';
import { createDatabase, type Database } from '../../src/db/pool.ts';
import { createLog } from '../../src/runtime/log.ts';
import { noMetrics } from '../../src/runtime/metrics.ts';
import { createSigningKey } from '../../src/webhook/service.ts';
import type { SourceName } from '../../src/webhook/sources.ts';
import { createToken } from '../../src/webhook/store/admin.ts';

export const WEBHOOK_SECRET = 'webhook-secret-for-tests-0123456789abcdef';

export type SignedSource = Exclude<SourceName, 'generic'>;

/** What a sender of each kind would show as its signing secret. */
export const SIGNING_SECRETS: Readonly<Record<SignedSource, string>> = {
  standard: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  github: "It's a Secret to Everybody",
  stripe: 'whsec_stripe_0123456789abcdef0123456789',
  slack: '8f742231b10e8888abcd99yyyzzz85a5',
  notion: 'secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl',
};

/** Seconds since 1970. */
export const now = (): number => Math.floor(Date.now() / 1000);

/** @param id only signed by Standard Webhooks  @param at seconds since 1970, or an invalid value */
export function signatureOf(
  source: SignedSource,
  secret: string,
  body: string | Buffer,
  { id = 'msg_1', at = now() }: { id?: string; at?: number | string } = {},
): Record<string, string> {
  const hmac = (key: string | Buffer, prefix: string) =>
    createHmac('sha256', key).update(prefix).update(body);
  switch (source) {
    case 'standard': {
      const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
      return {
        'webhook-id': id,
        'webhook-timestamp': `${at}`,
        'webhook-signature': `v1,${hmac(key, `${id}.${at}.`).digest('base64')}`,
      };
    }
    case 'github':
      return { 'x-hub-signature-256': `sha256=${hmac(secret, '').digest('hex')}` };
    case 'stripe':
      return { 'stripe-signature': `t=${at},v1=${hmac(secret, `${at}.`).digest('hex')}` };
    case 'slack':
      return {
        'x-slack-request-timestamp': `${at}`,
        'x-slack-signature': `v0=${hmac(secret, `v0:${at}:`).digest('hex')}`,
      };
    case 'notion':
      return { 'x-notion-signature': `sha256=${hmac(secret, '').digest('hex')}` };
  }
}

/** The service's own connections, for tests that call its functions. The schema must be there. */
export function openWebhook(
  owner: { after(fn: () => Promise<void>): void },
  url: string,
): Database {
  const address = readConfig(['webhook'], 'administer', { DATABASE_URL: url }).webhook?.database;
  assert.ok(address);
  const database = createDatabase(
    address,
    'webhook',
    createLog('silent', () => {}),
    noMetrics,
  );
  owner.after(() => database.close());
  return database;
}

/**
 * @returns a new token's id and the token itself
 * @param secret null for none, as for Notion before its handshake
 */
export async function addToken(
  database: Database,
  source: SourceName,
  secret: string | null,
  sealedUnder = WEBHOOK_SECRET,
): Promise<{ id: string; token: string }> {
  const sealed = secret === null ? null : sealSecret(createSigningKey(sealedUnder), secret);
  const { id, token } = await createToken(
    database,
    { name: source, role: 'sender', source },
    sealed,
  );
  return { id: id, token };
}

/** An event of a source. */
export interface Sample {
  readonly body: Record<string, unknown>;
  /** Unsigned headers. */
  readonly headers: Readonly<Record<string, string>>;
  readonly event: string;
  readonly deliveryId: string;
}

/** From the senders' documentation. None has a `data.page_id`. */
export const SAMPLES: Readonly<Record<SignedSource, () => Sample>> = {
  standard: () => ({
    body: { type: 'contact.created', timestamp: '2026-01-01T00:00:00Z', data: { id: 'c_1' } },
    headers: {},
    event: 'contact.created',
    deliveryId: `msg_${randomUUID()}`,
  }),
  github: () => {
    const deliveryId = randomUUID();
    return {
      body: { action: 'opened', type: 'misleading', id: 7 },
      headers: { 'x-github-event': 'issues', 'x-github-delivery': deliveryId },
      event: 'issues',
      deliveryId,
    };
  },
  stripe: () => {
    const deliveryId = `evt_${randomUUID()}`;
    return {
      body: { id: deliveryId, object: 'event', type: 'customer.created', data: { object: {} } },
      headers: {},
      event: 'customer.created',
      deliveryId,
    };
  },
  slack: () => {
    const deliveryId = `Ev${randomUUID()}`;
    return {
      body: {
        type: 'event_callback',
        event_id: deliveryId,
        event: { type: 'app_mention', text: 'x' },
      },
      headers: {},
      event: 'app_mention',
      deliveryId,
    };
  },
  notion: () => {
    const deliveryId = randomUUID();
    return {
      body: {
        id: deliveryId,
        type: 'page.content_updated',
        attempt_number: 1,
        entity: { id: 'p', type: 'page' },
      },
      headers: {},
      event: 'page.content_updated',
      deliveryId,
    };
  },
};
