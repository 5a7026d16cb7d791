/**
 * The part of CBOR (RFC 8949) that authenticators use: definite lengths, numbers of up to 32 bits,
 * no tags and no floating point.
 */

export type Cbor = number | string | boolean | null | Buffer | readonly Cbor[] | CborMap;
export type CborMap = ReadonlyMap<Cbor, Cbor>;

const MAX_DEPTH = 4;

/** Where a value is, and how many values contain it. */
type At = Readonly<{ bytes: Buffer; start: number; depth: number }>;
type Read<T = Cbor> = Readonly<{ value: T; end: number }>;

/** The value at the beginning; others may follow it. @throws RangeError */
export const decodeCbor = (bytes: Buffer) => read({ bytes, start: 0, depth: 0 }).value;

function read({ bytes, start, depth }: At): Read {
  const head = bytes.readUInt8(start);
  const short = head & 31;
  const size = short < 24 ? 0 : 2 ** (short - 24);
  if (size > 4 || depth > MAX_DEPTH) throw new RangeError('unsupported CBOR');
  const number = size === 0 ? short : bytes.readUIntBE(start + 1, size);
  const next = { bytes, start: start + 1 + size, depth: depth + 1 };
  switch (head >> 5) {
    case 0:
      return { value: number, end: next.start };
    case 1:
      return { value: -1 - number, end: next.start };
    case 2:
      return readBytes(next, number);
    case 3: {
      const { value, end } = readBytes(next, number);
      return { value: value.toString('utf8'), end };
    }
    case 4:
      return readItems(next, number);
    case 5:
      return readMap(next, number);
    default:
      return { value: simpleValue(head), end: next.start };
  }
}

function readBytes({ bytes, start }: At, length: number): Read<Buffer> {
  const end = start + length;
  if (end > bytes.length) throw new RangeError('incomplete CBOR');
  return { value: bytes.subarray(start, end), end };
}

/** Each takes a byte at least, so that a wrong number ends with the input. */
function readItems({ bytes, start, depth }: At, count: number): Read<Cbor[]> {
  const items: Cbor[] = [];
  let end = start;
  for (let left = count; left > 0; left -= 1) {
    const item = read({ bytes, start: end, depth });
    items.push(item.value);
    end = item.end;
  }
  return { value: items, end };
}

function readMap(at: At, count: number): Read<CborMap> {
  const { value: items, end } = readItems(at, 2 * count);
  const value = new Map<Cbor, Cbor>();
  for (let at = 0; at < items.length; at += 2) value.set(items[at] ?? null, items[at + 1] ?? null);
  // Of two members of a name, readers might choose different ones.
  if (value.size < count) throw new RangeError('a member of CBOR twice');
  return { value, end };
}

function simpleValue(head: number) {
  if (head === 0xf4 || head === 0xf5) return head === 0xf5;
  if (head === 0xf6) return null;
  throw new RangeError('unsupported CBOR');
}
