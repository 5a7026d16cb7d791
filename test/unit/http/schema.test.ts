import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import {
  boolean,
  dateTime,
  decimal,
  integer,
  list,
  timestamp,
  noInput,
  nullable,
  object,
  optional,
  withDefault,
  queryParameters,
  type Schema,
  validate,
  text,
  uuid,
  withoutNul,
  oneOf,
} from '../../../src/platform/http/route/schema.ts';
import { wordsOf } from '../../support/words.ts';

const MARK = 'marked-value';
const ID = '123e4567-e89b-42d3-a456-426614174000';
const LONG = 'x'.repeat(10_000);

/** Each error as `path: message`, or the value. */
function read(schema: Schema<unknown>, input: unknown, at = ''): unknown {
  const result = validate(schema, input, 'invalid_body', at);
  return result instanceof Failure
    ? result.details.fields?.map(({ path, message }) => `${path}: ${message}`)
    : result;
}

const notStrings = [null, 1, true, {}, [], ['a'], Symbol('a'), new String('a')];

interface Kind {
  readonly schema: Schema<unknown>;
  /** Inputs and what is read, if that differs. */
  readonly right: readonly unknown[];
  readonly changed?: ReadonlyArray<readonly [input: unknown, value: unknown]>;
  readonly wrong: Readonly<Record<string, readonly unknown[]>>;
}

const UUID = 'must be a UUID, such as 123e4567-e89b-42d3-a456-426614174000';
const RANGE = 'must be a whole number from 1 to 100';

