/**
 * The QR codes of the pages, checked against ISO/IEC 18004 and published examples, and read by an
 * independent reader.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ALIGNMENT,
  BLOCKS,
  FORMATS,
  isCodeword,
  isMasked,
  readQr,
  VERSIONS,
} from '../../support/qr-reader.ts';

/** A browser script: `tsconfig.pages.json` checks its types. */
interface Qr {
  correctionOf(data: readonly number[], count: number): number[];
  alignment(version: number): number[];
  withCheck(value: number, generator: number, bits: number): number;
  codewords(data: readonly number[], version: number): number[];
  qrCode(text: string): boolean[][] | null;
}
const { correctionOf, alignment, withCheck, codewords, qrCode }: Qr = await import(
  new URL('../../../src/platform/http/site/pages/qr.js', import.meta.url).href
);

const drawn = (text: string): boolean[][] =>
  qrCode(text) ?? assert.fail(`no code for ${text.length} characters`);

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
    assert.ok(isCodeword([...data, ...correction], correction.length), 'our reader agrees');
  });
}

test('the format information of every mask at level M is that of the standard', () => {
  assert.deepEqual(
    FORMATS.map((_, mask) => (withCheck(mask, 0x537, 10) ^ 0x5412).toString(2)),
    FORMATS,
  );
});

test('the version information of versions 7 to 15 is that of the standard', () => {
  assert.deepEqual(
    VERSIONS.map((_, index) =>
      withCheck(index + 7, 0x1f25, 12)
        .toString(2)
        .padStart(18, '0'),
    ),
    VERSIONS,
  );
});

test('alignment patterns are where the standard has them', () => {
  assert.deepEqual(
    ALIGNMENT.map((_, index) => alignment(index + 1)),
    ALIGNMENT,
  );
});

test('blocks are divided and interleaved as in the standard', () => {
  BLOCKS.forEach(([lengths, correction], index) => {
    // Each codeword encodes its block and its position there.
    const blocks = lengths.map((length, block) =>
      Array.from({ length }, (_, at) => block * 16 + (at % 16)),
    );
    const words = codewords(blocks.flat(), index + 1);
    const longest = Math.max(...lengths);
    const expected = Array.from({ length: longest }, (_, at) =>
      blocks.flatMap((block) => block.slice(at, at + 1)),
    ).flat();
    assert.deepEqual(words.slice(0, expected.length), expected, `version ${index + 1}`);
    assert.equal(
      words.length,
      expected.length + correction * lengths.length,
      `version ${index + 1}`,
    );
  });
});

/** Table 7: bytes at level M. */
const CAPACITIES = [14, 26, 42, 62, 84, 106, 122, 152, 180, 213, 251, 287, 331, 362, 412];

test('each version has the capacity of the standard, and the smallest sufficient one is used', () => {
  CAPACITIES.forEach((capacity, index) => {
    assert.equal(readQr(drawn('x'.repeat(capacity))).version, index + 1);
    assert.equal(readQr(drawn('x'.repeat((CAPACITIES[index - 1] ?? 0) + 1))).version, index + 1);
  });
});

test('a text that is too long has no code', () => {
  for (const text of ['x'.repeat(413), 'é'.repeat(207), 'x'.repeat(70_000)])
    assert.equal(qrCode(text), null);
});

/** Varied, and the same in every run. */
const letters = (length: number, seed: number) =>
  Array.from({ length }, (_, i) =>
    String.fromCharCode(33 + ((i * 31 + seed * 17 + ((i * i) % 29)) % 94)),
  ).join('');

test('a text of any supported length is read back unchanged', () => {
  const lengths = [
    ...Array.from({ length: 412 }, (_, i) => i + 1).filter(
      (length) => length < 30 || length % 7 === 0,
    ),
    ...CAPACITIES,
  ];
  for (const length of lengths) {
    assert.equal(readQr(drawn(letters(length, length))).bytes.toString(), letters(length, length));
  }
});

