/**
 * QR codes (ISO/IEC 18004) in byte mode at error correction level M, versions 1 to 15. They hold up
 * to 412 bytes, enough for a link with any valid host name.
 */

/**
 * For versions 1 to 15 at level M (ISO/IEC 18004, table 9): error correction codewords per block,
 * and blocks.
 */
const CORRECTION = [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24];
const BLOCKS = [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10];

/** Arithmetic in GF(256) over x^8 + x^4 + x^3 + x^2 + 1. */
const POWERS = new Uint8Array(512);
const LOGARITHMS = new Uint8Array(256);
for (let exponent = 0, value = 1; exponent < 255; exponent += 1) {
  POWERS[exponent] = value;
  POWERS[exponent + 255] = value;
  LOGARITHMS[value] = exponent;
  value = value < 128 ? value << 1 : (value << 1) ^ 0x11d;
}
/** @type {(one: number, other: number) => number} */
const multiply = (a, b) => {
  if (a === 0 || b === 0) return 0;
  return POWERS[(LOGARITHMS[a] ?? 0) + (LOGARITHMS[b] ?? 0)] ?? 0;
};

/**
 * The Reed-Solomon error correction codewords: the remainder of data * x^count divided by the
 * product of (x - 2^i).
 * @param {readonly number[]} data
 * @param {number} count
 * @returns {number[]}
 */
export function correctionOf(data, count) {
  let generator = [1];
  for (let i = 0; i < count; i += 1) {
    const root = POWERS[i] ?? 0;
    generator = [...generator, 0].map(
      (coefficient, at) => coefficient ^ multiply(generator[at - 1] ?? 0, root),
    );
  }
  const remainder = [...data, ...Array(count).fill(0)];
  data.forEach((_, at) => {
    const factor = remainder[at] ?? 0;
    generator.forEach((coefficient, offset) => {
      remainder[at + offset] = (remainder[at + offset] ?? 0) ^ multiply(coefficient, factor);
    });
  });
  return remainder.slice(data.length);
}

/** The modules of a QR code. `reserved` marks those of function patterns, which carry no data. */
class Matrix {
  /** @param {number} size */
  constructor(size) {
    this.size = size;
    /** @type {boolean[][]} */
    this.dark = Array.from({ length: size }, () => Array(size).fill(false));
    /** @type {boolean[][]} */
    this.reserved = Array.from({ length: size }, () => Array(size).fill(false));
  }
  /** @param {number} row @param {number} column @param {boolean} dark */
  set(row, column, dark, reserve = true) {
    const darkRow = this.dark[row];
    const reservedRow = this.reserved[row];
    if (!darkRow || !reservedRow || column < 0 || column >= this.size) return;
    darkRow[column] = dark;
    if (reserve) reservedRow[column] = true;
  }
  /**
   * Draws concentric squares: radius 4 for a finder pattern with its separator, 2 for an alignment
   * pattern.
   * @param {number} row the center
   * @param {number} column
   * @param {number} radius
   */
  drawPattern(row, column, radius) {
    for (let y = -radius; y <= radius; y += 1) {
      for (let x = -radius; x <= radius; x += 1) {
        const distance = Math.max(Math.abs(x), Math.abs(y));
        this.set(
          row + y,
          column + x,
          radius === 4 ? distance !== 2 && distance !== 4 : distance !== 1,
        );
      }
    }
  }
}

/**
 * The rows and columns of the centers of alignment patterns.
 * @param {number} version
 * @returns {number[]}
 */
export function alignment(version) {
  if (version === 1) return [];
  const size = version * 4 + 17;
  const gaps = Math.floor(version / 7) + 1;
  const step = Math.ceil((size - 13) / gaps / 2) * 2;
  return [6, ...Array.from({ length: gaps }, (_, index) => size - 7 - step * (gaps - 1 - index))];
}

/**
 * A value followed by its BCH error correction bits.
 * @param {number} value
 * @param {number} generator
 * @param {number} bits the number of error correction bits
 */
