import type { FieldError } from './errors.ts';

/** The part of JSON Schema, as in OpenAPI 3.0.3, that shapes use. */
export interface JsonSchema extends Partial<
  Record<'minLength' | 'maxLength' | 'minimum' | 'maximum', number | undefined>
> {
  readonly type?: 'string' | 'integer' | 'boolean' | 'object' | 'array';
  readonly format?: string;
  readonly description?: string | undefined;
  readonly enum?: ReadonlyArray<string | null>;
  readonly nullable?: boolean;
  readonly default?: string | number | boolean;
  readonly items?: JsonSchema;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[] | undefined;
  readonly additionalProperties?: false | undefined;
}

/** One definition for both the check of an input and its JSON Schema, so that they cannot disagree. */
export interface Shape<T> {
  readonly schema: JsonSchema;
  readonly missing?: { readonly value: T }; // set if the member may be missing; `value` then takes its place
  /**
   * Reads an unknown value. `errors` gets every problem with its path, but never the value, which may be a secret. The
   * result counts only if there is no problem.
   */
  read(input: unknown, at: string, errors: FieldError[]): T | undefined;
}

export type Validation<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly errors: readonly FieldError[] };

/** A reply must not be many times as long as its request. */
const MAX_FIELD_ERRORS = 20;

export function validate<T>(shape: Shape<T>, input: unknown, at = ''): Validation<T> {
  const errors: FieldError[] = [];
  const value = shape.read(input, at, errors);
  if (value === undefined || errors.length > 0)
    return { ok: false, errors: errors.slice(0, MAX_FIELD_ERRORS) };
  return { ok: true, value };
}

const reject = (errors: FieldError[], path: string, message: string): undefined =>
  void errors.push({ path, message });

/** A shape without parts. @param parse returns undefined for an invalid value */
export const scalar = <T>(
  schema: JsonSchema,
  message: string,
  parse: (input: unknown) => T | undefined,
): Shape<T> => ({
  schema,
  read: (input, at, errors) => parse(input) ?? reject(errors, at, message),
});

type Range = Readonly<{ min: number; max: number; description?: string }>;
/** Lengths are in UTF-16 units, as `maxLength` counts. A further check returns the problem, or null. */
type TextLimits = Partial<Range & Readonly<{ check: (text: string) => string | null }>>;

/** Well-formed text: a lone surrogate has no UTF-8 form, so it could neither be stored nor returned. */
export function text({
  min = 0,
  max,
  description,
  check = () => null,
}: TextLimits = {}): Shape<string> {
  const problemOf = (input: string): string | null => {
    if (input.length < min)
      return min === 1 ? 'must not be empty' : `must have at least ${min} characters`;
    if (max !== undefined && input.length > max) return `must have at most ${max} characters`;
    return input.isWellFormed() ? check(input) : 'must not contain a lone surrogate';
  };
  return {
    schema: { type: 'string', minLength: min || undefined, maxLength: max, description },
    read(input, at, errors) {
      if (typeof input !== 'string') return reject(errors, at, 'must be a string');
      const problem = problemOf(input);
      return problem === null ? input : reject(errors, at, problem);
    },
  };
}

/** PostgreSQL's `text` cannot hold U+0000. */
export const withoutNul = (value: string): string | null =>
  value.includes('\0') ? 'must not contain the character U+0000' : null;

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const UUID_NEEDED = 'must be a UUID, such as 123e4567-e89b-42d3-a456-426614174000';
const TIMESTAMP = /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

export const uuid = (description?: string): Shape<string> =>
  scalar({ type: 'string', format: 'uuid', description }, UUID_NEEDED, (input) =>
    typeof input === 'string' && UUID.test(input) ? input.toLowerCase() : undefined,
  );

export const integer = ({ min, max, description }: Range): Shape<number> =>
  scalar(
    { type: 'integer', minimum: min, maximum: max, description },
    `must be a whole number from ${min} to ${max}`,
    (input) =>
      Number.isInteger(input) && Number(input) >= min && Number(input) <= max
        ? Number(input)
        : undefined,
  );

/** A whole decimal number in a query: digits only, so none of `1e3`, `0x10`, ` 1` and `1.0`. */
export function decimal(range: Range): Shape<number> {
  const { schema, read } = integer(range);
  const parse = (input: unknown) =>
    typeof input === 'string' && /^[0-9]{1,15}$/.test(input) ? Number(input) : null;
  return { schema, read: (input, at, errors) => read(parse(input), at, errors) };
}

export const boolean = (): Shape<boolean> =>
  scalar({ type: 'boolean' }, 'must be true or false', (input) =>
    typeof input === 'boolean' ? input : undefined,
  );

export const oneOf = <W extends string>(...words: readonly W[]): Shape<W> =>
  scalar({ type: 'string', enum: words }, `must be one of ${words.join(', ')}`, (input) =>
    words.find((word) => word === input),
  );

/** A date and time in a reply (RFC 3339, in UTC), which is also the JSON of a `Date`. */
export const dateTime = (description?: string): Shape<Date | string> => ({
  schema: { type: 'string', format: 'date-time', description },
  read: text().read,
});

