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

/** Each error as `path: message`, or the value. */
function read(schema: Schema<unknown>, input: unknown, at = ''): unknown {
  const result = validate(schema, input, 'invalid_body', at);
  return result instanceof Failure
    ? result.details.fields?.map(({ path, message }) => `${path}: ${message}`)
    : result;
}

const STRING = 'must be a string';
const UUID = 'must be a UUID, such as 123e4567-e89b-42d3-a456-426614174000';
const RANGE = 'must be a whole number from 1 to 100';
const SURROGATE = 'must not contain a lone surrogate';
const notStrings = [null, 1, true, {}, [], ['a'], Symbol('a'), new String('a')];
const notBooleans = [null, 0, 1, 'true', '', {}, []];

const WRONG: ReadonlyArray<
  readonly [what: string, schema: Schema<unknown>, message: string, inputs: readonly unknown[]]
> = [
  ['text', text(), STRING, notStrings],
  ['text of at least 1', text({ min: 1 }), 'must not be empty', ['']],
  ['text of at least 3', text({ min: 3 }), 'must have at least 3 characters', ['', 'ab']],
  ['text of at most 3', text({ max: 3 }), 'must have at most 3 characters', ['abcd', MARK, '𝄞𝄞']],
  [
    'well-formed text',
    text(),
    SURROGATE,
    ['\ud800', '\udc00', `${MARK}\ud83d`, '\udc00\ud800', '\ud83d\ud83d\ude00'],
  ],
  [
    'text without NUL',
    text({ pattern: withoutNul }),
    'must not contain the character U+0000',
    ['\0', `${MARK}\0`],
  ],
  [
    'uuid',
    uuid(),
    UUID,
    [
      ...notStrings,
      ...['', MARK, `${ID} `, ` ${ID}`, `${ID}\n`, `{${ID}}`, `urn:uuid:${ID}`],
      ...[ID.replaceAll('-', ''), ID.replace('1', 'g'), ID.replace('1', '１')],
    ],
  ],
  [
    'integer',
    integer({ min: 1, max: 100 }),
    RANGE,
    [null, '1', '', true, [], {}, 0, -1, 101, 1.5, Number.NaN, Infinity, 1e300, 1n],
  ],
  [
    'decimal',
    decimal({ min: 1, max: 100 }),
    RANGE,
    [
      ...wordsOf('+1 -1 0 101 1.0 1. .1 1e1 1e3 0x10 0b1 1_0 1,0 NaN Infinity ١'),
      ...['', ' 1', '1 ', '1\n', MARK, '999999999999999999999', '0000000000000001'],
      ...[null, [], ['1']],
    ],
  ],
  ['boolean', boolean(), 'must be true or false', notBooleans],
  [
    'word',
    oneOf('one', 'two'),
    'must be one of one, two',
    [...notStrings, '', 'One', 'one ', MARK, 'toString', '__proto__'],
  ],
  ['date and time', dateTime(), STRING, notStrings],
  [
    'moment',
    timestamp('when'),
    'must be a date and time, such as 2030-01-31T12:00:00Z',
    [
      ...notStrings,
      ...[new Date(0), 0, '', MARK, 'now', '1893456000', '2030-01-31 12:00:00Z'],
      ...[' 2030-01-31T12:00:00Z', '2030-01-31T12:00:00Z\n', 'Thu, 31 Jan 2030 12:00:00 GMT'],
      ...wordsOf(`
        2030-01-31 2030-01-31T12:00:00 2030-01-31T12:00Z 20300131T120000Z 2030-W05-4T12:00:00Z
        2030-01-31t12:00:00z 2030-01-31T12:00:00+0100 2030-01-31T12:00:00+1:00 2030-01-31T12:00:00.Z
        2030-01-31T12:00:00.0123456789Z +002030-01-31T12:00:00Z -2030-01-31T12:00:00Z
        12030-01-31T12:00:00Z ٢٠٣٠-01-31T12:00:00Z
      `),
    ],
  ],
  [
    'moment on a real day',
    timestamp('when'),
    'must be a date and time, such as 2030-01-31T12:00:00Z',
    // Read as a day of the next month, or as the next day, the last five would be another moment
    // than was meant (RFC 3339, 5.6 and 5.7).
    wordsOf(`
      2030-00-10T12:00:00Z 2030-13-10T12:00:00Z 2030-01-00T12:00:00Z 2030-01-32T12:00:00Z
      2030-01-31T25:00:00Z 2030-01-31T12:60:00Z 2030-01-31T12:00:61Z 2030-01-31T12:00:00+24:00
      2030-02-29T12:00:00Z 2030-02-31T12:00:00Z 2100-02-29T12:00:00Z 2030-04-31T12:00:00Z
      2030-01-31T24:00:00Z
    `),
  ],
  // Neither fits the form in which a moment is stored and given back, which has years of four
  // digits and no year 0.
  [
    'moment of our era',
    timestamp('when'),
    'must be a date and time, such as 2030-01-31T12:00:00Z',
    ['0000-01-01T00:00:00Z', '0001-01-01T00:00:00+01:00', '9999-12-31T23:59:59-01:00'],
  ],
  ['list', list(text()), 'must be an array', [null, '', MARK, {}, { length: 1 }, 1]],
  ['object', object({}), 'must be a JSON object', [null, '', MARK, 1, true, [], [{}]]],
];

