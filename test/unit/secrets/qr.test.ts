/**
 * The QR codes of the pages: the codes of known texts, and published examples of the correction.
 */
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

test('error correction equals that of published examples', () => {
  for (const [data, correction] of [
    // 01234567 as 1-M (ISO/IEC 18004, Annex I).
    ['10200c566180ec11ec11ec11ec11ec11', 'a524d4c1ed36c7872c55'],
    // HELLO WORLD as 1-M (the example of the usual tutorials).
    ['205b0b78d172dc4d4340ec11ec11ec11', 'c4232777ebd7e7e25d17'],
    // The first block of the tutorials' example of 5-Q. Each of its blocks is like any other.
    ['43554686572655c277320612066726', 'd5c70b2d73f7f1dfe5f89a759a6f56a16f27'],
  ].map((texts) => texts.map((text) => [...Buffer.from(text, 'hex')])))
    assert.deepEqual(correctionOf(data ?? [], correction?.length ?? 0), correction);
});

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
