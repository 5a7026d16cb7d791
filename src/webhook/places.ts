import type { IncomingHttpHeaders } from 'node:http';

const named = (...patterns: string[]) => new RegExp(`^(${patterns.join('|')})$`);

/**
 * Of the connection or the coding of a message (RFC 9110, 7.6.1). Forwarded, they could end a
 * request early or send it elsewhere (request smuggling).
 */
const OF_MESSAGE = named(
  'connection|keep-alive|te|trailers?|transfer-encoding|upgrade|expect|http2-settings',
  'host|content-(length|encoding)|proxy-.*|cookie',
);
/** Credentials, and what a program believes of the proxy before it. */
const TRUSTED = named(
  'authorization|forwarded|via|remote-user|((true|x-cluster)-)?client-ip|cf-connecting-ip',
  'x-(forwarded|auth|real|original|rewrite|remote|http-method)-.*',
);

/** CGI and its successors do not tell one sign from another. */
const normalize = (header: string) => header.toLowerCase().replace(/[^a-z0-9]/g, '-');

/** The name of a header in lower case (RFC 9110, 5.6.2). */
export const HEADER_NAME = /^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$/;

/** Whether a value of the sender can be in this header. */
export const isReadable = (header: string) => !OF_MESSAGE.test(normalize(header));

/** Whether a header of the sender may be stored with an event and sent to a target. */
export const isKeepable = (header: string) =>
  isReadable(header) && !TRUSTED.test(normalize(header));

/**
 * Names of headers, or JSON pointers into the body (RFC 6901). The first that is present counts.
 */
export type Places = readonly string[];

/** The subject of a generic event, which WEBHOOK_ORDER=page_id takes for every source. */
export const PAGE_ID = '/data/page_id';

/** A place in the body; any other is a header. */
export const isPointer = (place: string) => place.startsWith('/');

export const MAX_PLACE = 255;

/** Whether a text is a pointer, or the name of a header in lower case that can be read. */
export function isPlace(text: string) {
  if (!isPointer(text)) return HEADER_NAME.test(text) && isReadable(text);
  return text.length <= MAX_PLACE && !/~(?![01])/.test(text);
}

/** The names of the members on the way. */
export const namesIn = (pointer: string) =>
  pointer
    .split('/')
    .slice(1)
    .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'));

/** @returns undefined if the body has no such member */
export function memberAt(body: unknown, pointer: string): unknown {
  let value = body;
  for (const name of namesIn(pointer)) {
    if (typeof value !== 'object' || value === null) return undefined;
    const entries: Readonly<Record<string, unknown>> = Object(value);
    value = Object.hasOwn(entries, name) ? entries[name] : undefined;
  }
  return value;
}

/** @returns the value, which is not validated yet, or undefined */
export function valueAt(places: Places, headers: IncomingHttpHeaders, body: unknown): unknown {
  const values = places.map((place) => {
    return isPointer(place) ? memberAt(body, place) : headers[place];
  });
  return values.find((value) => value !== undefined);
}

const describePlace = (place: string) =>
  isPointer(place) ? `in the body as "${place.slice(1)}"` : `in the header ${place}`;

/** For an error message. */
export const describePlaces = (places: Places) => places.map(describePlace).join(' or ');
