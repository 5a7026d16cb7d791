/**
 * Reads a QR code of level M, versions 1 to 15, back from its modules. Written from the tables of
 * ISO/IEC 18004 and nothing of `src/`, so that the two cannot be wrong in the same way; what has no
 * place in a correct code throws.
 */
import assert from 'node:assert/strict';
import { wordsOf } from './words.ts';

type Modules = ReadonlyArray<readonly boolean[]>;

/** Table C.1, at level M: by mask. */
export const FORMATS = wordsOf(`
  101010000010010 101000100100101 101111001111100 101101101001011 100010111111001 100000011001110
  100111110010111 100101010100000
`);

/** Table D.1: versions 7 to 15. */
export const VERSIONS = wordsOf(`
  000111110010010100 001000010110111100 001001101010011001 001010010011010011 001011101111110110
  001100011101100010 001101100001000111 001110011000001101 001111100100101000
`);

/** Table E.1: versions 1 to 15. */
export const ALIGNMENT = [
  [],
  [6, 18],
  [6, 22],
  [6, 26],
  [6, 30],
  [6, 34],
  [6, 22, 38],
  [6, 24, 42],
  [6, 26, 46],
  [6, 28, 50],
  [6, 30, 54],
  [6, 32, 58],
  [6, 34, 62],
  [6, 26, 46, 66],
  [6, 26, 48, 70],
];

/**
 * Table 9, at level M: the data codewords of each block, and the correction codewords that each
 * has.
 */
export const BLOCKS: ReadonlyArray<readonly [data: readonly number[], correction: number]> = [
  [[16], 10],
  [[28], 16],
  [[44], 26],
  [[32, 32], 18],
  [[43, 43], 24],
  [[27, 27, 27, 27], 16],
  [[31, 31, 31, 31], 18],
  [[38, 38, 39, 39], 22],
  [[36, 36, 36, 37, 37], 22],
  [[43, 43, 43, 43, 44], 26],
  [[50, 51, 51, 51, 51], 30],
  [[36, 36, 36, 36, 36, 36, 37, 37], 22],
  [[37, 37, 37, 37, 37, 37, 37, 37, 38], 22],
  [[40, 40, 40, 40, 41, 41, 41, 41, 41], 24],
  [[41, 41, 41, 41, 41, 42, 42, 42, 42, 42], 24],
];

const FINDER = ['#######', '#.....#', '#.###.#', '#.###.#', '#.###.#', '#.....#', '#######'];
const ALIGNMENT_PATTERN = ['#####', '#...#', '#.#.#', '#...#', '#####'];

export interface Read {
  readonly version: number;
  readonly mask: number;
  readonly bytes: Buffer;
}

export function readQr(modules: Modules): Read {
  const size = modules.length;
  const version = (size - 17) / 4;
  assert.ok(Number.isInteger(version) && version >= 1 && version <= 15, `a square of ${size}`);
  for (const row of modules) assert.equal(row.length, size);
  const reserved = readFixed(modules, version);
  const mask = readFormat(modules);
  const data = corrected(bytesOf(modules, reserved, mask), version);
  return { version, mask, bytes: textOf(data, version) };
}

/** A code of which each module is noted as read. */
interface Grid {
  readonly modules: Modules;
  readonly size: number;
  readonly reserved: boolean[][];
}

/** Checks all that is the same in every code of a version. @returns which modules carry no data */
function readFixed(modules: Modules, version: number): boolean[][] {
  const size = modules.length;
  const grid: Grid = { modules, size, reserved: modules.map((row) => row.map(() => false)) };
  for (let i = 8; i < size - 8; i += 1) {
    assert.equal(moduleAt(grid, 6, i), i % 2 === 0, 'timing pattern');
    assert.equal(moduleAt(grid, i, 6), i % 2 === 0, 'timing pattern');
  }
  checkFinders(grid);
  checkAlignment(grid, version);
  // The format, which is read elsewhere.
  const far = size - 8;
  for (let i = 0; i < size; i = i === 8 ? far : i + 1) {
    moduleAt(grid, 8, i);
    moduleAt(grid, i, 8);
  }
  assert.ok(modules[far]?.[8], 'the module that is always dark');
  if (version >= 7) checkVersion(grid, version);
  return grid.reserved;
}

/** @returns a module, and notes it as reserved */
function moduleAt({ modules, reserved }: Grid, row: number, column: number): boolean {
  const found = modules[row]?.[column];
  const mark = reserved[row];
  assert.ok(found !== undefined && mark);
  mark[column] = true;
  return found;
}

function checkPattern(grid: Grid, top: number, left: number, rows: readonly string[]): void {
  rows.forEach((row, y) =>
    [...row].forEach((sign, x) => {
      const module = moduleAt(grid, top + y, left + x);
      assert.equal(module, sign === '#', `module ${top + y}, ${left + x}`);
    }),
  );
}

/** The patterns in three corners, with the light modules around them. */
function checkFinders(grid: Grid): void {
  const far = grid.size - 8;
  const separator = '........';
  for (const [top, left, side] of [
    [0, 0, 7],
    [0, far, far],
    [far, 0, 7],
  ] as const) {
    checkPattern(grid, top === 0 ? 0 : far + 1, left === 0 ? 0 : far + 1, FINDER);
    checkPattern(grid, top === 0 ? 7 : far, left, [separator]);
    for (let i = 0; i < 8; i += 1) checkPattern(grid, top + i, side, ['.']);
  }
}

