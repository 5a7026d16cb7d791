/**
 * How often a race is tried: a few times with every change, many times in the stress tests. These
 * are run by `scripts/test.ts --stress`, with STRESS=1 and every test file that imports this.
 */
export const rounds = (few: number, many: number): number => (process.env.STRESS ? many : few);