/** A date and time in a request (RFC 3339, with its offset). */
export const timestamp = (description: string): Shape<Date> =>
  scalar(
    { type: 'string', format: 'date-time', description },
    'must be a date and time, such as 2030-01-31T12:00:00Z',
    (input) => {
      const [whole = '', day = ''] = TIMESTAMP.exec(typeof input === 'string' ? input : '') ?? [];
      const date = new Date(whole);
      // JavaScript reads 30 February as 2 March, so the day is compared with itself.
      const isReal =
        !Number.isNaN(date.getTime()) && new Date(`${day}T00:00:00Z`).toISOString().startsWith(day);
      // PostgreSQL reads neither year 0 nor years of five digits, which an offset can cause.
      return isReal && /^(?!0000)\d{4}-/.test(date.toISOString()) ? date : undefined;
    },
  );

export const nullable = <T>(shape: Shape<T>): Shape<T | null> => ({
  schema: { ...shape.schema, nullable: true },
  read: (input, at, errors) => (input === null ? null : shape.read(input, at, errors)),
});

export const list = <T>(shape: Shape<T>): Shape<T[]> => ({
  schema: { type: 'array', items: shape.schema },
  read(input, at, errors) {
    if (!Array.isArray(input)) return reject(errors, at, 'must be an array');
    const values = input.map((item: unknown, index) => shape.read(item, `${at}/${index}`, errors));
    return values.filter((value): value is T => value !== undefined);
  },
});

/** A member that may be missing, and is then undefined. */
export const optional = <T>(shape: Shape<T>): Shape<T | undefined> => ({
  ...shape,
  missing: { value: undefined },
});

/** A member that may be missing, and then has this value. */
export const withDefault = <T extends string | number | boolean>(
  shape: Shape<T>,
  value: T,
): Shape<T> => ({ ...shape, schema: { ...shape.schema, default: value }, missing: { value } });

/** The type that a shape reads. */
export type Infer<S> = S extends Shape<infer T> ? T : never;

export type Members = Readonly<Record<string, Shape<unknown>>>;
export type Values<M extends Members> = { readonly [K in keyof M]: Infer<M[K]> };

export const isObject = (input: unknown): input is Readonly<Record<string, unknown>> =>
  typeof input === 'object' && input !== null && !Array.isArray(input);

function membersOf<M extends Members>(
  members: M,
  kind: 'member' | 'parameter',
  refuseUnknown: boolean,
): Shape<Values<M>> {
  const shapes = Object.entries(members);
  const required = shapes.filter(([, shape]) => !shape.missing).map(([name]) => name);
  const pathOf = (at: string, name: string) => (kind === 'member' ? pointer(at, name) : name);
  return {
    schema: {
      type: 'object',
      properties: Object.fromEntries(shapes.map(([name, shape]) => [name, shape.schema])),
      required: required.length > 0 ? required : undefined,
      additionalProperties: refuseUnknown ? false : undefined,
    },
    read(input, at, errors) {
      if (!isObject(input)) return reject(errors, at, 'must be a JSON object');
      const unknown = refuseUnknown
        ? Object.keys(input).filter((name) => !Object.hasOwn(members, name))
        : [];
      // The name is the client's own text, so it is cut short.
      for (const name of unknown)
        reject(errors, pathOf(at, name.slice(0, 64)), `is not a known ${kind}`);
      const values = shapes.map(([name, shape]) => {
        const given = Object.hasOwn(input, name) ? input[name] : undefined;
        if (given !== undefined) return [name, shape.read(given, pathOf(at, name), errors)];
        return [
          name,
          shape.missing ? shape.missing.value : reject(errors, pathOf(at, name), 'is required'),
        ];
      });
      // Each member was read by the shape of its name.
      return Object.fromEntries(values) as Values<M>;
    },
  };
}

/** Unknown members are rejected where a misspelled optional member would silently change the outcome. */
export const object = <M extends Members>(
  members: M,
  unknown: 'ignored' | 'rejected' = 'ignored',
): Shape<Values<M>> => membersOf(members, 'member', unknown === 'rejected');

/**
 * The parameters of a query. One that is given twice is rejected: two readers might choose different values. So is an
 * unknown one: a misspelled filter must not select everything.
 */
export function queryParameters<M extends Members>(members: M): Shape<Values<M>> {
  const { schema, read } = membersOf(members, 'parameter', true);
  return {
    schema,
    read(input, at, errors) {
      const query = input instanceof URLSearchParams ? input : new URLSearchParams();
      const repeated = Object.keys(members).filter((name) => query.getAll(name).length > 1);
      for (const name of repeated) reject(errors, name, 'must be given only once');
      return read(Object.fromEntries(query), at, errors);
    },
  };
}

export const noQuery = queryParameters({});
/** No input is expected, and any is ignored. */
export const noInput: Shape<Record<never, never>> = { schema: {}, read: () => ({}) };

/** A JSON pointer (RFC 6901). */
export const pointer = (at: string, name: string) =>
  `${at}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
