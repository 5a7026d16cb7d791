import type { IncomingHttpHeaders } from 'node:http';
import { object, text, withoutNul } from '../http/shape.ts';
import type { SCHEMES } from './signatures.ts';

/** What a sender is told of an event, or wants to hear before it sends any. */
export interface Received {
  readonly id?: string | undefined;
  readonly status?: 'accepted' | 'duplicate' | 'pong' | 'pending' | undefined;
  readonly challenge?: string | undefined;
}

export type Json = Readonly<Record<string, unknown>>;

export interface Source {
  /** How its requests are signed; null for those that are not. */
  readonly scheme: keyof typeof SCHEMES | null;
  /** Where the kind of event stands. */
  readonly named: string;
  /** @returns what is no text is refused */
  readonly event: (headers: IncomingHttpHeaders, body: Json) => unknown;
  readonly deliveryId: (headers: IncomingHttpHeaders, body: Json) => unknown;
  /** Whether a first, unsigned request brings the key that later ones are signed with. */
  readonly handsOverKey?: true;
  /** @returns the answer to a handshake, which is no event; null for everything else */
  readonly handshake: (headers: IncomingHttpHeaders, body: Json) => Received | null;
}

/** Where the first of several names may stand. */
const header = (...names: readonly string[]) => (headers: IncomingHttpHeaders) => names.map((name) => headers[name]).find((value) => value !== undefined);
const member = (name: string) => (_headers: IncomingHttpHeaders, body: Json) => body[name];
const none = () => null;

/** Each sender's own names for what we keep, from its documentation. */
export const SOURCES = {
  /** The interface's own form: `event`, and `data` with a `page_id`. */
  generic: { scheme: null, named: 'in the body as "event"', event: member('event'), deliveryId: header('webhook-id', 'idempotency-key'), handshake: none },
  standard: { scheme: 'standard', named: 'in the body as "type"', event: member('type'), deliveryId: header('webhook-id', 'svix-id'), handshake: none },
  github: {
    scheme: 'github',
    named: 'in the header X-GitHub-Event',
    event: header('x-github-event'),
    deliveryId: header('x-github-delivery'),
    handshake: (headers) => (headers['x-github-event'] === 'ping' ? { status: 'pong' } : null),
  },
  stripe: { scheme: 'stripe', named: 'in the body as "type"', event: member('type'), deliveryId: member('id'), handshake: none },
  slack: {
    scheme: 'slack',
    named: 'in the body as "type", or in its "event"',
    event: (_headers, { event, type }) => (isJson(event) ? event.type : type),
    deliveryId: member('event_id'),
    handshake: (_headers, { type, challenge }) => (type === 'url_verification' && typeof challenge === 'string' ? { challenge } : null),
  },
  notion: { scheme: 'notion', named: 'in the body as "type"', event: member('type'), deliveryId: member('id'), handsOverKey: true, handshake: none },
} as const satisfies Record<string, Source>;

export type SourceName = keyof typeof SOURCES;
export const SOURCE_NAMES: readonly string[] = Object.keys(SOURCES);
export const isSource = (name: string): name is SourceName => Object.hasOwn(SOURCES, name);

const isJson = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);

/** What the generic source insists on: the specification's own form. */
export const genericShape = object({
  event: text({ min: 1, max: 1_024, description: 'The kind of event', check: withoutNul }),
  data: object({ page_id: text() }),
});
