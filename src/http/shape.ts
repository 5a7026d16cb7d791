import type { FieldError } from './errors.ts';
import type { Query } from './router.ts';

/** The part of JSON Schema (as OpenAPI 3.0.3 has it) that shapes can say. */
export interface JsonSchema {
  readonly type?: 'string' | 'integer' | 'boolean' | 'object' | 'array';
  readonly format?: string;
  readonly description?: string;
  readonly enum?: ReadonlyArray<string | null>;
  readonly nullable?: boolean;
  readonly default?: string | number | boolean;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly items?: JsonSchema;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean;
}

const INVALID = Symbol('faulty');

/** One description from which both the check of an input and its JSON Schema come, so that they cannot disagree. */
export interface Shape<T> {
  readonly schema: JsonSchema;
  /** Set when the member may be missing; `value` is what is then read. */
  readonly missing?: { readonly value: T };
  /** Reads an unknown value. What is wrong goes into `errors` with its place; the value itself never does. */
  read(input: unknown, at: string, errors: FieldError[]): T | typeof INVALID;
}

export type Validation<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly errors: readonly FieldError[] };

/** Enough to mend a request by; a reply must not be many times as long as what asked for it. */
const MAX_FIELD_ERRORS = 20;

/** `unknown` goes in; a typed value or a list of what is wrong with it comes out. */
export function validate<T>(shape: Shape<T>, input: unknown, at: string): Validation<T> {
  const errors: FieldError[] = [];
  const value = shape.read(input, at, errors);
  return value === INVALID ? { ok: false, errors: errors.slice(0, MAX_FIELD_ERRORS) } : { ok: true, value };
}

function reject(errors: FieldError[], path: string, message: string): typeof INVALID {
  errors.push({ path, message });
  return INVALID;
}

export interface StringLimits {
  readonly min?: number;
  /** In UTF-16 units, as `maxLength` counts. */
  readonly max?: number;
  readonly description?: string;
  /** A further test; returns what is wrong, or null. */
  readonly check?: (text: string) => string | null;
}

/** Well-formed text: a lone surrogate has no UTF-8 form, so it could be neither stored nor given back. */
export function text(limits: StringLimits = {}): Shape<string> {
  const { min = 0, max = Number.MAX_SAFE_INTEGER, description, check } = limits;
  return {
    schema: {
      type: 'string',
      ...(min > 0 ? { minLength: min } : {}),
      ...(limits.max === undefined ? {} : { maxLength: max }),
      ...(description === undefined ? {} : { description }),
    },
    read(input, at, errors) {
      if (typeof input !== 'string') return reject(errors, at, 'must be a string');
      if (input.length < min) return reject(errors, at, min === 1 ? 'must not be empty' : `must have at least ${min} characters`);
      if (input.length > max) return reject(errors, at, `must have at most ${max} characters`);
      if (/\p{Surrogate}/u.test(input)) return reject(errors, at, 'must not contain half of a surrogate pair');
      const wrong = check?.(input) ?? null;
      return wrong === null ? input : reject(errors, at, wrong);
    },
  };
}

/** PostgreSQL's `text` cannot hold U+0000. */
export const withoutNul = (value: string): string | null => (value.includes('\0') ? 'must not contain the character U+0000' : null);

export function uuid(description?: string): Shape<string> {
  return {
    schema: { type: 'string', format: 'uuid', ...(description === undefined ? {} : { description }) },
    read: (input, at, errors) =>
      typeof input === 'string' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(input)
        ? input.toLowerCase()
        : reject(errors, at, 'must be a UUID, such as 123e4567-e89b-42d3-a456-426614174000'),
  };
}

export function integer(limits: { min: number; max: number; description?: string }): Shape<number> {
  const { min, max, description } = limits;
  return {
    schema: { type: 'integer', minimum: min, maximum: max, ...(description === undefined ? {} : { description }) },
    read: (input, at, errors) =>
      typeof input === 'number' && Number.isInteger(input) && input >= min && input <= max
        ? input
        : reject(errors, at, `must be a whole number from ${min} to ${max}`),
  };
}

/** A whole decimal number in a query: digits only, so neither `1e3`, `0x10`, ` 1` nor `1.0`. */
export function decimal(limits: { min: number; max: number; description?: string }): Shape<number> {
  const number = integer(limits);
  return {
    schema: number.schema,
    read: (input, at, errors) => number.read(typeof input === 'string' && /^[0-9]{1,15}$/.test(input) ? Number(input) : input, at, errors),
  };
}

export function boolean(): Shape<boolean> {
  return {
    schema: { type: 'boolean' },
    read: (input, at, errors) => (typeof input === 'boolean' ? input : reject(errors, at, 'must be true or false')),
  };
}