test('text outside ASCII is read back as UTF-8', () => {
  for (const text of [
    'ß',
    'https://bücher.example/s/1#é',
    '秘密🔑'.repeat(30),
    '\u0000\u0001\u007f',
    '🔑'.repeat(103),
  ]) {
    assert.equal(readQr(drawn(text)).bytes.toString('utf8'), text);
  }
});

test('every mask occurs, and the format names it', () => {
  const masks = new Set(
    Array.from({ length: 60 }, (_, seed) => readQr(drawn(letters(20, seed))).mask),
  );
  assert.deepEqual([...masks].sort(), [0, 1, 2, 3, 4, 5, 6, 7]);
});

type Modules = ReadonlyArray<readonly boolean[]>;

/** 7.8.3.1, feature by feature. */
function difficulty(modules: Modules): number {
  const size = modules.length;
  const dark = (row: number, column: number) => modules[row]?.[column] === true;
  let points = 0;
  for (const at of [dark, (row: number, column: number) => dark(column, row)]) {
    for (let row = 0; row < size; row += 1) {
      for (let column = 0, run = 0; column < size; column += 1) {
        run = column > 0 && at(row, column) === at(row, column - 1) ? run + 1 : 1;
        if (run === 5) points += 3;
        if (run > 5) points += 1;
      }
      for (let column = 0; column + 11 <= size; column += 1) {
        const line = Array.from({ length: 11 }, (_, i) => Number(at(row, column + i))).join('');
        if (line === '10111010000' || line === '00001011101') points += 40;
      }
    }
  }
  for (let row = 1; row < size; row += 1) {
    for (let column = 1; column < size; column += 1) {
      const sum = [
        dark(row, column),
        dark(row - 1, column),
        dark(row, column - 1),
        dark(row - 1, column - 1),
      ].filter(Boolean).length;
      if (sum === 0 || sum === 4) points += 3;
    }
  }
  const percent = (modules.flat().filter(Boolean).length * 100) / size ** 2;
  return points + Math.floor(Math.abs(percent - 50) / 5) * 10;
}

/**
 * The same text under another mask, for a version without alignment patterns or version
 * information.
 */
function remasked(modules: Modules, from: number, to: number): boolean[][] {
  const size = modules.length;
  const bits = FORMATS[to] ?? '';
  const result = modules.map((line, row) =>
    line.map((dark, column) => {
      const isFixed =
        row === 6 ||
        column === 6 ||
        (row < 9 && (column < 9 || column >= size - 8)) ||
        (row >= size - 8 && column < 9);
      return isFixed ? dark : (dark !== isMasked(from, row, column)) !== isMasked(to, row, column);
    }),
  );
  const put = (row: number, column: number, bit: number) => {
    const modules = result[row] ?? [];
    modules[column] = bits[bit] === '1';
  };
  [0, 1, 2, 3, 4, 5, 7, 8].forEach((at, bit) => {
    put(8, at, bit);
    put(at, 8, 14 - bit);
    put(8, size - 8 + bit, 7 + bit);
    if (bit < 7) put(size - 1 - bit, 8, bit);
  });
  return result;
}

test('the mask with the lowest penalty of the standard is used', () => {
  // Enough texts that each penalty rule and its weight decided at least once.
  for (let turn = 0; turn < 120; turn += 1) {
    const text = letters(turn % 2 === 0 ? 12 : 14, 10 + (turn >> 1));
    const code = drawn(text);
    const { mask } = readQr(code);
    const all = FORMATS.map((_, to) => remasked(code, mask, to));
    for (const [to, one] of all.entries()) {
      assert.deepEqual({ ...readQr(one) }, { version: 1, mask: to, bytes: Buffer.from(text) });
    }
    const points = all.map(difficulty);
    assert.equal(points[mask], Math.min(...points), `${points.join(', ')} for ${text}`);
  }
});
