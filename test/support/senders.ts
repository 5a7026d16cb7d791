/**
 * The senders' signatures, implemented a second time from their documentation, and tokens for them.
 */
import assert from 'node:assert/strict';
import {
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  randomUUID,
  sign,
} from 'node:crypto';
import { sealSecret } from '../../src/platform/crypto/service-secret.ts';
import { readConfig } from './settings.ts';
import { createDatabase, type Database } from '../../src/platform/db/pool.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { createMetrics } from '../../src/platform/runtime/metrics.ts';
import { createSigningKey } from '../../src/webhook/service.ts';
import { SOURCE_NAMES, type SourceName } from '../../src/webhook/sources.ts';
import { createToken } from './tokens.ts';

export const WEBHOOK_SECRET = 'webhook-secret-for-tests-0123456789abcdef';

export type SignedSource = Exclude<SourceName, 'generic' | 'custom'>;

/** An Ed25519 private key (RFC 8032) from a text. */
function privateKeyOf(seed: string) {
  const prefix = Buffer.from('302e020100300506032b657004220420', 'hex'); // PKCS #8, RFC 8410
  const bytes = createHash('sha256').update(seed).digest();
  return createPrivateKey({
    key: Buffer.concat([prefix, bytes]),
    format: 'der',
    type: 'pkcs8',
  });
}
const publicKeyOf = (seed: string) =>
  createPublicKey(privateKeyOf(seed)).export({ format: 'der', type: 'spki' }).subarray(-32);
/** The public keys that these tests know the private keys of, as the senders show them. */
const SEEDS = ['one sender', 'another sender'];
export const PUBLIC_KEYS = SEEDS.map((seed) => ({
  hex: publicKeyOf(seed).toString('hex'),
  standard: `whpk_${publicKeyOf(seed).toString('base64')}`,
}));

/** @param secret a public key of PUBLIC_KEYS, or any text for a key that nobody has */
export function signEd25519(secret: string, text: Buffer): Buffer {
  const known = PUBLIC_KEYS.findIndex(({ hex, standard }) => [hex, standard].includes(secret));
  return sign(null, text, privateKeyOf(SEEDS[known] ?? secret));
}

/** What a sender of each kind would show as its signing secret. */
export const SIGNING_SECRETS: Readonly<Record<SignedSource, string>> = {
  standard: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  github: "It's a Secret to Everybody",
  stripe: 'whsec_stripe_0123456789abcdef0123456789',
  slack: '8f742231b10e8888abcd99yyyzzz85a5',
  gitlab: 'whsec_dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0dGVzdHRlc3Q=',
  gitea: 'a secret of Gitea',
  bitbucket: 'a secret of Bitbucket',
  paddle: 'pdl_ntfset_01h84cjfwmdph2c7vfg7wywn_XKHqEvYwxGzCV1xR7qYdxIzv8oMbmnnP',
  shopify: 'a client secret of Shopify',
  discord: PUBLIC_KEYS[0]?.hex ?? '',
  linear: 'lin_wh_0123456789abcdef',
  sentry: 'a client secret of Sentry',
  asana: 'b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81',
  zendesk: 'dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ==',
  notion: 'secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl',
};
export const SIGNED_SOURCES = SOURCE_NAMES.filter(
  (name) => name !== 'generic' && name !== 'custom',
);

/** Sources of which nothing in the headers or before the body is a signed time. */
export const WITHOUT_TIME: readonly SourceName[] = [
  'github',
  'gitea',
  'bitbucket',
  'shopify',
  'linear',
  'sentry',
  'notion',
  'asana',
];

/** Seconds since 1970. */
export const now = (): number => Math.floor(Date.now() / 1000);

