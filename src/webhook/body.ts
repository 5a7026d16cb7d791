import { isUtf8 } from 'node:buffer';
import type { IncomingHttpHeaders } from 'node:http';
import { Failure } from '../platform/http/route/errors.ts';
import { type BodyRule, invalidBody, json } from '../platform/http/route/json-body.ts';
import { isObject, pointer, scalar } from '../platform/http/route/schema.ts';
import { isPointer, memberAt, namesIn, PAGE_ID } from './places.ts';
import { genericSchema, type JsonObject, type Source } from './sources.ts';

/** How a JSON object or list begins, and no form. */
const JSON_START = /^\s*[{[]/;

/** Some senders call their JSON a form, as curl does. */
export function isForm(headers: IncomingHttpHeaders, raw: Buffer) {
  const type = headers['content-type'] ?? '';
  const isSaid = /^\s*application\/x-www-form-urlencoded\s*(;|$)/i.test(type);
  return isSaid && !JSON_START.test(raw.toString('latin1', 0, 64));
}

/**
 * Of a sender with a token. A body of 25 MiB with a string in every 40 bytes, and a comma after
 * every other, has fewer parts.
 */
export const EVENT_LIMITS = {
  parts: 1_000_000,
  depth: Infinity,
};

/** Unchanged. An array has no members with names, but JSON pointers find its items. */
const anyJson = scalar<JsonObject>({}, 'must be a JSON object', (input) => {
  const isItems = Array.isArray(input) && input.length > 0;
  return isItems || isObject(input) ? Object(input) : undefined;
});
const jsonBody = json(anyJson, 'required', EVENT_LIMITS);

/**
 * The raw bytes: their signature is verified before their content is used. The schema is the
 * generic source's. Other sources send JSON under any content type.
 */
export const eventBody: BodyRule<Buffer> = {
  ...json(anyJson, 'any', EVENT_LIMITS),
  schema: genericSchema.jsonSchema,
  formSchema: { type: 'object', description: 'If the source of the token sends forms' },
  parse: (raw) => raw,
};

/**
 * How the bodies of a source are read. Of two members with one name, parsers choose different ones.
 * Where that decides something, they are refused. Elsewhere, some senders have them, and cannot be
 * told.
 */
function createReader({ event, deliveryId, time = '', unique = '', order = [], schema }: Source) {
  const places = [PAGE_ID, ...event, ...deliveryId, time, unique, ...order];
  const paths = places.filter(isPointer).map(namesIn);
  const names = new Set(paths.flat());
  const depth = Math.max(...paths.map(({ length }) => length));
  // Who sends the generic form can be told of any.
  const limits = { ...EVENT_LIMITS, unique: schema ? undefined : { names, depth } };
  return { names, parse: json(anyJson, 'any', limits).parse };
}

const readers = new WeakMap<Source, ReturnType<typeof createReader>>();

function readerOf(source: Source) {
  const reader = readers.get(source) ?? createReader(source);
  readers.set(source, reader);
  return reader;
}

const MARK = Buffer.from('\ufeff');

/** A byte order mark before JSON may be ignored (RFC 8259, 8.1). It is stored and delivered. */
export function withoutMark(raw: Buffer) {
  const isMarked = raw[0] === MARK[0] && raw.indexOf(MARK) === 0;
  return isMarked ? raw.subarray(MARK.length) : raw;
}

const MAX_FIELDS = 1_000;

/** @returns the members of a body, by its content type */
export function parseBody(source: Source, headers: IncomingHttpHeaders, raw: Buffer) {
  const content = withoutMark(raw);
  if (isForm(headers, content)) {
    if (source.takesForms) return parseForm(source, content);
    return new Failure('unsupported_media_type', {
      message:
        'The source of this token sends no forms. Send the body with "Content-Type: application/json".',
    });
  }
  const refused = source.schema ? jsonBody.accepts(headers) : null;
  return refused ?? readerOf(source).parse(content);
}

/** The members of a form, or of the JSON in its field `payload`, which GitHub and Slack send. */
function parseForm(source: Source, raw: Buffer) {
  // It is stored as text.
  const isText = isUtf8(raw) && !raw.includes(0);
  if (!isText) return invalidBody('a form must be in UTF-8, without U+0000');
  const text = raw.toString('utf8').replace(/\r?\n$/, '');
  const count = text.split('&', MAX_FIELDS + 1).length;
  if (count > MAX_FIELDS) return invalidBody(`a form may have ${MAX_FIELDS} fields`);
  const fields = new URLSearchParams(text);
  const { names, parse } = readerOf(source);
  const twice = ['payload', ...names].find((name) => fields.getAll(name).length > 1);
  if (twice !== undefined) return invalidBody('must be given only once', pointer('', twice));
  const payload = fields.get('payload') ?? '';
  // Of other senders, a field of this name has any text.
  if (JSON_START.test(payload)) return parse(Buffer.from(payload));
  return Object.fromEntries(fields);
}

/** What a request signs of its body: all, or the JSON in a form that has nothing else. */
export function signedPartOf(source: Source, headers: IncomingHttpHeaders, raw: Buffer) {
  const isWhole = !source.signsPayload || !isForm(headers, raw);
  if (isWhole) return raw;
  const fields = new URLSearchParams(raw.toString('latin1'));
  const payload = fields.size === 1 ? fields.get('payload') : null;
  return Buffer.from(payload ?? '');
}

const MAX_SECRET_BODY = 1_024;

/** @returns the signing secret of a sender that sends it first; null for any other request */
export function sentSecret(source: Source, headers: IncomingHttpHeaders, raw: Buffer) {
  const { sendsSecret: place } = source;
  if (place === undefined) return null;
  const secret = isPointer(place) ? onlyMember(raw, place) : headers[place];
  return typeof secret === 'string' && /^[\x21-\x7e]{8,255}$/.test(secret) ? secret : null;
}

function onlyMember(raw: Buffer, pointer: string) {
  if (raw.length > MAX_SECRET_BODY) return undefined;
  const body = jsonBody.parse(raw);
  const isOnly = !(body instanceof Failure) && Object.keys(body).length === 1;
  return isOnly ? memberAt(body, pointer) : undefined;
}
