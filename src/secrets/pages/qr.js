/**
 * QR codes (ISO/IEC 18004): a text as bytes, at level M, in versions 1 to 15, which hold up to 412 bytes. Every link with
 * a valid host name fits.
 */

/** For versions 1 to 15 at level M (ISO/IEC 18004, table 9): error correction codewords of a block, and blocks. */
const CORRECTION = [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24];
const BLOCKS = [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10];

/** Arithmetic in GF(256) over x^8 + x^4 + x^3 + x^2 + 1. */
const POWERS = new Uint8Array(512);
const LOGARITHMS = new Uint8Array(256);
for (let exponent = 0, value = 1; exponent < 255; exponent += 1) {
  POWERS[exponent] = POWERS[exponent + 255] = value;
  LOGARITHMS[value] = exponent;
  value = value < 128 ? value << 1 : (value << 1) ^ 0x11d;
}
/** @type {(one: number, other: number) => number} */
const times = (one, other) => (one === 0 || other === 0 ? 0 : (POWERS[(LOGARITHMS[one] ?? 0) + (LOGARITHMS[other] ?? 0)] ?? 0));

/**
 * Reed-Solomon: the remainder of the data, times x^count, by the product of (x - 2^i).
 * @param {readonly number[]} data
 * @param {number} count
 * @returns {number[]}
 */
export function correctionOf(data, count) {
  let generator = [1];
  for (let i = 0; i < count; i += 1) {
    generator = [...generator, 0].map((coefficient, at) => coefficient ^ times(generator[at - 1] ?? 0, POWERS[i] ?? 0));
  }
  const rest = [...data, ...Array(count).fill(0)];
  data.forEach((_, at) => {
    const factor = rest[at] ?? 0;
    generator.forEach((coefficient, offset) => (rest[at + offset] = (rest[at + offset] ?? 0) ^ times(coefficient, factor)));
  });
  return rest.slice(data.length);
}

/** A square that is drawn row by row; `fixed` are the modules that carry no data. */
class Square {
  /** @param {number} size */
  constructor(size) {
    this.size = size;
    /** @type {boolean[][]} */
    this.dark = Array.from({ length: size }, () => Array(size).fill(false));
    /** @type {boolean[][]} */
    this.fixed = Array.from({ length: size }, () => Array(size).fill(false));
  }
  /** @param {number} row @param {number} column @param {boolean} dark */
  set(row, column, dark, fixed = true) {
    const [colours, marks] = [this.dark[row], this.fixed[row]];
    if (!colours || !marks || column < 0 || column >= this.size) return;
    colours[column] = dark;
    if (fixed) marks[column] = true;
  }
  /** Concentric squares around a middle. @param {number} row @param {number} column @param {number} radius */
  rings(row, column, radius) {
    for (let y = -radius; y <= radius; y += 1) {
      for (let x = -radius; x <= radius; x += 1) {
        const distance = Math.max(Math.abs(x), Math.abs(y));
        this.set(row + y, column + x, radius === 4 ? distance !== 2 && distance !== 4 : distance !== 1);
      }
    }
  }
}

/** The row and column numbers of alignment patterns. @param {number} version @returns {number[]} */
export function alignment(version) {
  if (version === 1) return [];
  const size = version * 4 + 17;
  const gaps = Math.floor(version / 7) + 1;
  const step = Math.ceil((size - 13) / gaps / 2) * 2;
  return [6, ...Array.from({ length: gaps }, (_, index) => size - 7 - step * (gaps - 1 - index))];
}

/** A number, and behind it its remainder in a binary code. @param {number} value @param {number} generator @param {number} bits */
export function withCheck(value, generator, bits) {
  let rest = value << bits;
  for (let bit = 31 - Math.clz32(rest); rest >> bits > 0; bit = 31 - Math.clz32(rest)) rest ^= generator << (bit - bits);
  return (value << bits) | rest;
}

/** All that is the same whatever the text is. @param {number} version */
function frame(version) {
  const square = new Square(version * 4 + 17);
  const { size } = square;
  for (let i = 0; i < size; i += 1) {
    square.set(6, i, i % 2 === 0);
    square.set(i, 6, i % 2 === 0);
  }
  const places = alignment(version);
  const last = size - 7;
  for (const row of places) {
    for (const column of places) {
      const onFinder = (row === 6 && (column === 6 || column === last)) || (row === last && column === 6);
      if (!onFinder) square.rings(row, column, 2);
    }
  }
  for (const [row, column] of [[3, 3], [3, size - 4], [size - 4, 3]]) square.rings(row ?? 0, column ?? 0, 4);
  drawFormat(square, 0);
  if (version >= 7) {
    const bits = withCheck(version, 0x1f25, 12);
    for (let i = 0; i < 18; i += 1) {
      const [near, far] = [Math.floor(i / 3), size - 11 + (i % 3)];
      square.set(near, far, ((bits >> i) & 1) === 1);
      square.set(far, near, ((bits >> i) & 1) === 1);
    }
  }
  return square;
}