/** @param id only signed by Standard Webhooks  @param at seconds since 1970, or an invalid value */
export function signatureOf(
  source: SignedSource,
  secret: string,
  body: string | Buffer,
  { id, at = now() }: { id?: string | null; at?: number | string } = {},
): Record<string, string> {
  const signedId = id ?? 'msg_1';
  const hmac = (key: string | Buffer, prefix: string) =>
    createHmac('sha256', key).update(prefix).update(body);
  const digest = (prefix: string) => hmac(secret, prefix).digest('hex');
  switch (source) {
    case 'gitlab':
    case 'standard': {
      if (secret.startsWith('whpk_')) {
        const text = Buffer.concat([Buffer.from(`${signedId}.${at}.`), Buffer.from(body)]);
        return {
          'webhook-id': signedId,
          'webhook-timestamp': `${at}`,
          'webhook-signature': `v1a,${signEd25519(secret, text).toString('base64')}`,
        };
      }
      const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
      return {
        'webhook-id': signedId,
        'webhook-timestamp': `${at}`,
        'webhook-signature': `v1,${hmac(key, `${signedId}.${at}.`).digest('base64')}`,
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
      return { 'x-notion-signature': `sha256=${digest('')}` };
    default:
      return laterSignatureOf(source, secret, body, at);
  }
}

type LaterSource = Exclude<
  SignedSource,
  'standard' | 'gitlab' | 'github' | 'stripe' | 'slack' | 'notion'
>;

function laterSignatureOf(
  source: LaterSource,
  secret: string,
  body: string | Buffer,
  at: number | string,
): Record<string, string> {
  const hmac = (prefix: string) => createHmac('sha256', secret).update(prefix).update(body);
  switch (source) {
    case 'gitea':
      return { 'x-gitea-signature': hmac('').digest('hex') };
    case 'bitbucket':
      return { 'x-hub-signature': `sha256=${hmac('').digest('hex')}` };
    case 'paddle':
      return { 'paddle-signature': `ts=${at};h1=${hmac(`${at}:`).digest('hex')}` };
    case 'shopify':
      return { 'x-shopify-hmac-sha256': hmac('').digest('base64') };
    case 'discord': {
      const text = Buffer.concat([Buffer.from(`${at}`), Buffer.from(body)]);
      return {
        'x-signature-timestamp': `${at}`,
        'x-signature-ed25519': signEd25519(secret, text).toString('hex'),
      };
    }
    case 'linear':
      return { 'linear-signature': hmac('').digest('hex') };
    case 'asana':
      return { 'x-hook-signature': hmac('').digest('hex') };
    case 'sentry':
      return { 'sentry-hook-signature': hmac('').digest('hex') };
    case 'zendesk': {
      const isNumber = /^\d{1,11}$/.test(`${at}`);
      const time = isNumber
        ? new Date(Number(at) * 1000).toISOString().replace('.000', '')
        : `${at}`;
      return {
        'x-zendesk-webhook-signature-timestamp': time,
        'x-zendesk-webhook-signature': hmac(time).digest('base64'),
      };
    }
  }
}

/** A signature of a source under the secret that it has in tests. */
export const signedBy = (
  source: SignedSource,
  body: string | Buffer,
  options: Parameters<typeof signatureOf>[3] = {},
): Record<string, string> => signatureOf(source, SIGNING_SECRETS[source], body, options);

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
    createMetrics(),
  );
  owner.after(() => database.close());
  return database;
}

const secretOf = (source: SourceName) =>
  source === 'generic' || source === 'custom' ? null : SIGNING_SECRETS[source];

/**
 * @returns a new token's id and the token itself
 * @param secret null for none, as for Notion before its handshake
 */
export async function addToken(
  database: Database,
  source: SourceName,
  secret = secretOf(source),
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
  readonly deliveryId: string | null;
}

/** Of a source that names the event and the delivery in headers. */
const named =
  (eventHeader: string, event: string, idHeader: string, body: Record<string, unknown>) =>
  (): Sample => {
    const deliveryId = randomUUID();
    return { body, headers: { [eventHeader]: event, [idHeader]: deliveryId }, event, deliveryId };
  };

const LATER_SAMPLES = {
  gitlab: named('x-gitlab-event', 'Push Hook', 'webhook-id', { object_kind: 'push' }),
  gitea: named('x-gitea-event', 'push', 'x-gitea-delivery', { ref: 'refs/heads/main' }),
  bitbucket: named('x-event-key', 'repo:push', 'x-request-uuid', { push: { changes: [] } }),
  shopify: named('x-shopify-topic', 'orders/create', 'x-shopify-webhook-id', { id: 8_000 }),
  linear: () => {
    const data = { id: randomUUID() };
    const body = { action: 'create', type: 'Issue', data, webhookTimestamp: Date.now() };
    return named('linear-event', 'Issue', 'linear-delivery', body)();
  },
  sentry: named('sentry-hook-resource', 'issue', 'request-id', { action: 'created' }),
  paddle: () => {
    const deliveryId = `evt_${randomUUID()}`;
    return {
      body: { event_id: deliveryId, event_type: 'transaction.billed', data: { id: 'txn_1' } },
      headers: {},
      event: 'transaction.billed',
      deliveryId,
    };
  },
  zendesk: () => {
    const deliveryId = randomUUID();
    return {
      body: { id: deliveryId, type: 'zen:event-type:user.active_changed', event: {} },
      headers: {},
      event: 'zen:event-type:user.active_changed',
      deliveryId,
    };
  },
  asana: () => ({
    body: { events: [{ action: 'changed', created_at: '2026-01-01T00:00:00.000Z', user: {} }] },
    headers: {},
    event: 'changed',
    deliveryId: null,
  }),
  discord: () => ({
    body: {
      version: 1,
      application_id: '1234560123453231555',
      type: 1,
      event: { type: 'ENTITLEMENT_CREATE', timestamp: '2024-10-18T18:41:21.109604' },
    },
    headers: {},
    event: 'ENTITLEMENT_CREATE',
    deliveryId: null,
  }),
};

/** From the senders' documentation. None has a `data.page_id`. */
export const SAMPLES: Readonly<Record<SignedSource, () => Sample>> = {
  ...LATER_SAMPLES,
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
