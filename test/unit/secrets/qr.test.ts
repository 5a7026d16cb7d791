/**
 * The QR codes of the pages: published examples of the correction, and the codes of known texts,
 * which have been read by zbar and by a reader that was written from ISO/IEC 18004.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';

/** A browser script: `tsconfig.pages.json` checks its types. */
interface Qr {
  correctionOf(data: readonly number[], count: number): number[];
  qrCode(text: string): boolean[][] | null;
}
const { correctionOf, qrCode }: Qr = await import(
  new URL('../../../src/platform/http/site/pages/qr.js', import.meta.url).href
);

const drawn = (text: string): boolean[][] =>
  qrCode(text) ?? assert.fail(`no code for ${text.length} characters`);

/** Of the modules, a row a line. */
function digestOf(texts: readonly string[]): string {
  const hash = createHash('sha256');
  for (const text of texts)
    for (const row of drawn(text)) hash.update(`${row.map(Number).join('')}\n`);
  return hash.digest('hex').slice(0, 16);
}

/** Varied, and the same in every run. */
const letters = (length: number, seed = length): string =>
  Array.from({ length }, (_, i) =>
    String.fromCharCode(33 + ((i * 31 + seed * 17 + ((i * i) % 29)) % 94)),
  ).join('');

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

/** Table 7: bytes at level M, by version. */
const CAPACITIES = [14, 26, 42, 62, 84, 106, 122, 152, 180, 213, 251, 287, 331, 362, 412];

test('each version has the capacity of the standard, and the smallest sufficient one is used', () => {
  for (const [index, capacity] of CAPACITIES.entries()) {
    for (const length of [(CAPACITIES[index - 1] ?? 0) + 1, capacity])
      assert.equal(drawn(letters(length)).length, 21 + 4 * index, `${length} characters`);
  }
  for (const text of ['x'.repeat(413), 'é'.repeat(207), 'x'.repeat(70_000)])
    assert.equal(qrCode(text), null, 'a text that is too long has no code');
});

const CODES: Readonly<Record<string, readonly [digest: string, texts: readonly string[]]>> = {
  'that fill a version': ['f5d95444d51c6b80', CAPACITIES.map((length) => letters(length))],
  'of every sixth length': [
    '2a66d47d3ae6a93d',
    Array.from({ length: 69 }, (_, i) => letters(6 * i + 1)),
  ],
  'for which each mask in turn is the best': [
    '7bf79b6b08cd6926',
    [4, 2, 0, 6, 5, 40, 7, 58].map((seed) => letters(20, seed)),
  ],
  'for which each rule of 7.8.3 chose the mask at least once': [
    '56753746049f0a3f',
    Array.from({ length: 120 }, (_, turn) => letters(turn % 2 === 0 ? 12 : 14, 10 + (turn >> 1))),
  ],
  'outside ASCII': ['b6326c4268181235', ['ß', '秘密🔑'.repeat(30), '🔑'.repeat(103)]],
};

for (const [what, [digest, texts]] of Object.entries(CODES)) {
  test(`texts ${what} have their codes`, () => assert.equal(digestOf(texts), digest));
}
