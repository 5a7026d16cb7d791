/** Every value that differs from the bytes in one bit, with the number of the bit. */
export function* everyBitFlipped(bytes: Buffer): Generator<[bit: number, flipped: Buffer]> {
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    yield [bit, flipped];
  }
}
