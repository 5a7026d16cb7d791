/**
 * Values that go to the database as one text for a whole column: each arrives as it would have
 * alone.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { alignToKeys, arrayLiteral, hexBytes, jsonRows } from '../../../src/platform/db/sql.ts';
import { createDatabase } from '../../support/database.ts';

const { sql } = await createDatabase({ after });

type Value = string | Buffer | null;
/** As the statements of the services take a column apart. */
const arrived = async (values: readonly Value[], type: string): Promise<unknown[]> =>
  (
    await sql.unsafe(
      `select value from unnest($1::text::${type}[]) with ordinality as given (value, place)
        order by place`,
      [arrayLiteral(values)],
    )
  ).map(({ value }) => value);
/** As the statements of the services take rows apart. */
const arrivedInRows = async (values: readonly unknown[], type: string): Promise<unknown[]> =>
  (
    await sql.unsafe(
      `select value from rows from (json_to_recordset($1::text::json) as (value ${type}))
        with ordinality as given (value, place) order by place`,
      [jsonRows(values.map((value) => ({ value })))],
    )
  ).map(({ value }) => value);
/** As a parameter of its own. */
const alone = async (value: Value, type: string): Promise<unknown> =>
  (await sql.unsafe(`select $1::${type} as value`, [value]))[0]?.value;

const TEXTS = [
  '',
  ' ',
  '  a  ',
  'a',
  'NULL',
  'null',
  'Null',
  '"NULL"',
  '"',
  '""',
  '\\',
  '\\\\',
  '\\"',
  '"\\',
  "'",
  "''",
  ',',
  ',,',
  '{',
  '}',
  '{}',
  '{a,b}',
  '{{',
  '(',
  ')',
  '[1:2]={a,b}',
  '\n',
  '\r',
  '\r\n',
  '\t',
  '\v',
  '\f',
  '\b',
  'a\nb',
  '\u0001',
  '\u001f',
  '\u007f',
  '\u0085',
  '\u00a0',
  '\ufeff',
  '\u200b',
  '\u2028',
  '\uffff',
  '\ufffe',
  '\ufffd',
  'é',
  'e\u0301',
  'ß',
  '漢字',
  '😀',
  '👩‍👩‍👧',
  '\u{10ffff}',
  '\\n',
  '\\x41',
  '\\u0041',
  "E'\\\\",
  '$1',
  '%s',
  ';',
  '--',
  '/*',
  "'); drop table things; --",
  '\\N',
  't',
  'true',
  '0',
  '-1',
  '1e3',
  'x'.repeat(100_000),
  '"\\'.repeat(10_000),
];

test('every text arrives unchanged, whatever it means in an array literal or in JSON', async () => {
  const found = await arrived(TEXTS, 'text');
  assert.deepEqual(found, TEXTS);
  assert.deepEqual(await arrivedInRows(TEXTS, 'text'), TEXTS);
  for (const [index, text] of TEXTS.entries())
    assert.equal(found[index], await alone(text, 'text'), JSON.stringify(text));
});

test('the empty text, the word NULL and null are distinct', async () => {
  for (const text of TEXTS) assert.deepEqual(await arrived([text], 'text'), [text]);
  assert.deepEqual(await arrived([], 'text'), []);
  assert.deepEqual(await arrived([null], 'text'), [null]);
  const mixed = ['NULL', null, '', null, 'null'];
  assert.deepEqual(await arrived(mixed, 'text'), mixed);
  assert.deepEqual(await arrivedInRows(mixed, 'text'), mixed);
});

test('half of a surrogate pair becomes U+FFFD', async () => {
  const halves = ['\ud800', '\udfff', 'a\ud83db', '\ude00\ud83d', '\ud83d"', '\ud83d\\'];
  const found = await arrived(halves, 'text');
  assert.deepEqual(await arrivedInRows(halves, 'text'), found);
  for (const [index, half] of halves.entries())
    assert.equal(found[index], await alone(half, 'text'));
  assert.deepEqual(found, ['\ufffd', '\ufffd', 'a\ufffdb', '\ufffd\ufffd', '\ufffd"', '\ufffd\\']);
});

test('a text that PostgreSQL cannot store is rejected, not truncated', async () => {
  const refused = { code: '22021' };
  await assert.rejects(alone('a\0b', 'text'), refused);
  await assert.rejects(arrived(['a', 'a\0b'], 'text'), refused);
  await assert.rejects(arrivedInRows(['a', 'a\0b'], 'text'), { code: '22P05' });
});

