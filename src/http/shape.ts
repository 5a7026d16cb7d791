import type { FieldError } from './errors.ts';
import type { Query } from './router.ts';

/** The part of JSON Schema, as in OpenAPI 3.0.3, that shapes use. */
export interface JsonSchema extends Partial<Record<'minLength' | 'maxLength' | 'minimum' | 'maximum', number>> {
  readonly type?: 'string' | 'integer' | 'boolean' | 'object' | 'array';
  readonly format?: string;
  readonly description?: string;
  readonly enum?: ReadonlyArray<string | null>;
  readonly nullable?: boolean;
  readonly default?: string | number | boolean;
  readonly items?: JsonSchema;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean;
}

const INVALID = Symbol('invalid');

/** One definition for both the check of an input and its JSON Schema, so that they cannot disagree. */
export interface Shape<T> {
  readonly schema: JsonSchema;
  /** Set if the member may be missing; `value` then takes its place. */
  readonly missing?: { readonly value: T };
  /** Reads an unknown value. `errors` gets every problem with its path, but never the value, which may be a secret. */
  read(input: unknown, at: string, errors: FieldError[]): T | typeof INVALID;
}

export type Validation<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly errors: readonly FieldError[] };

/** A reply must not be many times as long as its request. */
const MAX_FIELD_ERRORS = 20;

export function validate<T>(shape: Shape<T>, input: unknown, at: string): Validation<T> {
  const errors: FieldError[] = [];
  const value = shape.read(input, at, errors);
  return value === INVALID ? { ok: false, errors: errors.slice(0, MAX_FIELD_ERRORS) } : { ok: true, value };
}

function reject(errors: FieldError[], path: string, message: string): typeof INVALID {
  errors.push({ path, message });
  return INVALID;
}

/** A shape without parts. @param parse returns undefined for an invalid value */
const scalar = <T>(schema: JsonSchema, message: string, parse: (input: unknown) => T | undefined): Shape<T> => ({
  schema,
  read: (input, at, errors) => parse(input) ?? reject(errors, at, message),
});

const described = (description: string | undefined) => (description === undefined ? {} : { description });

interface TextLimits {
  readonly min?: number;
  /** In UTF-16 units, as `maxLength` counts. */
  readonly max?: number;
  readonly description?: string;
  /** A further check: returns the problem, or null. */
  readonly check?: (text: string) => string | null;
}

/** Well-formed text: a lone surrogate has no UTF-8 form, so it could neither be stored nor returned. */
export function text({ min = 0, max = Infinity, description, check = () => null }: TextLimits = {}): Shape<string> {
  const lengths = { ...(min > 0 ? { minLength: min } : {}), ...(max < Infinity ? { maxLength: max } : {}) };
  return {
    schema: { type: 'string', ...lengths, ...described(description) },
    read(input, at, errors) {
      const fail = (message: string): typeof INVALID => reject(errors, at, message);
      if (typeof input !== 'string') return fail('must be a string');
      if (input.length < min) return fail(min === 1 ? 'must not be empty' : `must have at least ${min} characters`);
      if (input.length > max) return fail(`must have at most ${max} characters`);
      const problem = /\p{Surrogate}/u.test(input) ? 'must not contain a lone surrogate' : check(input);
      return problem === null ? input : fail(problem);
    },
  };
}

/** PostgreSQL's `text` cannot hold U+0000. */
export const withoutNul = (value: string): string | null =>
  value.includes('\0') ? 'must not contain the character U+0000' : null;

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const TIMESTAMP = /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

export const uuid = (description?: string): Shape<string> =>
  scalar(
    { type: 'string', format: 'uuid', ...described(description) },
    'must be a UUID, such as 123e4567-e89b-42d3-a456-426614174000',
    (input) => (typeof input === 'string' && UUID.test(input) ? input.toLowerCase() : undefined),
  );

type Range = Readonly<{ min: number; max: number; description?: string }>;

export const integer = ({ min, max, description }: Range): Shape<number> =>
  scalar(
    { type: 'integer', minimum: min, maximum: max, ...described(description) },
    `must be a whole number from ${min} to ${max}`,
    (input) => (Number.isInteger(input) && Number(input) >= min && Number(input) <= max ? Number(input) : undefined),
  );

/** A whole decimal number in a query: digits only, so none of `1e3`, `0x10`, ` 1` and `1.0`. */
export function decimal(range: Range): Shape<number> {
  const { schema, read } = integer(range);
  const parse = (input: unknown) => (typeof input === 'string' && /^[0-9]{1,15}$/.test(input) ? Number(input) : null);
  return { schema, read: (input, at, errors) => read(parse(input), at, errors) };
}

export const boolean = (): Shape<boolean> =>
  scalar({ type: 'boolean' }, 'must be true or false', (input) => (typeof input === 'boolean' ? input : undefined));

export const oneOf = <W extends string>(...words: readonly W[]): Shape<W> =>
  scalar({ type: 'string', enum: words }, `must be one of ${words.join(', ')}`, (input) =>
    words.find((word) => word === input),
  );

/** A date and time in a reply (RFC 3339, in UTC). */
export const dateTime = (description?: string): Shape<string> =>
  ({ schema: { type: 'string', format: 'date-time', ...described(description) }, read: text().read });

