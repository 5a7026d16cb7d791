/**
 * The part of CBOR (RFC 8949) that authenticators use: definite lengths, numbers of up to 32 bits,
 * no tags and no floating point.
 */

export type Cbor = number | string | boolean | null | Buffer | readonly Cbor[] | CborMap;
type CborMap = ReadonlyMap<Cbor, Cbor>;

const MAX_DEPTH = 4;

/** The value at the beginning; others may follow it. @throws RangeError */
export function decodeCbor(bytes: Buffer): Cbor {
  let at = 0;

  function take(length: number) {
    at += length;
    if (at > bytes.length) throw new RangeError('incomplete CBOR');
    return bytes.subarray(at - length, at);
  }

  function readNumber(head: number) {
    const short = head & 31;
    if (short < 24) return short;
    const size = 2 ** (short - 24);
    if (size > 4) throw new RangeError('unsupported CBOR');
    return take(size).readUIntBE(0, size);
  }

  function readItems(count: number, depth: number) {
    // Each takes a byte at least.
    if (count > bytes.length || depth > MAX_DEPTH) throw new RangeError('too much CBOR');
    return Array.from({ length: count }, () => readValue(depth));
  }

  function readValue(depth: number): Cbor {
    const head = take(1).readUInt8();
    const number = readNumber(head);
    switch (head >> 5) {
      case 0:
        return number;
      case 1:
        return -1 - number;
      case 2:
        return take(number);
      case 3:
        return take(number).toString();
      case 4:
        return readItems(number, depth + 1);
      case 5:
        return mapOf(readItems(2 * number, depth + 1));
      default:
        return simpleValue(head);
    }
  }

  return readValue(0);
}

/** @param items names and values in turn */
function mapOf(items: readonly Cbor[]): CborMap {
  const map = new Map<Cbor, Cbor>();
  for (let at = 0; at < items.length; at += 2) map.set(items[at] ?? null, items[at + 1] ?? null);
  // Of two members of a name, readers might choose different ones.
  if (2 * map.size < items.length) throw new RangeError('a member of CBOR twice');
  return map;
}

function simpleValue(head: number) {
  if (head === 0xf4 || head === 0xf5) return head === 0xf5;
  if (head === 0xf6) return null;
  throw new RangeError('unsupported CBOR');
}
