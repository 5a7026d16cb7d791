import { randomInt } from 'node:crypto';

export const SEED = Number(process.env.FAULTS_SEED ?? randomInt(2 ** 31));

/** mulberry32: the same seed gives the same numbers on every machine. */
export function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Draws by weight: `pick(random, { often: 9, seldom: 1 })`. */
export function pick<Name extends string>(
  random: () => number,
  weights: Readonly<Record<Name, number>>,
): Name {
  let rest = random() * Object.values<number>(weights).reduce((sum, weight) => sum + weight, 0);
  for (const name in weights) {
    rest -= weights[name];
    if (rest < 0) return name;
  }
  throw new Error('there is nothing to choose from');
}

export const choose = <T>(random: () => number, values: readonly T[]): T | undefined =>
  values[Math.floor(random() * values.length)];
