/**
 * The senders' signatures, implemented a second time from their documentation, and tokens for them.
 */
import {
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  randomUUID,
  sign,
} from 'node:crypto';
import { sealSecret } from '../../src/platform/crypto/service-secret.ts';
import type { Database } from '../../src/platform/db/pool.ts';
import { createSigningKey } from '../../src/webhook/service.ts';
import { SOURCE_NAMES, type SourceName } from '../../src/webhook/sources.ts';
import { openConnections } from './connections.ts';
import type { Owner } from './owner.ts';
import { createToken } from './tokens.ts';
import { wordsOf } from './words.ts';

export const WEBHOOK_SECRET = 'webhook-secret-for-tests-0123456789abcdef';

export type SignedSource = Exclude<SourceName, 'generic' | 'custom'>;

/** An Ed25519 private key (RFC 8032) from a text. */
function privateKeyOf(seed: string) {
  const prefix = Buffer.from('302e020100300506032b657004220420', 'hex'); // PKCS #8, RFC 8410
  const key = Buffer.concat([prefix, createHash('sha256').update(seed).digest()]);
  return createPrivateKey({ key, format: 'der', type: 'pkcs8' });
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
function signEd25519(secret: string, text: Buffer): Buffer {
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
export const WITHOUT_TIME: readonly string[] = wordsOf(
  'github gitea bitbucket shopify linear sentry notion asana',
);

/** Seconds since 1970. */
export const now = (): number => Math.floor(Date.now() / 1000);

/** What a sender signs. */
interface Signing {
  readonly secret: string;
  readonly body: Buffer;
  readonly id: string;
  readonly at: number | string;
  /** The HMAC-SHA-256 of the body behind a prefix, under the secret. */
  mac(encoding: 'hex' | 'base64', prefix?: string): string;
}

function signStandard({ secret, body, id, at }: Signing) {
  const text = Buffer.concat([Buffer.from(`${id}.${at}.`), body]);
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  const signature = secret.startsWith('whpk_')
    ? `v1a,${signEd25519(secret, text).toString('base64')}`
    : `v1,${createHmac('sha256', key).update(text).digest('base64')}`;
  return { 'webhook-id': id, 'webhook-timestamp': `${at}`, 'webhook-signature': signature };
}

const SIGNERS: Readonly<Record<SignedSource, (signing: Signing) => Record<string, string>>> = {
  standard: signStandard,
  gitlab: signStandard,
  github: ({ mac }) => ({ 'x-hub-signature-256': `sha256=${mac('hex')}` }),
  gitea: ({ mac }) => ({ 'x-gitea-signature': mac('hex') }),
  bitbucket: ({ mac }) => ({ 'x-hub-signature': `sha256=${mac('hex')}` }),
  stripe: ({ mac, at }) => ({ 'stripe-signature': `t=${at},v1=${mac('hex', `${at}.`)}` }),
  paddle: ({ mac, at }) => ({ 'paddle-signature': `ts=${at};h1=${mac('hex', `${at}:`)}` }),
  shopify: ({ mac }) => ({ 'x-shopify-hmac-sha256': mac('base64') }),
  slack: ({ mac, at }) => ({
    'x-slack-request-timestamp': `${at}`,
    'x-slack-signature': `v0=${mac('hex', `v0:${at}:`)}`,
  }),
  discord: ({ secret, body, at }) => ({
    'x-signature-timestamp': `${at}`,
    'x-signature-ed25519': signEd25519(
      secret,
      Buffer.concat([Buffer.from(`${at}`), body]),
    ).toString('hex'),
  }),
  linear: ({ mac }) => ({ 'linear-signature': mac('hex') }),
  sentry: ({ mac }) => ({ 'sentry-hook-signature': mac('hex') }),
  zendesk({ mac, at }) {
    const isNumber = /^\d{1,11}$/.test(`${at}`);
    const time = isNumber ? new Date(Number(at) * 1000).toISOString().replace('.000', '') : `${at}`;
    return {
      'x-zendesk-webhook-signature-timestamp': time,
      'x-zendesk-webhook-signature': mac('base64', time),
    };
  },
  notion: ({ mac }) => ({ 'x-notion-signature': `sha256=${mac('hex')}` }),
  asana: ({ mac }) => ({ 'x-hook-signature': mac('hex') }),
};

/** @param id only signed by Standard Webhooks  @param at seconds since 1970, or an invalid value */
export const signatureOf = (
  source: SignedSource,
  secret: string,
  body: string | Buffer,
  { id, at = now() }: { id?: string | null; at?: number | string } = {},
): Record<string, string> =>
  SIGNERS[source]({
    secret,
    body: Buffer.from(body),
    id: id ?? 'msg_1',
    at,
    mac: (encoding, prefix = '') =>
      createHmac('sha256', secret).update(prefix).update(body).digest(encoding),
  });

/** A signature of a source under the secret that it has in tests. */
export const signedBy = (
  source: SignedSource,
  body: string | Buffer,
  options: Parameters<typeof signatureOf>[3] = {},
): Record<string, string> => signatureOf(source, SIGNING_SECRETS[source], body, options);

/** The service's own connections, for tests that call its functions. The schema must be there. */
export const openWebhook = (owner: Owner, url: string): Database =>
  openConnections(owner, url, 'webhook');

const secretOf = (source: SourceName) =>
  source === 'generic' || source === 'custom' ? null : SIGNING_SECRETS[source];

/**
 * @returns a new token's id and the token itself
 * @param secret null for none, as for Notion before its handshake
 */
export function addToken(
  database: Database,
  source: SourceName,
  secret = secretOf(source),
  sealedUnder = WEBHOOK_SECRET,
): Promise<{ id: string; token: string }> {
  const sealed = secret === null ? null : sealSecret(createSigningKey(sealedUnder), secret);
  return createToken(database, { name: source, role: 'sender', source }, sealed);
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
function inHeaders(eventHeader: string, event: string, idHeader: string, body: object): Sample {
  const deliveryId = randomUUID();
  const headers = { [eventHeader]: event, [idHeader]: deliveryId };
  return { body: { ...body }, headers, event, deliveryId };
}
/** Of a source that names both in the body, or signs the id. */
const inBody = (event: string, deliveryId: string | null, body: object): Sample => ({
  body: { ...body },
  headers: {},
  event,
  deliveryId,
});

/** From the senders' documentation. None has a `data.page_id`. */
export const SAMPLES: Readonly<Record<SignedSource, () => Sample>> = {
  standard: () =>
    inBody('contact.created', `msg_${randomUUID()}`, {
      type: 'contact.created',
      timestamp: '2026-01-01T00:00:00Z',
      data: { id: 'c_1' },
    }),
  github: () =>
    inHeaders('x-github-event', 'issues', 'x-github-delivery', {
      action: 'opened',
      type: 'misleading',
      id: 7,
    }),
  gitlab: () => inHeaders('x-gitlab-event', 'Push Hook', 'webhook-id', { object_kind: 'push' }),
  gitea: () => inHeaders('x-gitea-event', 'push', 'x-gitea-delivery', { ref: 'refs/heads/main' }),
  bitbucket: () =>
    inHeaders('x-event-key', 'repo:push', 'x-request-uuid', { push: { changes: [] } }),
  stripe(id = `evt_${randomUUID()}`) {
    const type = 'customer.created';
    return inBody(type, id, { id, object: 'event', type, data: { object: {} } });
  },
  paddle(event_id = `evt_${randomUUID()}`) {
    const event_type = 'transaction.billed';
    return inBody(event_type, event_id, { event_id, event_type, data: { id: 'txn_1' } });
  },
  shopify: () =>
    inHeaders('x-shopify-topic', 'orders/create', 'x-shopify-webhook-id', { id: 8_000 }),
  slack(event_id = `Ev${randomUUID()}`) {
    const type = 'app_mention';
    return inBody(type, event_id, { type: 'event_callback', event_id, event: { type, text: 'x' } });
  },
  discord() {
    const type = 'ENTITLEMENT_CREATE';
    const event = { type, timestamp: '2024-10-18T18:41:21.109604' };
    return inBody(type, null, {
      version: 1,
      application_id: '1234560123453231555',
      type: 1,
      event,
    });
  },
  linear() {
    const body = { action: 'create', type: 'Issue', data: { id: randomUUID() } };
    const timed = { ...body, webhookTimestamp: Date.now() };
    return inHeaders('linear-event', 'Issue', 'linear-delivery', timed);
  },
  sentry: () => inHeaders('sentry-hook-resource', 'issue', 'request-id', { action: 'created' }),
  zendesk(id = randomUUID()) {
    const type = 'zen:event-type:user.active_changed';
    return inBody(type, id, { id, type, event: {} });
  },
  notion(id = randomUUID()) {
    const type = 'page.content_updated';
    return inBody(type, id, { id, type, attempt_number: 1, entity: { id: 'p', type: 'page' } });
  },
  asana() {
    const event = { action: 'changed', created_at: '2026-01-01T00:00:00.000Z', user: {} };
    return inBody('changed', null, { events: [event] });
  },
};
