/**
 * Values that go to the database as one text for a whole column: each arrives as it would have
 * alone.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { alignToKeys, arrayLiteral, hexBytes, jsonRows } from '../../../src/platform/db/sql.ts';
import { createDatabase } from '../../support/database.ts';

const { sql } = await createDatabase({ after });

type Value = string | Buffer | null;

async function valuesOf(statement: string, parameter: Value) {
  const rows = await sql.unsafe(statement, [parameter]);
  return rows.map(({ value }) => value);
}
/** As the statements of the services take a column apart. */
const arrived = (values: readonly Value[], type: string) =>
  valuesOf(
    `select value from unnest($1::text::${type}[]) with ordinality as given (value, place)
      order by place`,
    arrayLiteral(values),
  );
/** As the statements of the services take rows apart. */
const arrivedInRows = (values: readonly unknown[], type: string) =>
  valuesOf(
    `select value from rows from (json_to_recordset($1::text::json) as (value ${type}))
      with ordinality as given (value, place) order by place`,
    jsonRows(values.map((value) => ({ value }))),
  );
/** As a parameter of its own. */
const alone = async (value: Value, type: string) =>
  (await valuesOf(`select $1::${type} as value`, value))[0];

/** What means something in an array literal, in JSON, in a string or to a line. */
const PIECES = [...'"\\,{}()[]\':;=$- \n\r\t\v\f\b\u0001\u007f\u0085\u00a0\u2028\ufeff\uffffn1'];
const WORDS = ['NULL', 'null', '\\x41', '\\u0041', '\\N', '--', '😀', 'e\u0301', '\u{10ffff}'];

test('every text arrives unchanged, whatever it means in an array literal or in JSON', async () => {
  const all = [...PIECES, ...WORDS];
  const texts = ['', ...all, ...all.flatMap((one) => all.map((other) => one + other))];
  texts.push(`a${texts.join('')}`, 'x'.repeat(100_000), '"\\'.repeat(10_000));
  assert.deepEqual(await arrived(texts, 'text'), texts);
  assert.deepEqual(await arrivedInRows(texts, 'text'), texts);
});

test('the empty text, the word NULL, null and an empty array are distinct', async () => {
  for (const values of [[], [null], [''], ['NULL', null, '', null, 'null']]) {
    assert.deepEqual(await arrived(values, 'text'), values);
    assert.deepEqual(await arrivedInRows(values, 'text'), values);
  }
});

test('half of a surrogate pair becomes U+FFFD', async () => {
  const halves = ['\ud800', 'a\ud83db', '\ude00\ud83d', '\ud83d"', '\ud83d\\'];
  const expected = ['\ufffd', 'a\ufffdb', '\ufffd\ufffd', '\ufffd"', '\ufffd\\'];
  assert.deepEqual(await arrived(halves, 'text'), expected);
  assert.deepEqual(await arrivedInRows(halves, 'text'), expected);
  for (const [index, half] of halves.entries())
    assert.equal(await alone(half, 'text'), expected[index]);
});

test('a text that PostgreSQL cannot store is rejected, not truncated', async () => {
  await assert.rejects(alone('a\0b', 'text'), { code: '22021' });
  await assert.rejects(arrived(['a', 'a\0b'], 'text'), { code: '22021' });
  await assert.rejects(arrivedInRows(['a', 'a\0b'], 'text'), { code: '22P05' });
});

test('every byte arrives, none, and many', async () => {
  const bytes = Array.from({ length: 256 }, (_, byte) => byte);
  const buffers = [
    Buffer.alloc(0),
    ...bytes.map((byte) => Buffer.of(byte)),
    Buffer.from(bytes),
    Buffer.from('\\x41"\\{},NULL'),
    randomBytes(300_000),
  ];
  assert.deepEqual(await arrived([...buffers, null], 'bytea'), [...buffers, null]);
  assert.deepEqual(await arrived(buffers.map(hexBytes), 'bytea'), buffers);
  assert.deepEqual(await arrivedInRows(buffers.map(hexBytes), 'bytea'), buffers);
});

test('dates arrive to the millisecond, in any time zone of the session', async () => {
  const dates = [0, -1, Date.parse('2030-01-02T03:04:05.678Z'), Date.parse('0001-01-01')];
  for (const zone of ['UTC', 'Asia/Kathmandu', 'America/St_Johns']) {
    await sql`select set_config('TimeZone', ${zone}, false)`;
    const values = jsonRows([...dates.map((time) => ({ value: new Date(time) })), { value: null }]);
    // Read as numbers: the writing of a date of long ago is another matter.
    const rows = await sql<Array<{ time: number | null }>>`
      select (extract(epoch from value) * 1000)::float8 as time
      from json_to_recordset(${values}::text::json) as given (value timestamptz)`;
    assert.deepEqual(
      rows.map(({ time }) => time),
      [...dates, null],
      zone,
    );
  }
});

test('numbers, ids and JSON arrive in their own types, and numbers out of range are rejected', async () => {
  for (const [type, values] of [
    ['integer', [0, 1, -1, 2_147_483_647, -2_147_483_648, null]],
    ['float8', [0.1, -1.5, 1e21, 5e-324, Number.MAX_SAFE_INTEGER]],
  ] as const)
    assert.deepEqual(await arrivedInRows(values, type), values);
  await assert.rejects(arrivedInRows([1, 2_147_483_648], 'integer'), { code: '22003' });
  await assert.rejects(arrivedInRows([1, 1.5], 'integer'), { code: '22P02' });
  const ids = ['123e4567-e89b-42d3-a456-426614174000', null];
  assert.deepEqual(await arrived(ids, 'uuid'), ids);
  const objects = [{}, { a: '"\\{},', nothing: null, 'é😀': ['NULL'] }];
  const written = objects.map((object) => JSON.stringify(object));
  assert.deepEqual(await arrived(written, 'jsonb'), objects);
});

test('each key gets its row, or null, also several times; the rows are emptied', () => {
  for (const [keys, found, expected] of [
    ['abcd', 'ca', ['a', null, 'c', null]],
    ['aba', 'ba', ['a', 'b', 'a']],
    ['', 'a', []],
  ] as const) {
    const rows = [...found];
    assert.deepEqual(
      alignToKeys([...keys], rows, (row) => row),
      expected,
    );
    assert.deepEqual(rows, []);
  }
  assert.deepEqual(
    alignToKeys(['__proto__'], [], (row) => row),
    [null],
  );
});