const KINDS: Readonly<Record<string, Kind>> = {
  'text of 3 to 4 characters': {
    schema: text({ min: 3, max: 4 }),
    right: ['abc', '\0\0\0', ' a ', 'e\u0301a', '𝄞𝄞'],
    wrong: {
      'must be a string': notStrings,
      'must have at least 3 characters': ['', 'ab'],
      'must have at most 4 characters': ['abcde', MARK, '𝄞𝄞𝄞'],
      'must not contain a lone surrogate': [
        'a\ud800c',
        'a\udc00c',
        '\udc00\ud800a',
        '\ud83d\ud83d\ude00',
      ],
    },
  },
  'text that is not empty': {
    schema: text({ min: 1 }),
    right: ['a'],
    wrong: { 'must not be empty': [''] },
  },
  'text without NUL': {
    schema: text({ pattern: withoutNul }),
    right: ['', 'a'],
    wrong: { 'must not contain the character U+0000': ['\0', `${MARK}\0`] },
  },
  uuid: {
    schema: uuid(),
    right: [ID],
    changed: [[ID.toUpperCase(), ID]],
    wrong: {
      [UUID]: [
        ...notStrings,
        ...['', MARK, `${ID} `, ` ${ID}`, `${ID}\n`, `{${ID}}`, `urn:uuid:${ID}`],
        ...[ID.replaceAll('-', ''), ID.replace('1', 'g'), ID.replace('1', '１')],
      ],
    },
  },
  integer: {
    schema: integer({ min: 1, max: 100 }),
    right: [1, 100],
    wrong: { [RANGE]: [null, '1', true, [], {}, 0, 101, 1.5, Number.NaN, Infinity, 1e300, 1n] },
  },
  decimal: {
    schema: decimal({ min: 1, max: 100 }),
    right: [],
    changed: [
      ['1', 1],
      ['100', 100],
      ['007', 7],
    ],
    wrong: {
      [RANGE]: [
        ...wordsOf('+1 -1 0 101 1.0 1. .1 1e1 0x10 0b1 1_0 1,0 NaN Infinity ١ 0000000000000001'),
        ...['', ' 1', '1 ', '1\n', MARK, '999999999999999999999', null, [], ['1']],
      ],
    },
  },
  boolean: {
    schema: boolean(),
    right: [true, false],
    wrong: { 'must be true or false': [null, 0, 1, 'true', '', {}, []] },
  },
  word: {
    schema: oneOf('one', 'two'),
    right: ['two'],
    wrong: { 'must be one of one, two': [...notStrings, '', 'One', 'one ', MARK, 'toString'] },
  },
  'date and time': { schema: dateTime(), right: [], wrong: { 'must be a string': notStrings } },
  moment: {
    schema: timestamp('when'),
    right: [],
    changed: [
      ['2030-01-31T12:00:00Z', new Date('2030-01-31T12:00:00Z')],
      ['2030-01-31T12:00:00.5+05:45', new Date('2030-01-31T06:15:00.500Z')],
      ['2030-01-31T12:00:00.123456789Z', new Date('2030-01-31T12:00:00.123Z')],
      ['2000-02-29T00:00:00Z', new Date('2000-02-29T00:00:00Z')],
      ['2030-12-31T23:30:00-01:00', new Date('2031-01-01T00:30:00Z')],
      ['0001-01-01T00:00:00Z', new Date('0001-01-01T00:00:00Z')],
      ['9999-12-31T23:59:59Z', new Date('9999-12-31T23:59:59Z')],
    ],
    wrong: {
      'must be a date and time, such as 2030-01-31T12:00:00Z': [
        ...[...notStrings, new Date(0), 0, '', MARK, 'now', '1893456000', '2030-01-31 12:00:00Z'],
        ...[' 2030-01-31T12:00:00Z', '2030-01-31T12:00:00Z\n', 'Thu, 31 Jan 2030 12:00:00 GMT'],
        // Not as RFC 3339 writes a moment.
        ...wordsOf(`
          2030-01-31 2030-01-31T12:00:00 2030-01-31T12:00Z 20300131T120000Z 2030-W05-4T12:00:00Z
          2030-01-31t12:00:00z 2030-01-31T12:00:00+0100 2030-01-31T12:00:00+1:00
          2030-01-31T12:00:00.Z 2030-01-31T12:00:00.0123456789Z +002030-01-31T12:00:00Z
          12030-01-31T12:00:00Z ٢٠٣٠-01-31T12:00:00Z
        `),
        // No day or time. The last five would be read as another moment (RFC 3339, 5.6 and 5.7).
        ...wordsOf(`
          2030-00-10T12:00:00Z 2030-13-10T12:00:00Z 2030-01-00T12:00:00Z 2030-01-32T12:00:00Z
          2030-01-31T25:00:00Z 2030-01-31T12:60:00Z 2030-01-31T12:00:61Z 2030-01-31T12:00:00+24:00
          2030-02-29T12:00:00Z 2030-02-31T12:00:00Z 2100-02-29T12:00:00Z 2030-04-31T12:00:00Z
          2030-01-31T24:00:00Z
        `),
        // Not in a year of four digits, in which a moment is stored.
        ...['0000-01-01T00:00:00Z', '0001-01-01T00:00:00+01:00', '9999-12-31T23:59:59-01:00'],
      ],
    },
  },
  list: {
    schema: list(integer({ min: 0, max: 9 })),
    right: [[], [1, 2]],
    wrong: { 'must be an array': [null, '', MARK, {}, { length: 1 }, 1] },
  },
  nullable: { schema: nullable(text()), right: [null, ''], wrong: { 'must be a string': [1] } },
  object: {
    schema: object({}),
    right: [{}],
    wrong: { 'must be a JSON object': [null, '', MARK, 1, true, [], [{}]] },
  },
  'no input': {
    schema: noInput,
    right: [],
    changed: [null, MARK, { a: 1 }].map((ignored) => [ignored, {}] as const),
    wrong: {},
  },
};

for (const [what, { schema, right, changed = [], wrong }] of Object.entries(KINDS)) {
  test(`${what}: what fits is read, and anything else is rejected without quoting it`, () => {
    for (const input of right) assert.deepEqual(read(schema, input), input);
    for (const [input, value] of changed) assert.deepEqual(read(schema, input), value);
    for (const [message, inputs] of Object.entries(wrong)) {
      for (const input of inputs)
        assert.deepEqual(read(schema, input, '/a'), [`/a: ${message}`], String(input));
    }
  });
}

const person = object({
  name: text({ min: 1 }),
  age: optional(integer({ min: 0, max: 150 })),
  kind: withDefault(oneOf('cat', 'dog'), 'cat'),
});

test('a missing member is an error, unless it is optional or has a default', () => {
  assert.deepEqual(read(person, { name: 'a' }), { name: 'a', age: undefined, kind: 'cat' });
  assert.deepEqual(read(person, { age: 3 }), ['/name: is required']);
  assert.deepEqual(read(person, { name: 'a', age: null, kind: null }), [
    '/age: must be a whole number from 0 to 150',
    '/kind: must be one of cat, dog',
  ]);
});

