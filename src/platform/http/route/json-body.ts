import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, Failure } from './errors.ts';
import { type JsonSchema, pointer, type Schema, validate } from './schema.ts';
import { decodeUtf8 } from '../../runtime/text.ts';

/** What a route accepts as its request body. */
export interface BodyRule<Body> {
  readonly schema: JsonSchema | null; // null if no body is read
  readonly formSchema: JsonSchema | null; // of the fields of a form, if one is accepted
  readonly errors: readonly ErrorCode[];
  readonly leastBytes?: number; // that are read, even above the usual limit
  /** Checks the headers before a byte of the body is read. */
  accepts(headers: IncomingHttpHeaders): Failure | null;
  parse(raw: Buffer): Body | Failure<'invalid_body'>;
}

export const noBody: BodyRule<null> = {
  schema: null,
  formSchema: null,
  errors: [],
  accepts: () => null,
  parse: () => null,
};

/**
 * A JSON body in UTF-8.
 * @param contentType 'required' insists on `application/json` or `…+json`; 'any' also takes a plain
 * `curl -d`
 * @param limits for a body with members that the schema does not describe
 */
export function json<Body>(
  schema: Schema<Body>,
  contentType: 'any' | 'required' = 'any',
  limits: JsonLimits = limitsOf(schema.jsonSchema),
): BodyRule<Body> {
  return {
    schema: schema.jsonSchema,
    formSchema: null,
    errors: ['invalid_body', 'body_too_large', 'unsupported_media_type', 'request_timeout'],
    accepts(headers) {
      // A compressed body could expand to any size. Some clients name the encoding of the text.
      const isPlain = /^(identity|utf-?8)?$/i.test(headers['content-encoding'] ?? '');
      if (!isPlain) return new Failure('unsupported_media_type');
      if (contentType === 'any' || JSON_TYPE.test(headers['content-type'] ?? '')) return null;
      return new Failure('unsupported_media_type', {
        message: 'Send the body with "Content-Type: application/json".',
      });
    },
    parse(raw) {
      const parsed = parseJson(raw, limits);
      return parsed instanceof Failure ? parsed : validate(schema, parsed, 'invalid_body');
    },
  };
}

const JSON_TYPE = /^\s*(application\/json|[a-z]+\/[a-z0-9.!#$&^_+-]+\+json)\s*(;|$)/i;

export const invalidBody = (message: string, path = '') =>
  new Failure('invalid_body', { fields: [{ path, message }] });

/** The engine's own message quotes the input, which may hold a secret, so it is never passed on. */
function parseJson(raw: Buffer, limits: JsonLimits): unknown {
  if (raw.length === 0) return invalidBody('a JSON body is required');
  try {
    const text = decodeUtf8(raw);
    return problemOf(text, limits) ?? JSON.parse(text);
  } catch (error) {
    const form = error instanceof SyntaxError ? 'valid JSON' : 'encoded in UTF-8';
    return invalidBody(`the body must be ${form}`);
  }
}

/**
 * What parsing costs: a megabyte of names or brackets would block the process for a second, and
 * take many times its size (CWE-400).
 */
export interface JsonLimits {
  readonly parts: number; // strings, brackets and commas
  readonly depth: number; // of brackets in one another
  /** Which names an object must not have twice, and how deep; all names by default. */
  readonly unique?: Readonly<{ names: ReadonlySet<string>; depth: number }> | undefined;
}

/** For members that a schema does not describe, and which are ignored. */
const SPARE_PARTS = 256;
const MAX_DEPTH = 32;
const MAX_ITEMS = 1_000;

const limitsOf = (schema: JsonSchema): JsonLimits => ({
  parts: partsOf(schema) + SPARE_PARTS,
  depth: MAX_DEPTH,
});

/** The parts of a value with every member. */
function partsOf({ properties = {}, items }: JsonSchema): number {
  if (items) return 2 + MAX_ITEMS * (1 + partsOf(items));
  return Object.values(properties).reduce((sum, member) => sum + 2 + partsOf(member), 2);
}

/** How deep duplicates are searched for. No decision depends on a deeper member. */
const SEARCHED_DEPTH = 2;

/**
 * Finds a member that an object has twice, or what exceeds the limits. Of two members, `JSON.parse`
 * keeps the last one, other parsers the first: a proxy or a log could see another request than the
 * one that is served (RFC 8259, 4).
 * @param json may be invalid; what is found is then of no use
 */
export function problemOf(json: string, limits: JsonLimits) {
  if (hasNoProblem(json, limits)) return null;
  const { names: wanted = null, depth: searchedDepth = SEARCHED_DEPTH } = limits.unique ?? {};
  const names: Array<Set<string>> = []; // of the open objects, by depth
  const path: string[] = []; // the last name, by depth
  let depth = 0;
  let parts = 0;
  let start = 0; // of the last string
  let end = 0;
  for (let at = 0; at < json.length; at += 1) {
    switch (json[at]) {
      case '"':
        start = at;
        end = endOfString(json, start);
        at = end - 1;
        break;
      case '{':
      case '[':
        depth += 1;
        if (depth > limits.depth) return invalidBody(`has more than ${limits.depth} levels`);
        if (depth <= searchedDepth) names[depth] = new Set();
        break;
      case '}':
      case ']':
        depth -= 1;
        break;
      case ',':
        break;
      case ':': {
        if (depth > searchedDepth) continue;
        const written = json.slice(start, end);
        // Decoded, because "a" and "\u0061" are one name.
        const name = written.includes('\\') ? String(JSON.parse(written)) : written.slice(1, -1);
        // Once: invalid JSON may repeat the colon after a long name.
        end = start;
        path[depth] = name;
        if (wanted !== null && !wanted.has(name)) continue;
        if (names[depth]?.has(name)) {
          const owner = path.slice(1, depth).reduce(pointer, '');
          // The name is the client's own text, so it is cut short.
          return invalidBody('must be given only once', pointer(owner, name.slice(0, 64)));
        }
        names[depth]?.add(name);
        continue;
      }
      default:
        continue;
    }
    parts += 1;
    if (parts > limits.parts)
      return invalidBody(`has more than ${limits.parts} strings, brackets and commas`);
  }
  return null;
}

/**
 * Whether native searches find that no name that must be unique is there twice. Of most events, in
 * a tenth of the time of the other search.
 */
function hasNoProblem(json: string, { parts, depth, unique }: JsonLimits) {
  const isLimited = json.length > parts || depth < Infinity;
  const hasEscapedNames = json.includes('\\u');
  if (isLimited || hasEscapedNames || !unique) return false;
  return [...unique.names].every((name) => {
    const isPlain = /^\w+$/.test(name);
    const written = `"${name}"`;
    const first = json.indexOf(written);
    return isPlain && (first === -1 || !json.includes(written, first + 1));
  });
}

/** @returns the index after the string that begins at `start` */
function endOfString(json: string, start: number) {
  for (let end = start; ;) {
    end = json.indexOf('"', end + 1);
    if (end === -1) return json.length;
    let escapes = 0;
    while (json[end - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return end + 1;
  }
}