/** The bits that tell level M and the mask, twice. @param {Square} square @param {number} mask */
function drawFormat(square, mask) {
  const bits = withCheck(mask, 0x537, 10) ^ 0x5412;
  const { size } = square;
  for (let i = 0; i < 15; i += 1) {
    const dark = ((bits >> i) & 1) === 1;
    const skipped = i < 6 ? i : i < 8 ? i + 1 : 14 - i;
    if (i < 8) square.set(skipped, 8, dark);
    else square.set(8, i === 8 ? 7 : skipped, dark);
    if (i < 8) square.set(8, size - 1 - i, dark);
    else square.set(size - 15 + i, 8, dark);
  }
  square.set(size - 8, 8, true);
}

/** Places for data, in pairs of columns from the right, up and down in turn. @param {Square} square */
function* freeModules({ size, fixed }) {
  for (let right = size - 1, up = true; right > 0; right -= right === 8 ? 3 : 2, up = !up) {
    for (let i = 0; i < size; i += 1) {
      const row = up ? size - 1 - i : i;
      for (const column of [right, right - 1]) if (!fixed[row]?.[column]) yield /** @type {const} */ ([row, column]);
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

/** How hard a square is to read: the four features of ISO/IEC 18004. @param {readonly boolean[][]} dark */
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
      if (new Set([dark[r]?.[c], dark[r - 1]?.[c], dark[r]?.[c - 1], dark[r - 1]?.[c - 1]]).size === 1) points += 3;
    }
  }
  const share = dark.flat().filter(Boolean).length / rows.length ** 2;
  return points + 10 * Math.floor(Math.abs(share - 0.5) * 20);
}

/** Data and correction, block by block, interleaved. @param {readonly number[]} data @param {number} version */
export function codewords(data, version) {
  const [count, correction] = [BLOCKS[version - 1] ?? 0, CORRECTION[version - 1] ?? 0];
  const short = Math.floor(data.length / count);
  const longFrom = count - (data.length % count);
  const blocks = Array.from({ length: count }, (_, i) => data.slice(i * short + Math.max(0, i - longFrom), (i + 1) * short + Math.max(0, i + 1 - longFrom)));
  const checks = blocks.map((block) => correctionOf(block, correction));
  /** @type {(lists: number[][]) => number[]} */
  const interleaved = (lists) => Array.from({ length: short + 1 + correction }, (_, i) => lists.flatMap((list) => list[i] ?? [])).flat();
  return [...interleaved(blocks), ...interleaved(checks)];
}

/**
 * @param {string} text
 * @returns {boolean[][] | null} rows of modules, true for dark, without the quiet zone; null if the text is too long
 */
export function qrCode(text) {
  const bytes = [...new TextEncoder().encode(text)];
  for (let version = 1; version <= BLOCKS.length; version += 1) {
    const square = frame(version);
    const places = [...freeModules(square)];
    const capacity = Math.floor(places.length / 8) - (BLOCKS[version - 1] ?? 0) * (CORRECTION[version - 1] ?? 0);
    const lengthBits = version < 10 ? 8 : 16;
    if (4 + lengthBits + bytes.length * 8 > capacity * 8) continue;
    // Mode "bytes", length, text, end; then two bytes in turn.
    const head = `0100${bytes.length.toString(2).padStart(lengthBits, '0')}${bytes.map((byte) => byte.toString(2).padStart(8, '0')).join('')}0000`;
    const data = (head.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2));
    for (let i = 0; data.length < capacity; i += 1) data.push(i % 2 === 0 ? 0xec : 0x11);
    const words = codewords(data, version);
    const candidates = MASKS.map((isFlipped, mask) => {
      const drawn = frame(version);
      places.forEach(([row, column], at) => {
        const bit = ((words[at >> 3] ?? 0) >> (7 - (at & 7))) & 1;
        drawn.set(row, column, (bit === 1) !== isFlipped(row, column), false);
      });
      drawFormat(drawn, mask);
      return { dark: drawn.dark, points: penalty(drawn.dark) };
    });
    return candidates.reduce((best, one) => (one.points < best.points ? one : best)).dark;
  }
  return null;
}
