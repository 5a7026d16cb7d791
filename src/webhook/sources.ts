import type { IncomingHttpHeaders } from 'node:http';
import { Failure } from '../http/errors.ts';
import {
  type Infer,
  isObject,
  object,
  oneOf,
  optional,
  text,
  uuid,
  withoutNul,
} from '../http/schema.ts';
import type { SCHEMES } from './signatures.ts';

/** What each variant may answer to an event, besides the errors of its guard and its storage. */
export const inputErrors = ['unauthorized', 'invalid_body', 'invalid_header'] as const;

/** The reply to an event, or to a sender's handshake. */
export const replySchema = object({
  id: optional(uuid()),
  status: optional(oneOf('accepted', 'duplicate', 'pong', 'pending')),
  challenge: optional(text({ description: "The reply to a sender's handshake" })),
});
export type ReceiveReply = Partial<Infer<typeof replySchema>>;

export type JsonObject = Readonly<Record<string, unknown>>;

/** A value of a request, which is not validated yet. */
interface Field {
  readonly at: string; // where it is, for error messages
  readonly read: (headers: IncomingHttpHeaders, body: JsonObject) => unknown;
}

/** A kind of sender. */
export type Source = Readonly<{
  /** How its requests are signed. Null: not signed. */
  scheme: keyof typeof SCHEMES | null;
  event: Field;
  deliveryId: Field;
  /** A number in the body that differs between attempts to deliver the same event. */
  counter?: string;
  /**
   * Set if the sender's first request is unsigned and contains the signing secret of the later
   * ones.
   */
  sendsSecret?: true;
  /** The reply to a handshake, which is not an event. Null: the request is an event. */
  handshake?: (headers: IncomingHttpHeaders, body: JsonObject) => ReceiveReply | null;
}>;

const header = (...names: readonly string[]): Field => ({
  at: `in the header ${names[0]}`,
  read: (headers) => names.map((name) => headers[name]).find((value) => value !== undefined),
});
const member = (name: string): Field => ({
  at: `in the body as "${name}"`,
  read: (_headers, body) => body[name],
});

/** From each sender's documentation. `generic` is the form of the specification. */
export const SOURCES = {
  generic: {
    scheme: null,
    event: member('event'),
    deliveryId: header('webhook-id', 'idempotency-key'),
  },
  standard: {
    scheme: 'standard',
    event: member('type'),
    deliveryId: header('webhook-id', 'svix-id'),
  },
  github: {
    scheme: 'github',
    event: header('x-github-event'),
    deliveryId: header('x-github-delivery'),
    handshake: (headers) => (headers['x-github-event'] === 'ping' ? { status: 'pong' } : null),
  },
  // The number of endpoints that have not accepted the event yet.
  stripe: {
    scheme: 'stripe',
    event: member('type'),
    deliveryId: member('id'),
    counter: 'pending_webhooks',
  },
  slack: {
    scheme: 'slack',
    event: {
      at: 'in the body as "type", or in its "event"',
      read: (_headers, { event, type }) => (isObject(event) ? event.type : type),
    },
    deliveryId: member('event_id'),
    handshake: (_headers, { type, challenge }) =>
      type === 'url_verification' && typeof challenge === 'string' ? { challenge } : null,
  },
  notion: {
    scheme: 'notion',
    event: member('type'),
    deliveryId: member('id'),
    counter: 'attempt_number',
    sendsSecret: true,
  },
} as const satisfies Record<string, Source>;

export type SourceName = keyof typeof SOURCES;
const isSource = (name: string): name is SourceName => Object.hasOwn(SOURCES, name);
export const SOURCE_NAMES = Object.keys(SOURCES).filter(isSource);

/** What PostgreSQL and an index can hold. */
export const eventName = text({
  min: 1,
  max: 1_024,
  description: 'The kind of event',
  check: withoutNul,
});
/** What the generic source requires, as specified. */
export const genericSchema = object({
  event: eventName,
  data: object({ page_id: text() }),
});

/**
 * Whether a body repeats the first one, byte for byte except for the number that counts the
 * attempts.
 */
export function isRepetition({ counter }: Source, first: Buffer, body: Buffer): boolean {
  if (counter === undefined) return first.equals(body);
  // Not parsed: two long numbers could be read as the same one.
  const pattern = new RegExp(`("${counter}"\\s*:\\s*)\\d+`);
  const content = (bytes: Buffer) => bytes.toString('latin1').replace(pattern, '$1');
  return content(first) === content(body);
}

/** @returns the id that identifies repetitions of a delivery, or null if the sender gave none */
export function readDeliveryId(
  { deliveryId }: Source,
  headers: IncomingHttpHeaders,
  body: JsonObject,
) {
  const value = deliveryId.read(headers, body);
  if (value === undefined) return null;
  if (typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value)) return value;
  const name = Object.keys(headers).find((one) => headers[one] === value);
  const message = 'the delivery id must have 1 to 255 visible ASCII characters';
  const fields = [{ path: name ?? '', message }];
  return new Failure(name === undefined ? 'invalid_body' : 'invalid_header', { fields });
}
