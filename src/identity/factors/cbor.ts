/**
 * A strict reader for the subset of CBOR that WebAuthn uses (RFC 8949; CTAP 2.1, section 8): integers, byte strings,
 * text, arrays, maps and booleans, with definite lengths in their shortest form. Its input comes from an attacker.
 */
export type Cbor = number | boolean | string | Buffer | readonly Cbor[] | CborMap;
export type CborMap = ReadonlyMap<number | string, Cbor>;

/** An attestation object has three levels, an attestation statement with certificates one more. */
const MAX_DEPTH = 4;

/** @returns the item at `start` and where it ends; null if it is malformed or outside the subset */
export function readCbor(bytes: Buffer, start = 0): { readonly value: Cbor; readonly end: number } | null {
  let at = start;
  try {
    return { value: readItem(0), end: at };
  } catch {
    return null;
  }

  function take(length: number): Buffer {
    check(length <= bytes.length - at);
    at += length;
    return bytes.subarray(at - length, at);
  }

  /** The argument of an item's head: a value or a length. */
  function readArgument(info: number): number {
    if (info < 24) return info;
    check(info <= 26); // not 64 bits, reserved, or an indefinite length
    const size = 2 ** (info - 24);
    const value = take(size).readUIntBE(0, size);
    check(value >= (size === 1 ? 24 : 2 ** (4 * size))); // the shortest form
    return value;
  }

  function readItem(depth: number): Cbor {
    check(depth <= MAX_DEPTH);
    const head = take(1).readUInt8();
    if (head === 0xf4 || head === 0xf5) return head === 0xf5;
    const [type, argument] = [head >> 5, readArgument(head & 31)];
    if (type === 0) return argument;
    if (type === 1) return -1 - argument;
    if (type === 2) return take(argument);
    if (type === 3) return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(take(argument));
    check(type < 6); // not a tag, a floating-point number, or null
    check(argument <= bytes.length - at); // each item takes at least a byte, so that a length allocates nothing
    if (type === 4) return Array.from({ length: argument }, () => readItem(depth + 1));
    const map = new Map<number | string, Cbor>();
    for (let left = argument; left > 0; left -= 1) {
      const key = readItem(depth + 1);
      check((typeof key === 'number' || typeof key === 'string') && !map.has(key));
      map.set(key, readItem(depth + 1));
    }
    return map;
  }
}

function check(holds: boolean): asserts holds {
  if (!holds) throw new Error('malformed');
}
