/**
 * A strict reader for the subset of CBOR that WebAuthn uses (RFC 8949; CTAP 2.1, section 8): integers, byte strings,
 * text, arrays, maps and booleans, with definite lengths in their shortest form. Its input comes from an attacker.
 */
export type Cbor = number | boolean | string | Buffer | readonly Cbor[] | CborMap;
export type CborMap = ReadonlyMap<number | string, Cbor>;

/** An attestation object has three levels, an attestation statement with certificates one more. */
const MAX_DEPTH = 4;

class Malformed extends Error {}

/** @returns the item at `start` and where it ends; null if it is malformed or outside the subset */
export function readCbor(bytes: Buffer, start = 0): { readonly value: Cbor; readonly end: number } | null {
  let at = start;
  try {
    const value = readItem(0);
    return { value, end: at };
  } catch (error) {
    if (error instanceof Malformed) return null;
    throw error;
  }

  function take(length: number): Buffer {
    if (length > bytes.length - at) throw new Malformed();
    at += length;
    return bytes.subarray(at - length, at);
  }

  /** The argument of an item's head: a value or a length. */
  function readArgument(info: number): number {
    if (info < 24) return info;
    if (info > 26) throw new Malformed(); // 64 bits, reserved, or an indefinite length
    const size = 2 ** (info - 24);
    const value = take(size).readUIntBE(0, size);
    if (value < (size === 1 ? 24 : 2 ** (4 * size))) throw new Malformed(); // not the shortest form
    return value;
  }

  function readItem(depth: number): Cbor {
    if (depth > MAX_DEPTH) throw new Malformed();
    const head = take(1).readUInt8();
    const [type, info] = [head >> 5, head & 31];
    if (type === 7 && (info === 20 || info === 21)) return info === 21;
    const argument = type < 6 ? readArgument(info) : 0;
    if (type === 0) return argument;
    if (type === 1) return -1 - argument;
    if (type === 2) return take(argument);
    if (type === 3) return readText(take(argument));
    if (type === 4) return Array.from(counted(argument), () => readItem(depth + 1));
    if (type === 5) return readMap(argument, depth);
    throw new Malformed(); // tags, floating-point numbers, null
  }

  /** Each item takes at least a byte: a length beyond the input allocates nothing. */
  function counted(length: number) {
    if (length > bytes.length - at) throw new Malformed();
    return { length };
  }

  function readMap(length: number, depth: number): CborMap {
    const map = new Map<number | string, Cbor>();
    for (let left = counted(length).length; left > 0; left -= 1) {
      const key = readItem(depth + 1);
      if ((typeof key !== 'number' && typeof key !== 'string') || map.has(key)) throw new Malformed();
      map.set(key, readItem(depth + 1));
    }
    return map;
  }
}

function readText(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Malformed();
  }
}