test('any text of special characters arrives unchanged', async () => {
  const letters = [
    '"',
    '\\',
    ',',
    '{',
    '}',
    ' ',
    '\n',
    'N',
    'U',
    'L',
    "'",
    'x',
    '\ud83d\ude00',
    '\uffff',
    '\t',
    '=',
  ];
  const texts = Array.from({ length: 3_000 }, () =>
    Array.from({ length: randomInt(0, 12) }, () => letters[randomInt(letters.length)]).join(''),
  );
  assert.deepEqual(await arrived(texts, 'text'), texts);
  assert.deepEqual(await arrivedInRows(texts, 'text'), texts);
});

test('every byte arrives, none, and many', async () => {
  const buffers = [
    Buffer.alloc(0),
    ...Array.from({ length: 256 }, (_, byte) => Buffer.of(byte)),
    Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)),
    Buffer.from('\\x41'),
    Buffer.from('"\\{},NULL'),
    Buffer.from('NULL'),
    randomBytes(300_000),
  ];
  const found = await arrived([...buffers, null], 'bytea');
  assert.equal(found.pop(), null);
  assert.deepEqual(found, buffers);
  assert.deepEqual(await arrivedInRows(buffers.map(hexBytes), 'bytea'), buffers);
  for (const index of [0, 1, 93, 256, 257])
    assert.deepEqual(found[index], await alone(buffers[index] ?? null, 'bytea'));
});

test('dates arrive to the millisecond, in any time zone of the session', async () => {
  const dates = [
    new Date(0),
    new Date(-1),
    new Date('2030-01-02T03:04:05.678Z'),
    new Date('1999-12-31T23:59:59.999Z'),
    new Date('0001-01-01T00:00:00.000Z'),
    new Date('9999-12-31T23:59:59.999Z'),
    new Date('2024-02-29T12:00:00+05:45'),
  ];
  for (const zone of ['UTC', 'Asia/Kathmandu', 'America/St_Johns']) {
    await sql`select set_config('TimeZone', ${zone}, false)`;
    const values = jsonRows([...dates, null].map((value) => ({ value })));
    // Read as numbers: the writing of a date of long ago is another matter.
    const rows = await sql<Array<{ time: number | null }>>`
      select (extract(epoch from value) * 1000)::float8 as time
      from json_to_recordset(${values}::text::json) as given (value timestamptz)`;
    assert.deepEqual(
      rows.map(({ time }) => time),
      [...dates.map((date) => date.getTime()), null],
      zone,
    );
  }
  await sql`reset timezone`;
});

test('numbers arrive unchanged, and those out of range are rejected', async () => {
  const whole = [0, 1, -1, 2_147_483_647, -2_147_483_648];
  assert.deepEqual(await arrivedInRows([...whole, null], 'integer'), [...whole, null]);
  const broken = [0.1, -1.5, 1e21, 5e-324, Number.MAX_SAFE_INTEGER, Number.EPSILON];
  assert.deepEqual(await arrivedInRows(broken, 'float8'), broken);
  await assert.rejects(arrivedInRows([1, 2_147_483_648], 'integer'), { code: '22003' });
  await assert.rejects(arrivedInRows([1, 1.5], 'integer'), { code: '22P02' });
});

test('ids and JSON arrive in their own types', async () => {
  const ids = ['123e4567-e89b-42d3-a456-426614174000', '00000000-0000-0000-0000-000000000000'];
  assert.deepEqual(await arrived([...ids, null], 'uuid'), [...ids, null]);
  const objects = [
    {},
    { a: '"\\{},' },
    { 'user-agent': 'x "y" \\ {z}', nothing: null, 'é😀': ['NULL'] },
  ];
  assert.deepEqual(
    await arrived(
      objects.map((object) => JSON.stringify(object)),
      'jsonb',
    ),
    objects,
  );
});

test('each key gets its row, or null, also several times; the rows are emptied', () => {
  const row = (key: string) => ({ key, of: `that of ${key}` });
  const ordered = (keys: readonly string[], rows: ReadonlyArray<{ key: string }>) =>
    alignToKeys(keys, [...rows], ({ key }) => key);
  assert.deepEqual(ordered(['a', 'b', 'c', 'd'], [row('c'), row('a')]), [
    row('a'),
    null,
    row('c'),
    null,
  ]);
  assert.deepEqual(ordered(['a', 'b', 'a'], [row('b'), row('a')]), [row('a'), row('b'), row('a')]);
  assert.deepEqual(ordered(['a', '__proto__'], []), [null, null]);
  assert.deepEqual(ordered([], [row('a')]), []);
  const rows = [row('a'), row('b')];
  alignToKeys(['a'], rows, ({ key }) => key);
  assert.deepEqual(rows, []);
});

test('bytes in hexadecimal become the same array as the bytes', async () => {
  const bytes = ['', '00', 'ff00', '5c227d2c'].map((digits) => Buffer.from(digits, 'hex'));
  assert.equal(arrayLiteral(bytes.map(hexBytes)), arrayLiteral(bytes));
  assert.deepEqual(await arrived(bytes, 'bytea'), bytes);
});
