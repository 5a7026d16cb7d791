import { isUuid } from '../../runtime/text.ts';
import { type ErrorCode, Failure, type FieldError } from './errors.ts';

/** A JSON Schema, as in OpenAPI 3.0.3, with the keywords that are read again here. */
export interface JsonSchema {
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly items?: JsonSchema;
  readonly required?: readonly string[] | undefined;
  readonly enum?: ReadonlyArray<string | null>;
  readonly [keyword: string]: unknown;
}

/**
 * One definition for both the check of an input and its JSON Schema, so that they cannot disagree.
 */
export interface Schema<T> {
  readonly jsonSchema: JsonSchema;
  /** Only for a member that may be missing: takes its place. */
  readonly fallback?: T;
  /**
   * Reads an unknown value. `reject` gets every problem with its path, but never the value, which
   * may be a secret. The result counts only if there is no problem.
   */
  read(input: unknown, at: string, reject: Reject): T | undefined;
}

type Reject = (path: string, message: string) => undefined;

/** A reply must not be many times as long as its request. */
const MAX_FIELD_ERRORS = 20;

/** @param at the path of the input in its error */
export function validate<T, Code extends ErrorCode>(
  schema: Schema<T>,
  input: unknown,
  code: Code,
  at = '',
): T | Failure<Code> {
  const errors: FieldError[] = [];
  const value = schema.read(input, at, (path, message) => {
    errors.push({ path, message });
    return undefined;
  });
  if (value !== undefined && errors.length === 0) return value;
  return new Failure(code, { fields: errors.slice(0, MAX_FIELD_ERRORS) });
}

/** A schema without parts. @param parse returns undefined for an invalid value */
export const scalar = <T>(
  jsonSchema: JsonSchema,
  message: string,
  parse: (input: unknown) => T | undefined,
): Schema<T> => ({
  jsonSchema,
  read: (input, at, reject) => parse(input) ?? reject(at, message),
});

type Range = Readonly<{
  min: number;
  max: number;
  description?: string;
}>;

/** Without flags and `\p{…}`, which the patterns of a JSON Schema do not have (ECMA-262 5.1). */
export interface Pattern {
  readonly form: RegExp;
  readonly problem: string;
}

type TextRule = Partial<Range & { pattern: Pattern; check: (text: string) => string | null }>;

/**
 * Well-formed text: a lone surrogate has no UTF-8 form, so it could neither be stored nor returned.
 * Lengths are in UTF-16 units, as `maxLength` counts.
 * @param rule `check` returns what no pattern can describe: a further problem, or null
 */
export function text({
  min = 0,
  max,
  pattern,
  description,
  check = () => null,
}: TextRule = {}): Schema<string> {
  const problemOf = (input: string) => {
    if (input.length === 0 && min === 1) return 'must not be empty';
    if (input.length < min) return `must have at least ${min} characters`;
    if (max !== undefined && input.length > max) return `must have at most ${max} characters`;
    if (!input.isWellFormed()) return 'must not contain a lone surrogate';
    return pattern?.form.test(input) === false ? pattern.problem : check(input);
  };
  return {
    jsonSchema: {
      type: 'string',
      minLength: min || undefined,
      maxLength: max,
      pattern: pattern?.form.source,
      description,
    },
    read(input, at, reject) {
      if (typeof input !== 'string') return reject(at, 'must be a string');
      const problem = problemOf(input);
      return problem === null ? input : reject(at, problem);
    },
  };
}

/** PostgreSQL's `text` cannot hold U+0000. */
export const withoutNul: Pattern = {
  form: /^[^\u0000]*$/,
  problem: 'must not contain the character U+0000',
};

/**
 * For a text that is shown to others: further lines, or a reversed one, could pass for something
 * else (CWE-150, CWE-451).
 */
export const oneLine: Pattern = {
  form: /^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]*$/,
  problem: 'must be one line without control characters',
};

const TIMESTAMP = /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

export const uuid = (description?: string) =>
  scalar(
    { type: 'string', format: 'uuid', description },
    'must be a UUID, such as 123e4567-e89b-42d3-a456-426614174000',
    (input) =>
      typeof input === 'string' && isUuid(input.toLowerCase()) ? input.toLowerCase() : undefined,
  );

const ranged = ({ min, max, description }: Range, numberIn: (input: unknown) => unknown) =>
  scalar(
    { type: 'integer', minimum: min, maximum: max, description },
    `must be a whole number from ${min} to ${max}`,
    (input) => {
      const number = numberIn(input);
      if (typeof number !== 'number' || !Number.isInteger(number)) return undefined;
      return number >= min && number <= max ? number : undefined;
    },
  );

export const integer = (range: Range) => ranged(range, (input) => input);

/** A whole decimal number in a query: digits only, so none of `1e3`, `0x10`, ` 1` and `1.0`. */
export const decimal = (range: Range) =>
  ranged(range, (input) => {
    const isDecimal = typeof input === 'string' && /^[0-9]{1,15}$/.test(input);
    return isDecimal ? Number(input) : undefined;
  });

export const boolean = () =>
  scalar({ type: 'boolean' }, 'must be true or false', (input) =>
    typeof input === 'boolean' ? input : undefined,
  );

export const oneOf = <W extends string>(...words: readonly W[]) =>
  scalar({ type: 'string', enum: words }, `must be one of ${words.join(', ')}`, (input) =>
    words.find((word) => word === input),
  );

/** A date and time in a reply (RFC 3339, in UTC), which is also the JSON of a `Date`. */
export const dateTime = (description?: string): Schema<Date | string> => ({
  ...text(),
  jsonSchema: { type: 'string', format: 'date-time', description },
});

