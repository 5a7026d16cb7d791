/**
 * What an input must refuse, read from its JSON Schema by a reader of its own: that of the services
 * is under test.
 */
import type { JsonSchema } from '../../src/platform/http/route/schema.ts';
import { requiredOf, type Values } from './contract.ts';

/**
 * A body or query with faults of one kind. `at`: the paths of the members to blame, all of them.
 */
export interface Wrong {
  readonly what: string;
  readonly value: Values;
  readonly at: readonly string[];
}

const isRecord = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const numberOf = (value: unknown, otherwise: number): number =>
  typeof value === 'number' ? value : otherwise;

const FORMATS: Readonly<Record<string, RegExp>> = {
  uuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/,
};

function isText(schema: JsonSchema, value: string): boolean {
  const { minLength, maxLength, pattern, format, enum: words } = schema;
  const form = FORMATS[String(format)] ?? new RegExp(typeof pattern === 'string' ? pattern : '');
  return (
    // JSON cannot say it: a text that has no UTF-8 form.
    value.isWellFormed() &&
    value.length >= numberOf(minLength, 0) &&
    value.length <= numberOf(maxLength, Infinity) &&
    form.test(value) &&
    (words?.includes(value) ?? true)
  );
}

export function isTaken(schema: JsonSchema, value: unknown): boolean {
  const { type, nullable, minimum, maximum, items = {}, maxItems, uniqueItems, required } = schema;
  if (value === null) return nullable === true;
  switch (type) {
    case 'string':
      return typeof value === 'string' && isText(schema, value);
    case 'integer':
      return (
        Number.isInteger(value) &&
        Number(value) >= numberOf(minimum, -Infinity) &&
        Number(value) <= numberOf(maximum, Infinity)
      );
    case 'boolean':
      return typeof value === 'boolean';
    case 'array':
      return (
        Array.isArray(value) &&
        value.length <= numberOf(maxItems, Infinity) &&
        (uniqueItems !== true || new Set(value).size === value.length) &&
        value.every((item) => isTaken(items, item))
      );
    default:
      return isRecord(value) && (required ?? []).every((name) => Object.hasOwn(value, name));
  }
}

/** `at`: the item to blame, after the path of the member. */
type Candidate = readonly [what: string, value: unknown, at?: string];

/** Of each JSON type, and at the limits of a schema. */
function* candidates(schema: JsonSchema): Generator<Candidate> {
  yield ['null', null];
  yield ['a boolean', true];
  yield ['a fraction', 1.5];
  yield ['a text', 'text'];
  yield ['a number as text', '1'];
  yield ['an empty text', ''];
  yield ['an array', []];
  yield ['an object', {}];
  const { type, minLength, maxLength, minimum, maximum, items, maxItems } = schema;
  if (type === 'string') {
    yield ['too long', 'x'.repeat(numberOf(maxLength, 4_095) + 1)];
    yield ['too short', 'x'.repeat(Math.max(numberOf(minLength, 0) - 1, 0))];
    yield ['U+0000', 'te\0xt'];
    yield ['a lone surrogate', 'te\ud800xt'];
  }
  if (type === 'integer') {
    yield ['too small', numberOf(minimum, 0) - 1];
    yield ['too large', numberOf(maximum, 2 ** 53) + 1];
  }
  if (!items) return;
  // A set of names is read as a whole.
  const isSet = schema.uniqueItems === true;
  for (const [what, value] of candidates(items))
    yield [`an item: ${what}`, [value], isSet ? '' : '/0'];
  if (isSet) yield ['an item twice', ['text', 'text']];
  if (maxItems === undefined) return;
  const length = numberOf(maxItems, 0) + 1;
  yield ['too many items', Array.from({ length }, (_, index) => `text${index}`)];
}

/** Text in a query or a form. */
const TEXTS = [
  ['an empty text', ''],
  ['a text', 'text'],
  ['too long', 'x'.repeat(4_097)],
  ['U+0000', 'te\0xt'],
] as const;
/** What other readers take for a number. */
const NUMBERS = [
  ['a fraction', '1.0'],
  ['an exponent', '1e1'],
  ['a negative number', '-1'],
  ['zero', '0'],
  ['a space', ' 1'],
  ['hexadecimal', '0x1'],
  ['a huge number', '9'.repeat(20)],
] as const;

