import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, Failure } from './errors.ts';
import { type JsonSchema, pointer, type Shape, type Validation, validate } from './shape.ts';

/** What a route accepts as its request body. */
export interface BodyRule<Body> {
  readonly schema: JsonSchema | null; // null if no body is read
  readonly errors: readonly ErrorCode[];
  /** Checks the headers before a byte of the body is read. */
  accepts(headers: IncomingHttpHeaders): Failure | null;
  parse(raw: Buffer): Validation<Body>;
}

export const noBody: BodyRule<null> = {
  schema: null,
  errors: [],
  accepts: () => null,
  parse: () => ({ ok: true, value: null }),
};

/**
 * A JSON body in UTF-8.
 * @param contentType 'required' insists on `application/json` or `…+json`; 'any' also takes a plain `curl -d`
 */
export function json<Body>(
  shape: Shape<Body>,
  contentType: 'any' | 'required' = 'any',
): BodyRule<Body> {
  return {
    schema: shape.schema,
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
      return parsed.ok ? validate(shape, parsed.value, '') : parsed;
    },
  };
}

const JSON_TYPE = /^\s*(application\/json|[a-z]+\/[a-z0-9.!#$&^_+-]+\+json)\s*(;|$)/i;
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The engine's own message quotes the input, which may hold a secret, so it is never passed on. */
function parseJson(raw: Buffer): Validation<unknown> {
  const invalid = (message: string, path = '') =>
    ({ ok: false, errors: [{ path, message }] }) as const;
  if (raw.length === 0) return invalid('a JSON body is required');
  try {
    const text = utf8.decode(raw);
    const value: unknown = JSON.parse(text);
    const path = duplicateMember(text);
    return path === null ? { ok: true, value } : invalid('must be given only once', path);
  } catch (error) {
    return invalid(
      error instanceof SyntaxError
        ? 'the body must be valid JSON'
        : 'the body must be encoded in UTF-8',
    );
  }
}

/** How deep duplicates are searched for. No decision depends on a deeper member. */
const MAX_DEPTH = 2;
const BRACKET_OR_STRING = /[{}[\]]|"[^"]*"(\s*:)?/g;

/**
 * Finds a member that an object has twice. `JSON.parse` keeps the last one, other parsers the first: a proxy or a log
 * could see another request than the one that is served (RFC 8259, 4).
 * @param json valid JSON
 * @returns its JSON pointer, or null
 */
export function duplicateMember(json: string): string | null {
  const open: Array<{ readonly at: string; readonly names: Set<string> }> = [];
  let [depth, name] = [0, ''];
  // Without escapes, but with every character at its index, the next quotation mark ends a string.
  const plain = json.includes('\\') ? json.replaceAll(/\\./g, '__') : json;
  for (const { 0: token, 1: colon, index } of plain.matchAll(BRACKET_OR_STRING)) {
    if (token === '{' || token === '[') {
      if (depth < MAX_DEPTH)
        open[depth] = { at: depth === 0 ? '' : pointer('', name), names: new Set() };
      depth += 1;
    } else if (token === '}' || token === ']') depth -= 1;
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