test('all errors are reported at once, each with its path, a JSON pointer (RFC 6901)', () => {
  const schema = object({ people: list(person), 'a/b': object({ 'm~n': object({ '': text() }) }) });
  const people = [{ name: '' }, { name: 'a' }, MARK, { age: MARK }];
  assert.deepEqual(read(schema, { people, 'a/b': { 'm~n': { '': 1 } } }), [
    '/people/0/name: must not be empty',
    '/people/2: must be a JSON object',
    '/people/3/name: is required',
    '/people/3/age: must be a whole number from 0 to 150',
    '/a~1b/m~0n/: must be a string',
  ]);
});

test('unknown members are ignored, or rejected if the schema says so', () => {
  const given = '{"name":"a","nmae":1,"__proto__":{"age":1},"constructor":2,"a/b":3}';
  const input = { ...JSON.parse(given), [LONG]: 1 };
  assert.deepEqual(read(object({ name: text() }), input), { name: 'a' });
  const names = ['nmae', '__proto__', 'constructor', 'a~1b', LONG.slice(0, 64)];
  const errors = names.map((name) => `/${name}: is not a known member`);
  assert.deepEqual(read(object({ name: text() }, 'rejected'), input), errors);
});

test('inherited members count as missing, and __proto__ changes no prototype', () => {
  const schema = object({ name: text(), toString: optional(text()) });
  const inherited = JSON.parse('{"__proto__":{"name":"inherited"}}');
  assert.deepEqual(read(schema, inherited), ['/name: is required']);
  assert.deepEqual(read(object({ toString: text() }), {}), ['/toString: is required']);
  const value = read(schema, JSON.parse('{"name":"a","__proto__":{"admin":true}}'));
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  const parameters = queryParameters({ constructor: optional(text()) });
  assert.deepEqual(read(parameters, new URLSearchParams()), { constructor: undefined });
});

const search = queryParameters({
  page: withDefault(decimal({ min: 1, max: 100 }), 1),
  user: optional(uuid()),
  token: text({ min: 1 }),
  toString: optional(text()),
});
const unknown = (name: string) => `${name}: is not a known parameter`;
const QUERIES: Readonly<Record<string, readonly string[]>> = {
  [`user=${MARK}&page=1e1`]: [`page: ${RANGE}`, `user: ${UUID}`, 'token: is required'],
  'token=&page=': [`page: ${RANGE}`, 'token: must not be empty'],
  'token=t&token=t': ['token: must be given only once'],
  'token=t&page=1&page=2': ['page: must be given only once'],
  'token=t&Page=2&constructor=1&=': ['Page', 'constructor', ''].map(unknown),
  'token=t&__proto__=1&page=0': [unknown('__proto__'), `page: ${RANGE}`],
  [`token=t&${LONG}=1&pages=1&pages=2`]: [unknown(LONG.slice(0, 64)), unknown('pages')],
};

test('errors name query parameters without a slash; unknown or repeated ones are rejected', () => {
  const right = { token: 't', page: 2, user: undefined, toString: undefined };
  assert.deepEqual(read(search, new URLSearchParams('token=t&page=2')), right);
  for (const [query, errors] of Object.entries(QUERIES))
    assert.deepEqual(read(search, new URLSearchParams(query)), errors, query.slice(0, 40));
});

test('the schema of a schema agrees with its check', () => {
  const members = {
    name: text({ min: 1, max: 9, description: 'a name' }),
    page: withDefault(decimal({ min: 1, max: 5 }), 1),
    tags: list(nullable(oneOf('a'))),
    id: optional(uuid()),
    at: optional(timestamp('when')),
    on: optional(dateTime()),
    is: optional(boolean()),
  };
  assert.deepEqual(JSON.parse(JSON.stringify(object(members, 'rejected').jsonSchema)), {
    type: 'object',
    properties: {
      name: { type: 'string', minLength: 1, maxLength: 9, description: 'a name' },
      page: { type: 'integer', minimum: 1, maximum: 5, default: 1 },
      tags: { type: 'array', items: { type: 'string', enum: ['a'], nullable: true } },
      id: { type: 'string', format: 'uuid' },
      at: { type: 'string', format: 'date-time', description: 'when' },
      on: { type: 'string', format: 'date-time' },
      is: { type: 'boolean' },
    },
    required: ['name', 'tags'],
    additionalProperties: false,
  });
});
