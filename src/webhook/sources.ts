import type { IncomingHttpHeaders } from 'node:http';
import { object, type Schema, text, withoutNul } from '../platform/http/route/schema.ts';
import { answerChallenge } from './challenges.ts';
import { PAGE_ID, type Places } from './places.ts';
import type { ReceiveReply } from './reply.ts';
import type { Scheme } from './signatures.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

/** A kind of sender. */
export type Source = Readonly<{
  /** How its requests are signed. Null: not signed. */
  scheme: Scheme | null;
  /** What its bodies must have besides. */
  schema?: Schema<unknown>;
  event: Places;
  /** Of every event, if its sender names none. */
  name?: string | undefined;
  /** Unless the scheme signs an id. */
  deliveryId: Places;
  /**
   * A member that makes each body unique. The digest of a body, which is signed, then identifies
   * the event as well as an id that is missing or not signed.
   */
  unique?: string;
  /** Where the body has the time at which it was signed. */
  time?: string | undefined;
  /** What its events are about: by its value they can be delivered in order. */
  subject?: Places;
  /** By what the events of a token are delivered in order, if the token says it. */
  order?: Places;
  /** Further headers that are kept with an event, and beginnings of their names. */
  kept?: readonly string[];
  keptPrefixes?: readonly string[];
  /** Members of the body, numbers or texts, that differ between attempts to deliver an event. */
  varying?: readonly string[];
  /** How many seconds old the signed time of a repetition may be; MAX_AGE_SECONDS by default. */
  maxAge?: number | undefined;
  /** Whether the sender made the body, and its id. By default, it did. */
  isOwnBody?: (body: JsonObject) => boolean;
  /**
   * Set if the sender's first request is unsigned and contains the signing secret of the later
   * ones: in a header, which it expects back, or as the only member of the body.
   */
  sendsSecret?: string;
  /**
   * The reply to a handshake, which is not an event: JSON or a text. Null: the request is an event.
   * @param secret that verified it; null if it is not signed
   */
  handshake?: (
    headers: IncomingHttpHeaders,
    body: JsonObject,
    secret: string | null,
  ) => ReceiveReply | string | null;
  /** Query parameters of a handshake. The reply is the value of the first that is present. */
  echoed?: readonly string[];
  /** Which requests expect a reply without a body: 204 always, or 200 to forms. */
  emptyReply?: 'always' | 'to forms';
  /** Set if the body may be a form (application/x-www-form-urlencoded). */
  takesForms?: true;
  /** Set if of a form, the JSON in its field `payload` is signed. */
  signsPayload?: true;
}>;

/** What a token of the source `custom` says about its sender, as it is stored. */
export type CustomSource = Pick<
  Source,
  'scheme' | 'event' | 'name' | 'deliveryId' | 'time' | 'maxAge' | 'kept' | 'keptPrefixes'
>;

/** What PostgreSQL and an index can hold. */
export const eventName = text({
  min: 1,
  max: 1_024,
  description: 'The kind of event',
  pattern: withoutNul,
});
/** What the generic source requires, as specified. */
export const genericSchema = object({
  event: eventName,
  data: object({ page_id: text() }),
});

/** `v1` with a secret, `v1a` with a public key. */
const STANDARD: Scheme = {
  header: 'webhook-signature',
  prefix: 'v1,',
  publicPrefix: 'v1a,',
  separators: ' ',
  encoding: 'base64',
  text: '{id}.{timestamp}.{body}',
  time: 'webhook-timestamp',
  id: 'webhook-id',
};

