import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, Failure } from './errors.ts';
import { type JsonSchema, pointer, type Schema, validate } from './schema.ts';
import { decodeUtf8 } from '../runtime/text.ts';

type InvalidBody = Failure<'invalid_body'>;

/** What a route accepts as its request body. */
export interface BodyRule<Body> {
  readonly schema: JsonSchema | null; // null if no body is read
  readonly errors: readonly ErrorCode[];
  /** Checks the headers before a byte of the body is read. */
  accepts(headers: IncomingHttpHeaders): Failure | null;
  parse(raw: Buffer): Body | InvalidBody;
}

export const noBody: BodyRule<null> = {
  schema: null,
  errors: [],
  accepts: () => null,
  parse: () => null,
};

/**
 * A JSON body in UTF-8.
 * @param contentType 'required' insists on `application/json` or `…+json`; 'any' also takes a plain
 * `curl -d`
 */
export function json<Body>(
  schema: Schema<Body>,
  contentType: 'any' | 'required' = 'any',
): BodyRule<Body> {
  return {
    schema: schema.jsonSchema,
    errors: ['invalid_body', 'body_too_large', 'unsupported_media_type'],
    accepts(headers) {
      // A compressed body could expand to any size.
      const { 'content-encoding': encoding = 'identity' } = headers;
      if (encoding !== '' && encoding !== 'identity') return new Failure('unsupported_media_type');
      if (contentType === 'any' || JSON_TYPE.test(headers['content-type'] ?? '')) return null;
      return new Failure('unsupported_media_type', {
        message: 'Send the body with "Content-Type: application/json".',
      });
    },
    parse(raw) {
      const parsed = parseJson(raw);
      return parsed instanceof Failure ? parsed : validate(schema, parsed, 'invalid_body');
    },
  };
}

const JSON_TYPE = /^\s*(application\/json|[a-z]+\/[a-z0-9.!#$&^_+-]+\+json)\s*(;|$)/i;

export const invalidBody = (message: string, path = ''): InvalidBody =>
  new Failure('invalid_body', { fields: [{ path, message }] });

/** The engine's own message quotes the input, which may hold a secret, so it is never passed on. */
function parseJson(raw: Buffer): unknown {
  if (raw.length === 0) return invalidBody('a JSON body is required');
  try {
    const text = decodeUtf8(raw);
    const value: unknown = JSON.parse(text);
    const path = duplicateMember(text);
    return path === null ? value : invalidBody('must be given only once', path);
  } catch (error) {
    const isText = error instanceof SyntaxError;
    return invalidBody(
      isText ? 'the body must be valid JSON' : 'the body must be encoded in UTF-8',
    );
  }
}

/** How deep duplicates are searched for. No decision depends on a deeper member. */
const MAX_DEPTH = 2;
const BRACKET_OR_STRING = /[{}[\]]|"[^"]*"(\s*:)?/g;

/**
 * Finds a member that an object has twice. `JSON.parse` keeps the last one, other parsers the
 * first: a proxy or a log could see another request than the one that is served (RFC 8259, 4).
 * @param json valid JSON
 * @returns its JSON pointer, or null
 */
export function duplicateMember(json: string): string | null {
  const open: Array<{ readonly at: string; readonly names: Set<string> }> = [];
  let depth = 0;
  let name = '';
  // Without escapes, but with every character at its index, the next quotation mark ends a string.
  const plain = json.includes('\\') ? json.replaceAll(/\\./g, '__') : json;
  for (const { 0: token, 1: colon, index } of plain.matchAll(BRACKET_OR_STRING)) {
    if (token === '{' || token === '[') {
      const at = depth === 0 ? '' : pointer('', name);
      if (depth < MAX_DEPTH) open[depth] = { at, names: new Set() };
      depth += 1;
    } else if (token === '}' || token === ']') {
      depth -= 1;
    }
    const parent = depth <= MAX_DEPTH ? open[depth - 1] : undefined;
    if (!parent || colon === undefined) continue;
    // Decoded, because "a" and "\u0061" are one name.
    name = String(JSON.parse(json.slice(index, index + token.length - colon.length)));
    // The name is the client's own text, so it is cut short.
    if (parent.names.has(name)) return pointer(parent.at, name.slice(0, 64));
    parent.names.add(name);
  }
  return null;
}
