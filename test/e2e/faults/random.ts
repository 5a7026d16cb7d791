import { randomInt } from 'node:crypto';
import { seeded } from '../../support/random.ts';

export const SEED = Number(process.env.FAULTS_SEED ?? randomInt(2 ** 31));

/** @returns numbers from 0 to below 1, the same for a seed on every machine */
export function createRandom(seed: number): () => number {
  const next = seeded(seed);
  return () => next(2 ** 32) / 2 ** 32;
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
