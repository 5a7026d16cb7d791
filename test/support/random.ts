/** Random input that a failed test can repeat. */

/** Mulberry32. @returns a whole number below `limit` */
export function seeded(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) % limit;
  };
}

/** Up to two characters inserted, deleted or replaced. */
export function edited(
  text: string,
  alphabet: readonly string[],
  random: (limit: number) => number,
): string {
  const characters = [...text];
  for (let edits = random(3); edits > 0; edits -= 1) {
    const character = alphabet[random(alphabet.length)] ?? '';
    const at = random(4) === 0 ? random(2) * characters.length : random(characters.length + 1);
    characters.splice(at, random(2), ...(random(3) === 0 ? [] : [character]));
  }
  return characters.join('');
}

/** A text of Latin-1 in Base64 and Base64url, unpadded and padded. */
export const encodings = (text: string): string[] =>
  (['base64', 'base64url'] as const).flatMap((encoding) => {
    const encoded = Buffer.from(text, 'latin1').toString(encoding).replace(/=+$/, '');
    return [encoded, encoded + '='.repeat(-encoded.length & 3)];
  });