export function withCheck(value, generator, bits) {
  let remainder = value << bits;
  while (remainder >> bits > 0) remainder ^= generator << (31 - Math.clz32(remainder) - bits);
  return (value << bits) | remainder;
}

/** A matrix with its function patterns, which do not depend on the text. @param {number} version */
function drawFunctionPatterns(version) {
  const matrix = new Matrix(version * 4 + 17);
  const { size } = matrix;
  for (let i = 0; i < size; i += 1) {
    matrix.set(6, i, i % 2 === 0);
    matrix.set(i, 6, i % 2 === 0);
  }
  const centers = alignment(version);
  const last = size - 7;
  for (const row of centers) {
    for (const column of centers) {
      const onFinder =
        (row === 6 && (column === 6 || column === last)) || (row === last && column === 6);
      if (!onFinder) matrix.drawPattern(row, column, 2);
    }
  }
  matrix.drawPattern(3, 3, 4);
  matrix.drawPattern(3, size - 4, 4);
  matrix.drawPattern(size - 4, 3, 4);
  drawFormat(matrix, 0);
  if (version >= 7) {
    const bits = withCheck(version, 0x1f25, 12);
    for (let i = 0; i < 18; i += 1) {
      const near = Math.floor(i / 3);
      const far = size - 11 + (i % 3);
      matrix.set(near, far, ((bits >> i) & 1) === 1);
      matrix.set(far, near, ((bits >> i) & 1) === 1);
    }
  }
  return matrix;
}

/**
 * Draws both copies of the format information: level M and the mask.
 * @param {Matrix} matrix
 * @param {number} mask
 */
function drawFormat(matrix, mask) {
  const bits = withCheck(mask, 0x537, 10) ^ 0x5412;
  const { size } = matrix;
  for (let i = 0; i < 15; i += 1) {
    const dark = ((bits >> i) & 1) === 1;
    // Skips the timing pattern in row and column 6.
    // Column and row 6 hold the timing pattern.
    if (i < 6) matrix.set(i, 8, dark);
    else if (i < 8) matrix.set(i + 1, 8, dark);
    else if (i === 8) matrix.set(8, 7, dark);
    else matrix.set(8, 14 - i, dark);
    if (i < 8) matrix.set(8, size - 1 - i, dark);
    else matrix.set(size - 15 + i, 8, dark);
  }
  matrix.set(size - 8, 8, true);
}

/**
 * Yields the data modules: pairs of columns from the right, alternating up and down.
 * @param {Matrix} matrix
 */
function* dataModules({ size, reserved }) {
  for (let right = size - 1, up = true; right > 0; right -= right === 8 ? 3 : 2, up = !up) {
    for (let i = 0; i < size; i += 1) {
      const row = up ? size - 1 - i : i;
      for (const column of [right, right - 1])
        if (!reserved[row]?.[column]) yield /** @type {const} */ ([row, column]);
    }
  }
}

/** @type {ReadonlyArray<(row: number, column: number) => boolean>} */
const MASKS = [
  (r, c) => (r + c) % 2 === 0,
  (r) => r % 2 === 0,
  (_, c) => c % 3 === 0,
  (r, c) => (r + c) % 3 === 0,
  (r, c) => (Math.floor(r / 2) + Math.floor(c / 3)) % 2 === 0,
  (r, c) => ((r * c) % 2) + ((r * c) % 3) === 0,
  (r, c) => (((r * c) % 2) + ((r * c) % 3)) % 2 === 0,
  (r, c) => (((r + c) % 2) + ((r * c) % 3)) % 2 === 0,
];

/**
 * The penalty by the four rules of ISO/IEC 18004; the lowest is easiest to scan.
 * @param {readonly boolean[][]} dark
 */
