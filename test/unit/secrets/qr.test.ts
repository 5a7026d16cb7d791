/** The QR codes of the pages: the codes of known texts, and published examples of the correction. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  correctionOf,
  digestOf,
  drawn,
  LENGTHS,
  LENGTHS_DIGEST,
  letters,
  MASKS,
  OTHERS,
  qrCode,
  SHORT,
  SHORT_DIGEST,
  VERSIONS,
} from '../vectors/qr-codes.ts';

const EXAMPLES: ReadonlyArray<
  readonly [what: string, data: readonly number[], correction: readonly number[]]
> = [
  [
    '01234567 as 1-M (ISO/IEC 18004, Annex I)',
    [16, 32, 12, 86, 97, 128, 236, 17, 236, 17, 236, 17, 236, 17, 236, 17],
    [165, 36, 212, 193, 237, 54, 199, 135, 44, 85],
  ],
  [
    'HELLO WORLD as 1-M (the example of the usual tutorials)',
    [32, 91, 11, 120, 209, 114, 220, 77, 67, 64, 236, 17, 236, 17, 236, 17],
    [196, 35, 39, 119, 235, 215, 231, 226, 93, 23],
  ],
  [
    // Level Q, but each of its blocks is like any other.
    "the first block of the tutorials' example of 5-Q",
    [67, 85, 70, 134, 87, 38, 85, 194, 119, 50, 6, 18, 6, 103, 38],
    [213, 199, 11, 45, 115, 247, 241, 223, 229, 248, 154, 117, 154, 111, 86, 161, 111, 39],
  ],
];
for (const [what, data, correction] of EXAMPLES) {
  test(`error correction equals that of a published example: ${what}`, () => {
    assert.deepEqual(correctionOf(data, correction.length), correction);
  });
}

test('each version has the capacity of the standard, and the smallest sufficient one is used', () => {
  for (const [index, [capacity, digest]] of VERSIONS.entries()) {
    const [least = 0] = VERSIONS[index - 1] ?? [];
    for (const length of [least + 1, capacity])
      assert.equal(drawn(letters(length)).length, 21 + 4 * index, `${length} characters`);
    assert.equal(digestOf(letters(capacity)), digest, `version ${index + 1}`);
  }
});

test('a text that is too long has no code', () => {
  for (const text of ['x'.repeat(413), 'é'.repeat(207), 'x'.repeat(70_000)])
    assert.equal(qrCode(text), null);
});

test('each mask is used for the texts that it suits', () => {
  for (const [mask, [seed, digest]] of MASKS.entries())
    assert.equal(digestOf(letters(20, seed)), digest, `mask ${mask}`);
  assert.equal(digestOf(...SHORT), SHORT_DIGEST);
});

test('texts of many lengths, and outside ASCII, have their codes', () => {
  assert.equal(digestOf(...LENGTHS), LENGTHS_DIGEST);
  for (const [text, digest] of OTHERS) assert.equal(digestOf(text), digest, text);
});