/** A date and time in a request (RFC 3339, with its offset). */
export const timestamp = (description: string) =>
  scalar(
    { type: 'string', format: 'date-time', description },
    'must be a date and time, such as 2030-01-31T12:00:00Z',
    (input) => {
      const text = typeof input === 'string' ? input : '';
      const [whole = '', day = ''] = TIMESTAMP.exec(text) ?? [];
      const date = new Date(whole);
      if (Number.isNaN(date.getTime())) return undefined;
      // JavaScript reads 30 February as 2 March, so the day is compared with itself.
      const isReal = new Date(`${day}T00:00:00Z`).toISOString().startsWith(day);
      // PostgreSQL reads neither year 0 nor years of five digits, which an offset can cause.
      return isReal && /^(?!0000)\d{4}-/.test(date.toISOString()) ? date : undefined;
    },
  );

export const nullable = <T>(schema: Schema<T>): Schema<T | null> => ({
  jsonSchema: { ...schema.jsonSchema, nullable: true },
  read: (input, at, reject) => (input === null ? null : schema.read(input, at, reject)),
});

export const list = <T>(schema: Schema<T>): Schema<T[]> => ({
  jsonSchema: { type: 'array', items: schema.jsonSchema },
  read(input, at, reject) {
    if (!Array.isArray(input)) return reject(at, 'must be an array');
    const values = input.map((item: unknown, index) => schema.read(item, `${at}/${index}`, reject));
    return values.filter((value) => value !== undefined);
  },
});

/** A member that may be missing, and is then undefined. */
export const optional = <T>(schema: Schema<T>): Schema<T | undefined> => ({
  ...schema,
  jsonSchema: { ...schema.jsonSchema, default: undefined },
  fallback: undefined,
});

/**
 * A member that may be missing, and then has this value.
 * @param sent what a client would send for it
 */
export const withDefault = <T>(schema: Schema<T>, value: T, sent: unknown = value): Schema<T> => ({
  ...schema,
  jsonSchema: { ...schema.jsonSchema, default: sent },
  fallback: value,
});

/** The type that a schema reads. */
export type Infer<S> = S extends Schema<infer T> ? T : never;

export type Members = Readonly<Record<string, Schema<unknown>>>;
export type Values<M extends Members> = { readonly [K in keyof M]: Infer<M[K]> };

/** The same members, of which any may be missing: what a change names. */
export const partial = <M extends Members>(members: M) =>
  Object.fromEntries(
    Object.entries(members).map(([name, schema]) => [name, optional(schema)]),
    // Each member has become optional under its own name.
  ) as { readonly [K in keyof M]: Schema<Infer<M[K]> | undefined> };

export const isObject = (input: unknown): input is Readonly<Record<string, unknown>> =>
  typeof input === 'object' && input !== null && !Array.isArray(input);

/**
 * Unknown members are rejected where a misspelled optional member would silently change the
 * outcome.
 * @param kind what its members are called
 */
export function object<M extends Members>(
  members: M,
  unknown: 'ignored' | 'rejected' = 'ignored',
  kind: 'member' | 'parameter' = 'member',
): Schema<Values<M>> {
  const schemas = Object.entries(members);
  const required = schemas.filter(([, schema]) => !('fallback' in schema)).map(([name]) => name);
  const pathOf = (at: string, name: string) => (kind === 'parameter' ? name : pointer(at, name));
  return {
    jsonSchema: {
      type: 'object',
      properties: Object.fromEntries(schemas.map(([name, schema]) => [name, schema.jsonSchema])),
      required: required.length > 0 ? required : undefined,
      additionalProperties: unknown === 'rejected' ? false : undefined,
    },
    read(input, at, reject) {
      if (!isObject(input)) return reject(at, 'must be a JSON object');
      for (const name of Object.keys(input)) {
        if (unknown === 'ignored' || Object.hasOwn(members, name)) continue;
        // The name is the client's own text, so it is cut short.
        reject(pathOf(at, name.slice(0, 64)), `is not a known ${kind}`);
      }
      const values = schemas.map(([name, schema]) => {
        const given = Object.hasOwn(input, name) ? input[name] : undefined;
        if (given !== undefined) return [name, schema.read(given, pathOf(at, name), reject)];
        const isOptional = 'fallback' in schema;
        return [name, isOptional ? schema.fallback : reject(pathOf(at, name), 'is required')];
      });
      // Each member was read by the schema of its name.
      return Object.fromEntries(values) as Values<M>;
    },
  };
}

/**
 * The parameters of a query. One that is given twice is rejected: two readers might choose
 * different values. So is an unknown one: a misspelled filter must not select everything.
 * @param unknown for a page: mail programs and other sites append parameters to links
 */
export function queryParameters<M extends Members>(
  members: M,
  unknown: 'ignored' | 'rejected' = 'rejected',
): Schema<Values<M>> {
  const { jsonSchema, read } = object(members, unknown, 'parameter');
  return {
    jsonSchema,
    read(input, at, reject) {
      const query = input instanceof URLSearchParams ? input : new URLSearchParams();
      for (const name of Object.keys(members)) {
        if (query.getAll(name).length > 1) reject(name, 'must be given only once');
      }
      return read(Object.fromEntries(query), at, reject);
    },
  };
}

/** No input is expected, and any is ignored. */
export const noInput: Schema<Record<never, never>> = { jsonSchema: {}, read: () => ({}) };

/** A JSON pointer (RFC 6901). */
export const pointer = (at: string, name: string) =>
  `${at}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