for (const [what, schema, message, inputs] of WRONG) {
  test(`${what}: any other value is rejected without quoting it`, () => {
    for (const input of inputs)
      assert.deepEqual(read(schema, input, '/a'), [`/a: ${message}`], String(input));
  });
}

const RIGHT: ReadonlyArray<
  readonly [
    what: string,
    schema: Schema<unknown>,
    pairs: ReadonlyArray<readonly [input: unknown, value: unknown]>,
  ]
> = [
  [
    'text comes back as it came',
    text({ min: 1, max: 4 }),
    ['a', '𝄞𝄞', '\0', ' a ', 'e\u0301'].map((same) => [same, same] as const),
  ],
  [
    'a UUID comes back in small letters',
    uuid(),
    [
      [ID, ID],
      [ID.toUpperCase(), ID],
    ],
  ],
  ['an integer', integer({ min: -1, max: 100 }), [-1, 0, 100].map((same) => [same, same] as const)],
  [
    'a decimal',
    decimal({ min: 1, max: 100 }),
    [
      ['1', 1],
      ['100', 100],
      ['007', 7],
    ],
  ],
  ['a boolean', boolean(), [true, false].map((same) => [same, same] as const)],
  ['a word', oneOf('one', 'two'), [['two', 'two']]],
  [
    'a moment, by whichever clock',
    timestamp('when'),
    [
      ['2030-01-31T12:00:00Z', new Date('2030-01-31T12:00:00Z')],
      ['2030-01-31T12:00:00.5+05:45', new Date('2030-01-31T06:15:00.500Z')],
      ['2030-01-31T12:00:00-08:00', new Date('2030-01-31T20:00:00Z')],
      ['2030-01-31T12:00:00.123456789Z', new Date('2030-01-31T12:00:00.123Z')],
      ['2028-02-29T23:59:59Z', new Date('2028-02-29T23:59:59Z')],
      ['2000-02-29T00:00:00Z', new Date('2000-02-29T00:00:00Z')],
      ['2030-12-31T23:30:00-01:00', new Date('2031-01-01T00:30:00Z')],
      ['0001-01-01T00:00:00Z', new Date('0001-01-01T00:00:00Z')],
      ['9999-12-31T23:59:59Z', new Date('9999-12-31T23:59:59Z')],
    ],
  ],
  [
    'a list',
    list(integer({ min: 0, max: 9 })),
    [
      [[], []],
      [
        [1, 2],
        [1, 2],
      ],
    ],
  ],
  ['nullable', nullable(text()), [null, ''].map((same) => [same, same] as const)],
  [
    'nothing ignores whatever comes',
    noInput,
    [
      [null, {}],
      [MARK, {}],
      [{ a: 1 }, {}],
    ],
  ],
];