/** From each sender's documentation. `generic` is the form of the specification. */
export const SOURCES = {
  generic: {
    scheme: null,
    schema: genericSchema,
    event: ['/event'],
    subject: [PAGE_ID],
    deliveryId: ['webhook-id', 'idempotency-key'],
    kept: ['webhook-timestamp', 'svix-id', 'svix-timestamp'],
  },
  standard: {
    // Svix sends the same under names of its own.
    scheme: {
      ...STANDARD,
      alias: { header: 'svix-signature', time: 'svix-timestamp', id: 'svix-id' },
    },
    event: ['/type'],
    deliveryId: [],
  },
  github: {
    scheme: { header: 'x-hub-signature-256', prefix: 'sha256=' },
    event: ['x-github-event'],
    subject: ['/repository/id', '/organization/id'],
    deliveryId: ['x-github-delivery'],
    kept: ['x-github-hook-id'],
    takesForms: true,
    handshake: (headers) => (headers['x-github-event'] === 'ping' ? { status: 'pong' } : null),
  },
  gitlab: {
    scheme: STANDARD,
    event: ['x-gitlab-event'],
    subject: ['/project/id', '/project_id'],
    deliveryId: [],
  },
  gitea: {
    scheme: { header: 'x-gitea-signature' },
    event: ['x-gitea-event'],
    subject: ['/repository/id'],
    deliveryId: ['x-gitea-delivery'],
    takesForms: true,
    signsPayload: true,
  },
  bitbucket: {
    scheme: { header: 'x-hub-signature', prefix: 'sha256=' },
    event: ['x-event-key'],
    subject: ['/repository/uuid', '/repository/id'],
    // From Bitbucket Cloud and from Bitbucket Data Center.
    deliveryId: ['x-request-uuid', 'x-request-id'],
  },
  stripe: {
    scheme: {
      header: 'stripe-signature',
      separators: ',',
      prefix: 'v1=',
      timePrefix: 't=',
      text: '{timestamp}.{body}',
    },
    event: ['/type'],
    subject: ['/data/object/id'],
    deliveryId: ['/id'],
    // The number of endpoints that have not accepted the event yet.
    varying: ['pending_webhooks'],
  },
  paddle: {
    scheme: {
      header: 'paddle-signature',
      separators: ';',
      prefix: 'h1=',
      timePrefix: 'ts=',
      text: '{timestamp}:{body}',
    },
    event: ['/event_type'],
    subject: ['/data/id'],
    deliveryId: ['/event_id'],
    // Another one for each replay.
    varying: ['notification_id'],
  },
  shopify: {
    // Webhooks have the names with x-, Events the others.
    scheme: {
      header: 'x-shopify-hmac-sha256',
      encoding: 'base64',
      alias: { header: 'shopify-hmac-sha256' },
    },
    event: ['x-shopify-topic', 'shopify-topic'],
    subject: ['/id', 'shopify-resource-id'],
    deliveryId: ['x-shopify-webhook-id', 'shopify-webhook-id'],
    kept: [
      'x-shopify-shop-domain',
      'x-shopify-api-version',
      'x-shopify-event-id',
      'shopify-shop-domain',
      'shopify-api-version',
      'shopify-event-id',
      'shopify-action',
      'shopify-handle',
      'shopify-resource-id',
      'shopify-triggered-at',
    ],
  },
  slack: {
    scheme: {
      header: 'x-slack-signature',
      prefix: 'v0=',
      text: 'v0:{timestamp}:{body}',
      time: 'x-slack-request-timestamp',
    },
    // Of events; of interactions, and of events about the app; of commands.
    event: ['/event/type', '/type', '/command'],
    // The channel. That of an event about a channel is an object.
    subject: ['/event/channel/id', '/event/channel', '/channel/id', '/channel_id'],
    deliveryId: ['/event_id', '/trigger_id'],
    kept: ['x-slack-retry-num', 'x-slack-retry-reason'],
    takesForms: true,
    // Whoever gave a command would be shown a reply.
    emptyReply: 'to forms',
    handshake: (_headers, { type, challenge, ssl_check }) => {
      if (ssl_check === '1') return {};
      return type === 'url_verification' && typeof challenge === 'string' ? { challenge } : null;
    },
  },
  discord: {
    scheme: {
      header: 'x-signature-ed25519',
      algorithm: 'ed25519',
      text: '{timestamp}{body}',
      time: 'x-signature-timestamp',
    },
    event: ['/event/type'],
    deliveryId: [],
    unique: '/event/timestamp',
    handshake: (_headers, { type }) => (type === 0 ? {} : null), // PING
    emptyReply: 'always',
  },
  linear: {
    scheme: { header: 'linear-signature' },
    event: ['/type'],
    subject: ['/data/id'],
    deliveryId: ['linear-delivery'],
    kept: ['linear-event'],
    time: '/webhookTimestamp',
    // For hours, a recorded request could be sent again under another id, which is not signed.
    unique: '/webhookTimestamp',
    varying: ['webhookTimestamp'],
    // The last retry comes after 1 minute, 1 hour and 6 hours, with the same bytes.
    maxAge: 8 * 3_600,
  },
  sentry: {
    scheme: { header: 'sentry-hook-signature' },
    event: ['sentry-hook-resource'],
    subject: ['/data/issue/id', '/data/event/issue_id'],
    deliveryId: ['request-id'],
    kept: ['sentry-hook-timestamp'],
  },
  zendesk: {
    scheme: {
      header: 'x-zendesk-webhook-signature',
      encoding: 'base64',
      text: '{timestamp}{body}',
      time: 'x-zendesk-webhook-signature-timestamp',
    },
    event: ['/type'],
    subject: ['/detail/id'],
    deliveryId: ['/id', 'x-zendesk-webhook-invocation-id'],
    // A person writes the body of a trigger, where an id is often that of the ticket.
    isOwnBody: ({ type }) => typeof type === 'string' && type.startsWith('zen:'),
  },
  notion: {
    scheme: { header: 'x-notion-signature', prefix: 'sha256=' },
    event: ['/type'],
    subject: ['/entity/id'],
    deliveryId: ['/id'],
    varying: ['attempt_number'],
    sendsSecret: '/verification_token',
  },
  asana: {
    scheme: { header: 'x-hook-signature' },
    event: ['/events/0/action'],
    subject: ['/events/0/resource/gid'],
    deliveryId: [],
    unique: '/events/0/created_at',
    sendsSecret: 'x-hook-secret',
    // Asana sends no events each 8 hours, to find out whether somebody listens.
    handshake: (_headers, { events }) => {
      const isHeartbeat = Array.isArray(events) && events.length === 0;
      return isHeartbeat ? { status: 'pong' } : null;
    },
  },
  // Without what a token says, nothing is accepted.
  custom: {
    scheme: { header: '' },
    event: [],
    deliveryId: [],
    // Of CloudEvents in binary mode, without which a recipient cannot read them.
    keptPrefixes: ['ce-'],
    takesForms: true,
    handshake: answerChallenge,
    // Microsoft Graph and SharePoint, Meta, and Dropbox, Nylas and others.
    echoed: ['validationToken', 'validationtoken', 'hub.challenge', 'challenge'],
  },
} as const satisfies Record<string, Source>;

export type SourceName = keyof typeof SOURCES;
const isSource = (name: string): name is SourceName => Object.hasOwn(SOURCES, name);
export const SOURCE_NAMES = Object.keys(SOURCES).filter(isSource);
