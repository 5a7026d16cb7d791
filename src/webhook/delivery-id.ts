import type { IncomingHttpHeaders } from 'node:http';
import { sha256 } from '../platform/crypto/token.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { namesIn } from './signatures.ts';
import { type JsonObject, memberAt, type Source, valueAt } from './sources.ts';

/** Where a request has its delivery id: where the signed id was read, if there is one. */
export function deliveryPlaces({ scheme, deliveryId }: Source, headers: IncomingHttpHeaders) {
  const signed = scheme === null ? undefined : namesIn(scheme, headers).id;
  return signed === undefined ? deliveryId : [signed];
}

/**
 * @param raw of which `body` is the content
 * @returns the id that identifies repetitions of a delivery, or null if the sender gave none
 */
export function readDeliveryId(
  source: Source,
  headers: IncomingHttpHeaders,
  body: JsonObject,
  raw: Buffer,
) {
  const { unique } = source;
  if (unique !== undefined && typeof memberAt(body, unique) === 'string')
    return `sha256:${sha256(raw).toString('hex')}`;
  const places = deliveryPlaces(source, headers);
  const value = valueAt(places, headers, body);
  if (value === undefined) return null;
  if (typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value)) return value;
  const name = places.find((place) => headers[place] === value);
  const message = 'the delivery id must have 1 to 255 visible ASCII characters';
  const fields = [{ path: name ?? '', message }];
  return new Failure(name === undefined ? 'invalid_body' : 'invalid_header', { fields });
}

/**
 * Whether a body repeats the first one, byte for byte except for the number in `counter`.
 */
export function isRepetition({ counter }: Source, first: Buffer, body: Buffer) {
  if (counter === undefined) return first.equals(body);
  // Not parsed: two long numbers could be read as the same one.
  const pattern = new RegExp(`("${counter}"\\s*:\\s*)\\d+`);
  const content = (bytes: Buffer) => bytes.toString('latin1').replace(pattern, '$1');
  return content(first) === content(body);
}
