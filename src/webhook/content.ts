import type { IncomingHttpHeaders } from 'node:http';
import { sha256 } from '../platform/crypto/token.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { invalidBody } from '../platform/http/route/json-body.ts';
import { nullable, text, validate } from '../platform/http/route/schema.ts';
import { parseBody } from './body.ts';
import { describePlaces, isPointer, memberAt, valueAt, PAGE_ID } from './places.ts';
import { namesIn, secondsOf } from './signatures.ts';
import { eventName, type JsonObject, type Source } from './sources.ts';

/** Where a request has its delivery id: where the signed id was read, if there is one. */
export function deliveryPlaces({ scheme, deliveryId }: Source, headers: IncomingHttpHeaders) {
  const signed = scheme === null ? undefined : namesIn(scheme, headers).id;
  return signed === undefined ? deliveryId : [signed];
}

/** @returns the id that identifies repetitions of a delivery, or null if the sender gave none */
export function readDeliveryId(source: Source, headers: IncomingHttpHeaders, body: JsonObject) {
  const isOwnBody = source.isOwnBody?.(body) ?? true;
  const places = deliveryPlaces(source, headers).filter((place) => isOwnBody || !isPointer(place));
  const found = valueAt(places, headers, body);
  if (found === undefined) return null;
  // Above, two numbers could be read as the same one.
  const value = Number.isSafeInteger(found) ? String(found) : found;
  if (typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value)) return value;
  const name = places.find((place) => headers[place] === found);
  const message = 'the delivery id must have 1 to 255 visible ASCII characters';
  const fields = [{ path: name ?? '', message }];
  return new Failure(name === undefined ? 'invalid_body' : 'invalid_header', { fields });
}

/** Whether a body repeats the first one, byte for byte except for the members that vary. */
export function isRepetition({ varying }: Source, first: Buffer, body: Buffer) {
  if (varying === undefined) return first.equals(body);
  // Not parsed: two long numbers could be read as the same one.
  const value = String.raw`\d+|"[^"\\]*"`;
  const pattern = new RegExp(`("(?:${varying.join('|')})"\\s*:\\s*)(?:${value})`, 'g');
  const content = (bytes: Buffer) => bytes.toString('latin1').replace(pattern, '$1');
  return content(first) === content(body);
}

/** @returns the name, or a failure that says where it must be */
function readEventName(
  { event, name: fixed }: Source,
  headers: IncomingHttpHeaders,
  body: JsonObject,
) {
  const name = validate(eventName, fixed ?? valueAt(event, headers, body), 'invalid_body');
  if (!(name instanceof Failure)) return name;
  const form = 'in 1 to 1024 characters, without U+0000 and lone surrogates';
  return invalidBody(`must name the event ${describePlaces(event)}, ${form}`);
}

/** Rejects lone surrogates, whose pages could not be told apart by their digest. */
const pageSchema = nullable(text());

/** @returns what the events of a page have in common; null without a text or a number there */
function readPage({ order = [PAGE_ID] }: Source, headers: IncomingHttpHeaders, body: JsonObject) {
  const value = valueAt(order, headers, body);
  const page = typeof value === 'number' ? String(value) : value;
  return validate(pageSchema, typeof page === 'string' ? page : null, 'invalid_body', order[0]);
}

/**
 * What a request says.
 * @param secret that verified the request; null if it is not signed
 * @returns `signedAt`: null if malformed, undefined if the body has no signed time; `found`: a
 * handshake with its reply, or an event
 */
export function readContent(
  source: Source,
  headers: IncomingHttpHeaders,
  raw: Buffer,
  secret: string | null,
) {
  const body = parseBody(source, headers, raw);
  if (body instanceof Failure) return body;
  const invalid = source.schema && validate(source.schema, body, 'invalid_body');
  if (invalid instanceof Failure) return invalid;
  const { time } = source;
  const signedAt = time === undefined ? undefined : secondsOf(memberAt(body, time));
  return { signedAt, found: readFound(source, headers, body, raw, secret) };
}

function readFound(
  source: Source,
  headers: IncomingHttpHeaders,
  body: JsonObject,
  raw: Buffer,
  secret: string | null,
) {
  const { unique, handshake } = source;
  const name = readEventName(source, headers, body);
  const reply = handshake?.(headers, body, secret);
  if (reply) {
    const kind = name instanceof Failure ? 'check of the address' : name;
    return { kind: 'handshake', name: kind, reply } as const;
  }
  const deliveryId = readDeliveryId(source, headers, body);
  if (deliveryId instanceof Failure) return deliveryId;
  if (name instanceof Failure) return name;
  const page = readPage(source, headers, body);
  if (page instanceof Failure) return page;
  const isUnique = unique !== undefined && memberAt(body, unique) !== undefined;
  const bodyDigest = isUnique ? sha256(raw) : null;
  return { kind: 'event', name, deliveryId, bodyDigest, page } as const;
}