function penalty(dark) {
  const rows = dark.map((row) => row.map(Number).join(''));
  const columns = rows.map((_, at) => rows.map((row) => row[at]).join(''));
  let points = 0;
  for (const line of [...rows, ...columns]) {
    for (const [run] of line.matchAll(/0{5,}|1{5,}/g)) points += run.length - 2;
    points += 40 * [...line.matchAll(/(?=10111010000|00001011101)/g)].length;
  }
  for (let r = 1; r < rows.length; r += 1) {
    for (let c = 1; c < rows.length; c += 1) {
      const block = [dark[r]?.[c], dark[r - 1]?.[c], dark[r]?.[c - 1], dark[r - 1]?.[c - 1]];
      if (new Set(block).size === 1) points += 3;
    }
  }
  const darkRatio = dark.flat().filter(Boolean).length / rows.length ** 2;
  return points + 10 * Math.floor(Math.abs(darkRatio - 0.5) * 20);
}

/**
 * The interleaved data and error correction blocks.
 * @param {readonly number[]} data
 * @param {number} version
 */
export function codewords(data, version) {
  const count = BLOCKS[version - 1] ?? 0;
  const correction = CORRECTION[version - 1] ?? 0;
  const shortLength = Math.floor(data.length / count);
  // The last blocks are one codeword longer.
  const shortCount = count - (data.length % count);
  const start = (/** @type {number} */ block) =>
    block * shortLength + Math.max(0, block - shortCount);
  const blocks = Array.from({ length: count }, (_, i) => data.slice(start(i), start(i + 1)));
  const corrections = blocks.map((block) => correctionOf(block, correction));
  /** @type {(lists: number[][]) => number[]} */
  const interleave = (lists) => {
    const longest = Math.max(...lists.map((list) => list.length));
    return Array.from({ length: longest }, (_, i) => lists.flatMap((list) => list[i] ?? [])).flat();
  };
  return [...interleave(blocks), ...interleave(corrections)];
}

/**
 * @param {string} text
 * @returns {boolean[][] | null} rows of modules, true for dark, without the quiet zone; null if the
 * text is too long
 */
export function qrCode(text) {
  const bytes = [...new TextEncoder().encode(text)];
  for (let version = 1; version <= BLOCKS.length; version += 1) {
    const positions = [...dataModules(drawFunctionPatterns(version))];
    const capacity =
      Math.floor(positions.length / 8) -
      (BLOCKS[version - 1] ?? 0) * (CORRECTION[version - 1] ?? 0);
    const lengthBits = version < 10 ? 8 : 16;
    if (4 + lengthBits + bytes.length * 8 > capacity * 8) continue;
    const binary = (/** @type {number} */ value, /** @type {number} */ width) =>
      value.toString(2).padStart(width, '0');
    // Byte mode, length, text and terminator; then alternating pad codewords.
    const bits = `0100${binary(bytes.length, lengthBits)}${bytes.map((byte) => binary(byte, 8)).join('')}0000`;
    const data = (bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2));
    for (let i = 0; data.length < capacity; i += 1) data.push(i % 2 === 0 ? 0xec : 0x11);
    const words = codewords(data, version);
    const candidates = MASKS.map((isFlipped, mask) => {
      const matrix = drawFunctionPatterns(version);
      positions.forEach(([row, column], at) => {
        const bit = ((words[at >> 3] ?? 0) >> (7 - (at & 7))) & 1;
        matrix.set(row, column, (bit === 1) !== isFlipped(row, column), false);
      });
      drawFormat(matrix, mask);
      return { dark: matrix.dark, points: penalty(matrix.dark) };
    });
    return candidates.reduce((a, b) => (b.points < a.points ? b : a)).dark;
  }
  return null;
}

/**
 * The code as the path of an SVG, with the quiet zone of four modules that readers need on each
 * side.
 * @param {string} text
 * @returns {{ size: number, path: string } | null} null as for `qrCode`
 */
export function qrPicture(text) {
  const modules = qrCode(text);
  const squares = modules?.flatMap((row, y) =>
    row.flatMap((dark, x) => (dark ? `M${x + 4} ${y + 4}h1v1h-1z` : [])),
  );
  return modules && squares ? { size: modules.length + 8, path: squares.join('') } : null;
}