/** A moment, as replies give it (RFC 3339 in UTC). */
export function dateTime(): Shape<string> {
  const { read } = text();
  return { schema: { type: 'string', format: 'date-time' }, read };
}

/** One of these words. */
export function oneOf<W extends string>(...words: readonly W[]): Shape<W> {
  return {
    schema: { type: 'string', enum: words },
    read: (input, at, errors) => words.find((one) => one === input) ?? reject(errors, at, `must be one of ${words.join(', ')}`),
  };
}

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
      const values: T[] = [];
      input.forEach((item: unknown, index) => {
        const value = shape.read(item, `${at}/${index}`, errors);
        if (value !== INVALID) values.push(value);
      });
      return values.length === input.length ? values : INVALID;
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
export type Values<M extends Members> = { readonly [K in keyof M]: Infer<M[K]> };

/**
 * An object with these members. Others are ignored, unless `others` is 'refused': then a misspelt optional member
 * cannot silently change the outcome.
 */
export function object<M extends Members>(members: M, others: 'ignored' | 'refused' = 'ignored'): Shape<Values<M>> {
  const entries = Object.entries(members);
  return {
    schema: { ...objectSchema(members), ...(others === 'refused' ? { additionalProperties: false } : {}) },
    read(input, at, errors) {
      if (!isRecord(input)) return reject(errors, at, 'must be a JSON object');
      const before = errors.length;
      if (others === 'refused') {
        for (const name of Object.keys(input)) {
          // The name is the caller's own text: it is cut short, and never the value.
          if (!Object.hasOwn(members, name)) reject(errors, pointer(at, name.slice(0, 64)), 'is not a member that this request knows');
        }
      }
      return readMembers(entries, (name) => (Object.hasOwn(input, name) ? input[name] : undefined), (name) => pointer(at, name), errors, before);
    },
  };
}

/** Any JSON object, as it is. */
export function jsonObject(): Shape<Readonly<Record<string, unknown>>> {
  const { schema } = object({});
  return { schema, read: (input, at, errors) => (isRecord(input) ? input : reject(errors, at, 'must be a JSON object')) };
}

const isRecord = (input: unknown): input is Readonly<Record<string, unknown>> => typeof input === 'object' && input !== null && !Array.isArray(input);

/** A moment in a request (RFC 3339, with its offset). */
export function timestamp(description: string): Shape<Date> {
  return {
    schema: { type: 'string', format: 'date-time', description },
    read(input, at, errors) {
      const form = /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;
      const [, day = ''] = form.exec(typeof input === 'string' ? input : '') ?? [];
      const date = new Date(day === '' ? Number.NaN : String(input));
      // The engine takes 30 February for 2 March; a year of more than four digits is none that PostgreSQL reads.
      const isReal = !Number.isNaN(date.getTime()) && new Date(`${day}T00:00:00Z`).toISOString().startsWith(day) && /^(?!0000)\d{4}-/.test(date.toISOString());
      return !isReal ? reject(errors, at, 'must be a date and time, such as 2030-01-31T12:00:00Z') : date;
    },
  };
}

/**
 * The parameters of a query. A parameter given twice is refused, because two readers might pick different ones.
 * @param others as for `object`
 */
export function queryParameters<M extends Members>(members: M, others: 'ignored' | 'refused' = 'ignored'): Shape<Values<M>> {
  const entries = Object.entries(members);
  return {
    schema: objectSchema(members),
    read(input, _at, errors) {
      const query: Query = input instanceof Map ? input : new Map();
      const before = errors.length;
      if (others === 'refused') {
        for (const name of query.keys()) if (!Object.hasOwn(members, name)) reject(errors, name.slice(0, 64), 'is not a parameter that this request knows');
      }
      for (const [name] of entries) {
        if ((query.get(name)?.length ?? 0) > 1) reject(errors, name, 'must be given only once');
      }
      return readMembers(entries, (name) => query.get(name)?.[0], (name) => name, errors, before);
    },
  };
}

const NOTHING = {};
/** Nothing is asked for, and whatever comes is ignored. */
export const noInput: Shape<Record<never, never>> = { schema: {}, read: () => NOTHING };

function readMembers<M extends Members>(
  members: ReadonlyArray<readonly [string, Shape<unknown>]>,
  value: (name: string) => unknown,
  place: (name: string) => string,
  errors: FieldError[],
  before: number,
): Values<M> | typeof INVALID {
  const result: Record<string, unknown> = {};
  for (const [name, shape] of members) {
    const given = value(name);
    if (given === undefined) {
      if (shape.missing) result[name] = shape.missing.value;
      else reject(errors, place(name), 'is required');
    } else {
      result[name] = shape.read(given, place(name), errors);
    }
  }
  // Every member has just been read by the shape of its name.
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

/** RFC 6901 */
const pointer = (at: string, name: string) => `${at}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