for (const [what, schema, pairs] of RIGHT) {
  test(`accepted: ${what}`, () => {
    for (const [input, value] of pairs) assert.deepEqual(read(schema, input), value);
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

test('all errors are reported at once, each with its path', () => {
  const schema = object({ people: list(person), owner: object({ name: text() }) });
  const input = { people: [{ name: '' }, { name: 'a' }, MARK, { age: MARK }], owner: { name: 7 } };
  assert.deepEqual(read(schema, input), [
    '/people/0/name: must not be empty',
    '/people/2: must be a JSON object',
    '/people/3/name: is required',
    '/people/3/age: must be a whole number from 0 to 150',
    '/owner/name: must be a string',
  ]);
});

test('a path is a JSON pointer (RFC 6901, section 3)', () => {
  const schema = object({ 'a/b': object({ 'm~n': object({ '': object({ '~1': text() }) }) }) });
  assert.deepEqual(read(schema, { 'a/b': { 'm~n': { '': { '~1': 1 } } } }), [
    '/a~1b/m~0n//~01: must be a string',
  ]);
});

test('unknown members are ignored, or rejected if the schema says so', () => {
  const input = JSON.parse('{"name":"a","nmae":1,"__proto__":{"age":1},"constructor":2,"a/b":3}');
  assert.deepEqual(read(object({ name: text() }), input), { name: 'a' });
  assert.deepEqual(
    read(object({ name: text() }, 'rejected'), input),
    ['nmae', '__proto__', 'constructor', 'a~1b'].map((name) => `/${name}: is not a known member`),
  );
});

test('a long unknown name is truncated in its error', () => {
  const errors = read(object({}, 'rejected'), { ['x'.repeat(10_000)]: 1 });
  assert.deepEqual(errors, [`/${'x'.repeat(64)}: is not a known member`]);
});

test('a __proto__ member neither supplies members nor changes a prototype', () => {
  const schema = object({ name: text(), toString: optional(text()) });
  assert.deepEqual(read(schema, JSON.parse('{"__proto__":{"name":"inherited"}}')), [
    '/name: is required',
  ]);
  const value = read(schema, JSON.parse('{"name":"a","__proto__":{"admin":true}}'));
  assert.equal(Reflect.get(Object(value), 'admin'), undefined);
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.equal(Reflect.get({}, 'admin'), undefined);
});

test('inherited members count as missing', () => {
  assert.deepEqual(read(object({ toString: text() }), {}), ['/toString: is required']);
  assert.deepEqual(read(object({ constructor: text() }), {}), ['/constructor: is required']);
  const parameters = queryParameters({ constructor: optional(text()) });
  assert.deepEqual(read(parameters, new URLSearchParams()), { constructor: undefined });
});

const query = (entries: Readonly<Record<string, readonly string[]>>) =>
  new URLSearchParams(
    Object.entries(entries).flatMap(([name, values]) =>
      values.map((value): [string, string] => [name, value]),
    ),
  );
const search = queryParameters({
  page: withDefault(decimal({ min: 1, max: 100 }), 1),
  user: optional(uuid()),
  token: text({ min: 1 }),
});

test('errors name query parameters without a slash', () => {
  assert.deepEqual(read(search, query({ token: ['t'], page: ['2'] })), {
    token: 't',
    page: 2,
    user: undefined,
  });
  assert.deepEqual(read(search, query({ user: [MARK], page: ['1e1'] })), [
    `page: ${RANGE}`,
    `user: ${UUID}`,
    'token: is required',
  ]);
  assert.deepEqual(read(search, query({ token: [''], page: [''] })), [
    `page: ${RANGE}`,
    'token: must not be empty',
  ]);
});

test('a repeated query parameter is rejected, even with the same value', () => {
  assert.deepEqual(read(search, query({ token: ['t', 't'] })), ['token: must be given only once']);
  assert.deepEqual(read(search, query({ token: ['t'], page: ['1', '2'], user: [ID, ID, ID] })), [
    'page: must be given only once',
    'user: must be given only once',
  ]);
});

test('unknown query parameters are rejected', () => {
  const strict = queryParameters({
    page: optional(decimal({ min: 1, max: 100 })),
    toString: optional(text()),
  });
  const unknown = (name: string) => `${name}: is not a known parameter`;
  assert.deepEqual(read(strict, query({})), { page: undefined, toString: undefined });
  assert.deepEqual(read(strict, query({ page: ['2'] })), { page: 2, toString: undefined });
  assert.deepEqual(
    read(
      strict,
      query({ Page: ['2'], page: ['0'], __proto__x: [MARK], constructor: [MARK, MARK], '': [''] }),
    ),
    [...['Page', '__proto__x', 'constructor', ''].map(unknown), `page: ${RANGE}`],
  );
  assert.deepEqual(read(strict, new URLSearchParams('__proto__=1')), [unknown('__proto__')]);
  assert.deepEqual(
    read(strict, query({ ['x'.repeat(10_000)]: [MARK] })),
    [unknown('x'.repeat(64))],
    'a long name is cut short',
  );
  assert.deepEqual(read(strict, query({ page: ['1', '2'], pages: ['1'] })), [
    'page: must be given only once',
    unknown('pages'),
  ]);
});

test('no error contains the value', () => {
  for (const [, schema, , inputs] of WRONG) {
    const marked = inputs.filter((input) => typeof input === 'string' && input.includes(MARK));
    for (const input of marked) assert.ok(!JSON.stringify(read(schema, input)).includes(MARK));
  }
  for (const input of [{ token: [MARK, MARK] }, { user: [MARK] }, { page: [MARK], token: [] }]) {
    assert.ok(!JSON.stringify(read(search, query(input))).includes(MARK));
  }
});

test('the schema of a schema agrees with its check', () => {
  const written = ({ jsonSchema }: Schema<unknown>): unknown =>
    JSON.parse(JSON.stringify(jsonSchema));
  assert.deepEqual(
    written(
      object(
        {
          name: text({ min: 1, max: 9, description: 'a name' }),
          page: withDefault(decimal({ min: 1, max: 5 }), 1),
          tags: list(nullable(oneOf('a'))),
          id: optional(uuid()),
        },
        'rejected',
      ),
    ),
    {
      type: 'object',
      properties: {
        name: { type: 'string', minLength: 1, maxLength: 9, description: 'a name' },
        page: { type: 'integer', minimum: 1, maximum: 5, default: 1 },
        tags: { type: 'array', items: { type: 'string', enum: ['a'], nullable: true } },
        id: { type: 'string', format: 'uuid' },
      },
      required: ['name', 'tags'],
      additionalProperties: false,
    },
  );
  assert.deepEqual(written(timestamp('when')), {
    type: 'string',
    format: 'date-time',
    description: 'when',
  });
  assert.deepEqual(written(object({ at: optional(dateTime()), on: optional(boolean()) })), {
    type: 'object',
    properties: { at: { type: 'string', format: 'date-time' }, on: { type: 'boolean' } },
  });
});
