import type { IncomingHttpHeaders } from 'node:http';
import { sha256 } from '../platform/crypto/token.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { type BodyRule, invalidBody, json } from '../platform/http/route/json-body.ts';
import { isObject, nullable, scalar, text, validate } from '../platform/http/route/schema.ts';
import { namesIn, secondsOf } from './signatures.ts';
import { eventName, genericSchema, type JsonObject, type Places, type Source } from './sources.ts';

const isForm = (headers: IncomingHttpHeaders) =>
  /^\s*application\/x-www-form-urlencoded\s*(;|$)/i.test(headers['content-type'] ?? '');

/**
 * Of a sender with a token. A body of 25 MiB with a string in every 40 bytes, and a comma after
 * every other, has fewer parts.
 */
export const EVENT_LIMITS = { parts: 1_000_000, depth: Infinity };

/** Unchanged. An array has no members with names, but JSON pointers find its items. */
export const jsonBody = json(
  scalar<JsonObject>({}, 'must be a JSON object', (input) => {
    const isItems = Array.isArray(input) && input.length > 0;
    return isItems || isObject(input) ? Object(input) : undefined;
  }),
  'required',
  EVENT_LIMITS,
);

/**
 * The raw bytes: their signature is verified before their content is used. The schema is the
 * generic source's.
 */
export const eventBody: BodyRule<Buffer> = {
  ...jsonBody,
  schema: genericSchema.jsonSchema,
  formSchema: { type: 'object', description: 'If the source of the token sends forms' },
  accepts(headers) {
    const asJson = { ...headers, 'content-type': 'application/json' };
    return jsonBody.accepts(isForm(headers) ? asJson : headers);
  },
  parse: (raw) => raw,
};

const MAX_FIELDS = 1_000;

/** @returns the members of a body, by its content type */
function parseContent({ takesForms }: Source, headers: IncomingHttpHeaders, raw: Buffer) {
  if (!isForm(headers)) return jsonBody.parse(raw);
  if (takesForms) return parseForm(raw);
  return new Failure('unsupported_media_type', {
    message:
      'The source of this token sends no forms. Send the body with "Content-Type: application/json".',
  });
}

/** The members of a form, or of the JSON in its field `payload`, which GitHub and Slack send. */
function parseForm(raw: Buffer) {
  const text = raw.toString('latin1');
  // Percent-encoded, so that it is stored as it was sent.
  if (!/^[\x20-\x7e]*$/.test(text)) return invalidBody('a form must be in ASCII');
  if (text.split('&', MAX_FIELDS + 1).length > MAX_FIELDS)
    return invalidBody(`a form may have ${MAX_FIELDS} fields`);
  const fields = new URLSearchParams(text);
  const payload = fields.get('payload');
  return payload === null ? Object.fromEntries(fields) : jsonBody.parse(Buffer.from(payload));
}

/** @returns the value, which is not validated yet, or undefined */
function valueAt(places: Places, headers: IncomingHttpHeaders, body: JsonObject): unknown {
  const values = places.map((place) =>
    place.startsWith('/') ? memberAt(body, place) : headers[place],
  );
  return values.find((value) => value !== undefined);
}

/** @param pointer a JSON pointer (RFC 6901) */
function memberAt(body: unknown, pointer: string) {
  let value = body;
  for (const part of pointer.split('/').slice(1)) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    const parent: JsonObject = Object(typeof value === 'object' ? value : null);
    value = Object.hasOwn(parent, name) ? parent[name] : undefined;
  }
  return value;
}

/** For an error message. */
const describePlaces = (places: Places) =>
  places
    .map((place) =>
      place.startsWith('/') ? `in the body as "${place.slice(1)}"` : `in the header ${place}`,
    )
    .join(' or ');

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
  const isOwnBody = source.isOwnBody?.(body) ?? true;
  const places = deliveryPlaces(source, headers).filter(
    (place) => isOwnBody || !place.startsWith('/'),
  );
  const value = valueAt(places, headers, body);
  if (value === undefined) return null;
  if (typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value)) return value;
  const name = places.find((place) => headers[place] === value);
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
const pageIdSchema = nullable(text());

/**
 * What a request says. Each member that is invalid is a failure of its own.
 * @returns `signedAt`: null if malformed, undefined if the body has no signed time; `handshake`:
 * the reply, if the request is one
 */
export function readContent(source: Source, headers: IncomingHttpHeaders, raw: Buffer) {
  const body = parseContent(source, headers, raw);
  if (body instanceof Failure) return body;
  const invalid = source.schema && validate(source.schema, body, 'invalid_body');
  if (invalid instanceof Failure) return invalid;
  const { time, handshake } = source;
  const given = memberAt(body, '/data/page_id');
  const page = typeof given === 'string' ? given : null;
  return {
    signedAt: time === undefined ? undefined : secondsOf(memberAt(body, time)),
    handshake: handshake?.(headers, body),
    deliveryId: readDeliveryId(source, headers, body, raw),
    name: readEventName(source, headers, body),
    pageId: validate(pageIdSchema, page, 'invalid_body', '/data/page_id'),
  };
}
