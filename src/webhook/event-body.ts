import type { IncomingHttpHeaders } from 'node:http';
import { Failure } from '../platform/http/route/errors.ts';
import { type BodyRule, invalidBody, json } from '../platform/http/route/json-body.ts';
import { isObject, nullable, scalar, text, validate } from '../platform/http/route/schema.ts';
import { readDeliveryId } from './delivery-id.ts';
import { secondsOf } from './signatures.ts';
import { genericSchema, type JsonObject, memberAt, readEventName, type Source } from './sources.ts';

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
