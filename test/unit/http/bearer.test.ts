import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bearerOf } from '../../../src/platform/http/credentials/guess-limit.ts';

/** RFC 6750, 2.1. Anything that two readers could read differently is no credential. */
const FORMS: ReadonlyArray<[header: string | undefined, credential: string | null]> = [
  ['Bearer abc', 'abc'],
  ['bearer abc', 'abc'],
  ['BEARER abc', 'abc'],
  ['Bearer    abc', 'abc'],
  ['Bearer abc  ', 'abc'],
  [
    'Bearer session:0190c0de-1234-4abc-8def-0123456789ab',
    'session:0190c0de-1234-4abc-8def-0123456789ab',
  ],
  ['Bearer a+b/c-d_e~f.g==', 'a+b/c-d_e~f.g=='],
  ['Bearer bearer', 'bearer'],
  [undefined, null],
  ['', null],
  ['Bearer', null],
  ['Bearer ', null],
  ['Bearer    ', null],
  ['Bearerabc', null],
  [' Bearer abc', null],
  ['abc', null],
  ['Bearer abc def', null],
  ['Bearer abc, Bearer def', null],
  ['Bearer\tabc', null],
  ['Bearer abc\t', null],
  ['Bearer abc\n', null],
  ['Bearer a\u00a0b', null],
  ['Basic YWJj', null],
  ['Token abc', null],
  ['Digest bearer abc', null],
  ['XBearer abc', null],
];

for (const [header, credential] of FORMS) {
  test(`bearer credential of ${JSON.stringify(header)}: ${JSON.stringify(credential)}`, () => {
    assert.equal(bearerOf(header), credential);
  });
}