/** @param schema of a parameter or field, whose text may stand for a number */
export function isTextTaken(schema: JsonSchema, text: string): boolean {
  if (schema.type === 'array') return isTaken(schema, [text]);
  if (schema.type !== 'integer') return isTaken(schema, text);
  return /^[0-9]{1,15}$/.test(text) && isTaken(schema, Number(text));
}

/** What a token is is decided by the handler, with an error of its own. */
const memberOf = (name: string, schema: JsonSchema): JsonSchema =>
  name === 'session' ? { type: 'string' } : schema;

/** A value of one member. `at`: the path to blame. */
type Part = readonly [what: string, name: string, value: unknown, at: string];

/**
 * For each kind of value one input, in which every member that refuses this value has it. Long ones
 * go alone: together, they would be too large.
 */
function* together(
  { required = [] }: JsonSchema,
  parts: Iterable<Part>,
  base: Values,
  prefix: string,
): Generator<Wrong> {
  const at = required.map((name) => prefix + name);
  if (at.length > 0) yield { what: 'nothing', value: {}, at };
  const kinds = new Map<string, Wrong>();
  for (const [what, name, value, path] of parts) {
    const kind = what.endsWith('too long') ? `${path}: ${what}` : what;
    const others = kinds.get(kind) ?? { value: base, at: [] };
    const all = { ...others.value, [name]: value };
    kinds.set(kind, { what: kind, value: all, at: [...others.at, path] });
  }
  yield* kinds.values();
}

function* textParts(schema: JsonSchema, prefix: string, isWanted: boolean): Generator<Part> {
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    for (const [what, text] of member.type === 'integer' ? [...TEXTS, ...NUMBERS] : TEXTS)
      if (isTextTaken(memberOf(name, member), text) === isWanted)
        yield [what, name, text, prefix + name];
  }
}

function* memberParts(schema: JsonSchema, at: string, isWanted: boolean): Generator<Part> {
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    for (const [what, value, item = ''] of candidates(member)) {
      // The members of an object are named themselves.
      const isNamed = member.properties !== undefined && isRecord(value);
      if (!isNamed && isTaken(memberOf(name, member), value) === isWanted)
        yield [what, name, value, `${at}/${name}${item}`];
    }
  }
}

/** Queries, or the fields of a form. */
export const wrongTexts = (schema: JsonSchema, prefix: '' | '/'): Generator<Wrong> =>
  together(schema, textParts(schema, prefix, false), requiredOf(schema), prefix);

/**
 * JSON bodies.
 * @param put a value of the object in its place in the body
 */
export function* wrongMembers(
  schema: JsonSchema,
  base: Values = requiredOf(schema),
  at = '',
  put: (value: Values) => Values = (value) => value,
): Generator<Wrong> {
  const parts = memberParts(schema, at, false);
  for (const wrong of together(schema, parts, base, `${at}/`))
    yield { ...wrong, value: put(wrong.value) };
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    if (!member.properties) continue;
    const { [name]: given = requiredOf(member) } = base;
    const inner = isRecord(given) ? given : requiredOf(member);
    const putInner = (value: Values) => put({ ...base, [name]: value });
    yield* wrongMembers(member, inner, `${at}/${name}`, putInner);
  }
}

/** Inputs with one value each that its member takes, of all kinds. */
export function* takenValues(schema: JsonSchema, kind: 'texts' | 'members'): Generator<Values> {
  const parts = kind === 'texts' ? textParts(schema, '/', true) : memberParts(schema, '', true);
  for (const [, name, value] of parts) yield { ...requiredOf(schema), [name]: value };
  if (kind === 'texts') return;
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    for (const value of member.properties ? takenValues(member, kind) : [])
      yield { ...requiredOf(schema), [name]: value };
  }
}