/** A date and time in a request (RFC 3339, with its offset). */
export const timestamp = (description: string): Shape<Date> =>
  scalar(
    { type: 'string', format: 'date-time', description },
    'must be a date and time, such as 2030-01-31T12:00:00Z',
    (input) => {
      const [whole = '', day = ''] = TIMESTAMP.exec(typeof input === 'string' ? input : '') ?? [];
      const date = new Date(whole);
      // JavaScript reads 30 February as 2 March, so the day is compared with itself.
      const isReal = !Number.isNaN(date.getTime()) && new Date(`${day}T00:00:00Z`).toISOString().startsWith(day);
      // PostgreSQL reads neither year 0 nor years of five digits, which an offset can cause.
      return isReal && /^(?!0000)\d{4}-/.test(date.toISOString()) ? date : undefined;
    },
  );

export function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return {
    schema: { ...shape.schema, nullable: true },
    read: (input, at, errors) => (input === null ? null : shape.read(input, at, errors)),
  };
}

export function list<T>(shape: Shape<T>): Shape<T[]> {
  return {
    schema: { type: 'array', items: shape.schema },
    read(input, at, errors) {
      if (!Array.isArray(input)) return reject(errors, at, 'must be an array');
      const items: unknown[] = input;
      const values = items.map((item, index) => shape.read(item, `${at}/${index}`, errors));
      const valid = values.filter((value): value is T => value !== INVALID);
      return valid.length === values.length ? valid : INVALID;
    },
  };
}

/** A member that may be missing, and is then undefined. */
export const optional = <T>(shape: Shape<T>): Shape<T | undefined> => ({ ...shape, missing: { value: undefined } });

/** A member that may be missing, and then has this value. */
export function withDefault<T extends string | number | boolean>(shape: Shape<T>, value: T): Shape<T> {
  return { ...shape, schema: { ...shape.schema, default: value }, missing: { value } };
}

/** The type that a shape reads. */
export type Infer<S> = S extends Shape<infer T> ? T : never;

type Members = Readonly<Record<string, Shape<unknown>>>;
type Values<M extends Members> = { readonly [K in keyof M]: Infer<M[K]> };

/** Unknown members are refused where a misspelled optional member would silently change the outcome. */
type UnknownMembers = 'ignored' | 'refused';

export function object<M extends Members>(members: M, unknown: UnknownMembers = 'ignored'): Shape<Values<M>> {
  const unknownMessage = unknown === 'refused' ? 'is not a known member' : null;
  return {
    schema: { ...objectSchema(members), ...(unknownMessage === null ? {} : { additionalProperties: false }) },
    read(input, at, errors) {
      if (!isObject(input)) return reject(errors, at, 'must be a JSON object');
      return readMembers<M>(members, input, (name) => pointer(at, name), unknownMessage, errors);
    },
  };
}

/** Any JSON object, unchanged. */
export const jsonObject = (): Shape<Readonly<Record<string, unknown>>> =>
  scalar(objectSchema({}), 'must be a JSON object', (input) => (isObject(input) ? input : undefined));

const isObject = (input: unknown): input is Readonly<Record<string, unknown>> =>
  typeof input === 'object' && input !== null && !Array.isArray(input);

/**
 * The parameters of a query. One that is given twice is rejected: two readers might choose different values. So is an
 * unknown one: a misspelled filter must not select everything.
 */
export function queryParameters<M extends Members>(members: M): Shape<Values<M>> {
  const givenOnce = ({ read, ...shape }: Shape<unknown>): Shape<unknown> => ({
    ...shape,
    read: (values, at, errors) =>
      Array.isArray(values) && values.length === 1
        ? read(values[0], at, errors)
        : reject(errors, at, 'must be given only once'),
  });
  const single = Object.fromEntries(Object.entries(members).map(([name, shape]) => [name, givenOnce(shape)]));
  return {
    schema: { ...objectSchema(members), additionalProperties: false },
    read(input, _at, errors) {
      const query: Query = input instanceof Map ? input : new Map();
      return readMembers<M>(single, Object.fromEntries(query), (name) => name, 'is not a known parameter', errors);
    },
  };
}

const NO_INPUT = {};
/** No parameters at all. */
export const noQuery = queryParameters({});
/** No input is expected, and any is ignored. */
export const noInput: Shape<Record<never, never>> = { schema: {}, read: () => NO_INPUT };

function readMembers<M extends Members>(
  members: Members,
  input: Readonly<Record<string, unknown>>,
  pathOf: (name: string) => string,
  unknownMessage: string | null,
  errors: FieldError[],
): Values<M> | typeof INVALID {
  const before = errors.length;
  const unknown = unknownMessage === null ? [] : Object.keys(input).filter((name) => !Object.hasOwn(members, name));
  // The name is the client's own text, so it is cut short.
  for (const name of unknown) reject(errors, pathOf(name.slice(0, 64)), unknownMessage ?? '');
  const result: Record<string, unknown> = {};
  for (const [name, shape] of Object.entries(members)) {
    const given = Object.hasOwn(input, name) ? input[name] : undefined;
    if (given !== undefined) result[name] = shape.read(given, pathOf(name), errors);
    else if (shape.missing) result[name] = shape.missing.value;
    else reject(errors, pathOf(name), 'is required');
  }
  // Each member was read by the shape of its name.
  return errors.length > before ? INVALID : (result as Values<M>);
}

function objectSchema(members: Members): JsonSchema {
  const entries = Object.entries(members);
  const required = entries.filter(([, shape]) => !shape.missing).map(([name]) => name);
  return {
    type: 'object',
    properties: Object.fromEntries(entries.map(([name, shape]) => [name, shape.schema])),
    ...(required.length > 0 ? { required } : {}),
  };
}

/** A JSON pointer (RFC 6901). */
export const pointer = (at: string, name: string) => `${at}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