function checkAlignment(grid: Grid, version: number): void {
  const places = ALIGNMENT[version - 1] ?? [];
  const first = places[0];
  const last = places.at(-1);
  for (const row of places) {
    for (const column of places) {
      const isUpperCorner = row === first && (column === first || column === last);
      const isLowerCorner = row === last && column === first;
      // A finder pattern is there.
      if (isUpperCorner || isLowerCorner) continue;
      checkPattern(grid, row - 2, column - 2, ALIGNMENT_PATTERN);
    }
  }
}

/**
 * The version information: least significant first, in columns of three above the lower left
 * pattern, and turned beside the upper right one.
 */
function checkVersion(grid: Grid, version: number): void {
  const far = grid.size - 8;
  const bits = [...(VERSIONS[version - 7] ?? '')].reverse().join('');
  const read = (isTurned: boolean) =>
    Array.from({ length: 18 }, (_, i) => [far - 3 + (i % 3), Math.floor(i / 3)] as const)
      .map(([a, b]) => Number(isTurned ? moduleAt(grid, b, a) : moduleAt(grid, a, b)))
      .join('');
  assert.deepEqual([read(false), read(true)], [bits, bits], 'version information');
}

/** The two copies of the format, most significant bit first (figure 25). @returns the mask */
function readFormat(modules: Modules): number {
  const size = modules.length;
  const around = [0, 1, 2, 3, 4, 5, 7, 8];
  const upperLeft = [
    ...around.map((column) => [8, column] as const),
    ...around
      .slice(0, -1)
      .reverse()
      .map((row) => [row, 8] as const),
  ];
  const split = [
    ...Array.from({ length: 7 }, (_, i) => [size - 1 - i, 8] as const),
    ...Array.from({ length: 8 }, (_, i) => [8, size - 8 + i] as const),
  ];
  const read = (places: ReadonlyArray<readonly [row: number, column: number]>) =>
    places.map(([row, column]) => Number(modules[row]?.[column])).join('');
  const one = read(upperLeft);
  assert.equal(read(split), one, 'both copies of the format');
  const mask = FORMATS.indexOf(one);
  assert.notEqual(mask, -1, `a format of level M: ${one}`);
  return mask;
}

/** Table 10, with i for the row and j for the column. */
export function isMasked(mask: number, i: number, j: number): boolean {
  const both = i * j;
  const sum = i + j;
  return (
    [
      sum % 2,
      i % 2,
      j % 3,
      sum % 3,
      ((i >> 1) + Math.floor(j / 3)) % 2,
      (both % 2) + (both % 3),
      ((both % 2) + (both % 3)) % 2,
      ((sum % 2) + (both % 3)) % 2,
    ][mask] === 0
  );
}

function bytesOf(
  modules: Modules,
  reserved: ReadonlyArray<readonly boolean[]>,
  mask: number,
): number[] {
  const size = modules.length;
  let bits = '';
  let upwards = true;
  for (let column = size - 1; column > 0; column -= 2) {
    // The vertical timing pattern takes a column for itself.
    if (column === 6) column = 5;
    for (let step = 0; step < size; step += 1) {
      const row = upwards ? size - 1 - step : step;
      for (const c of [column, column - 1])
        if (!reserved[row]?.[c]) bits += Number(modules[row]?.[c] !== isMasked(mask, row, c));
    }
    upwards = !upwards;
  }
  return Array.from({ length: Math.floor(bits.length / 8) }, (_, i) =>
    Number.parseInt(bits.slice(i * 8, i * 8 + 8), 2),
  );
}

/** Takes the blocks apart and checks each. @returns the data in order */
function corrected(words: readonly number[], version: number): number[] {
  const [lengths, correction] = BLOCKS[version - 1] ?? [[], 0];
  const blocks: number[][] = lengths.map(() => []);
  const checks: number[][] = lengths.map(() => []);
  let next = 0;
  for (let i = 0; i < Math.max(...lengths); i += 1)
    blocks.forEach((block, b) =>
      i < (lengths[b] ?? 0) ? block.push(words[next++] ?? 0) : undefined,
    );
  for (let i = 0; i < correction; i += 1)
    for (const check of checks) check.push(words[next++] ?? 0);
  assert.equal(next, words.length, 'as many codewords as the version has');
  blocks.forEach((block, b) =>
    assert.ok(
      isCodeword([...block, ...(checks[b] ?? [])], correction),
      `block ${b} of version ${version}`,
    ),
  );
  return blocks.flat();
}

/**
 * Whether every power of two up to the number of correction codewords is a root: all syndromes are
 * zero.
 */
export function isCodeword(block: readonly number[], correction: number): boolean {
  let root = 1;
  for (let i = 0; i < correction; i += 1) {
    if (block.reduce((sum, word) => product(sum, root) ^ word, 0) !== 0) return false;
    root = product(root, 2);
  }
  return true;
}

/** In GF(256), bit by bit. */
function product(one: number, other: number): number {
  let result = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    result = (result << 1) ^ (result & 0x80 ? 0x11d : 0);
    if ((other >> bit) & 1) result ^= one;
  }
  return result;
}

/** One segment of bytes, its end, and the padding of 7.4.10. */
function textOf(data: readonly number[], version: number): Buffer {
  const bits = data.map((byte) => byte.toString(2).padStart(8, '0')).join('');
  assert.equal(bits.slice(0, 4), '0100', 'mode "bytes"');
  const start = 4 + (version < 10 ? 8 : 16);
  const length = Number.parseInt(bits.slice(4, start), 2);
  const end = start + length * 8;
  assert.ok(end <= bits.length, 'the text ends within the code');
  assert.match(bits.slice(end), /^0{4}(1110110000010001)*(11101100)?$/, 'the end, and the padding');
  return Buffer.from(
    Array.from({ length }, (_, i) =>
      Number.parseInt(bits.slice(start + i * 8, start + i * 8 + 8), 2),
    ),
  );
}
