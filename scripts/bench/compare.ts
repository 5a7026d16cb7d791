/**
 * Ratios between subjects of the same rounds, with the noise beside each: the same build against
 * itself.
 */
import type { Figures, Measurement, Role } from './measure.ts';

/** A ratio or difference with one value for each round, and the target for its median. */
export interface Comparison extends Target {
  readonly name: string;
  readonly comparedWith: string;
  readonly values: readonly number[];
  readonly unit: 'times' | 'MiB more' | 'attacks';
  /** The same ratio between two processes of one build, which would be 1 without noise. */
  readonly noise: ReadonlyArray<{ readonly name: string; readonly values: readonly number[] }>;
}

interface Target {
  readonly min?: number | undefined;
  readonly max?: number | undefined;
}

export type Row = readonly string[];

/** Absolute figures. The first row is the head. */
export interface Table {
  readonly heading: string;
  readonly rows: readonly Row[];
  /** What the figures do not say, in a sentence. */
  readonly caveat: string;
}

export interface Report {
  readonly comparisons: readonly Comparison[];
  readonly tables: readonly Table[];
}

interface Measure {
  /** 0 where it is not measured, as processor time outside Linux. */
  pick(measurement: Measurement): number;
  readonly isMoreBetter: boolean;
}

const MEASURES = {
  rate: { pick: ({ rate }) => rate, isMoreBetter: true },
  p99: { pick: ({ p99 }) => p99 ?? 0, isMoreBetter: false },
  // Less noisy than the rate, because other programs take none of it.
  CPU: {
    pick: ({ serverCpu, databaseCpu }) => (serverCpu ?? 0) + (databaseCpu ?? 0),
    isMoreBetter: false,
  },
  'server CPU': { pick: ({ serverCpu }) => serverCpu ?? 0, isMoreBetter: false },
  'PostgreSQL CPU': { pick: ({ databaseCpu }) => databaseCpu ?? 0, isMoreBetter: false },
} satisfies Record<string, Measure>;

/**
 * Divides a measure by that of the better baseline, or of the other build, in each round.
 * @param roles with which this build is compared
 * @returns nothing if it was not measured
 */
export function compare(
  name: string,
  measure: keyof typeof MEASURES,
  figures: readonly Figures[],
  target: Target = {},
  roles: readonly Role[] = ['baseline', 'other'],
): Comparison[] {
  const { pick, isMoreBetter }: Measure = MEASURES[measure];
  const valuesOf = ({ measurements }: Figures) => measurements.map(pick);
  if (!figures.every((one) => valuesOf(one).every((value) => value > 0))) return [];
  const find = (role: Role) => figures.find((one) => one.role === role);
  const others = figures.filter(({ role }) => roles.includes(role));
  const typical = (one: Figures) => median(valuesOf(one)) * (isMoreBetter ? -1 : 1);
  const [best] = others.sort((one, other) => typical(one) - typical(other));
  const ours = find('ours');
  const oursAgain = find('ours again');
  const otherAgain = find('other again');
  if (!ours || !best) throw new Error(`${name}: a comparison needs two subjects`);
  const pairs = [
    [ours, oursAgain],
    [best, otherAgain],
  ] as const;
  const noise = pairs.flatMap(([one, again]) => {
    return one && again ? [{ name: one.name, values: divide(valuesOf(one), valuesOf(again)) }] : [];
  });
  // Two builds are compared by both processes of each.
  const added = (one: Figures, again: Figures) =>
    valuesOf(one).map((value, round) => value + (valuesOf(again)[round] ?? Number.NaN));
  const values =
    oursAgain && otherAgain
      ? divide(added(ours, oursAgain), added(best, otherAgain))
      : divide(valuesOf(ours), valuesOf(best));
  const about = { name: `${name}, ${measure}`, comparedWith: best.name, unit: 'times' } as const;
  return [{ ...about, values, noise, ...target }];
}

const divide = (values: readonly number[], divisors: readonly number[]): number[] =>
  values.map((value, round) => value / (divisors[round] ?? Number.NaN));

const isMet = ({ values, min = -Infinity, max = Infinity }: Comparison): boolean =>
  median(values) >= min && median(values) <= max;

export function targetOf({ min, max, unit }: Comparison): string {
  if (min === undefined && max === undefined) return '–';
  return `at ${min === undefined ? `most ${max}` : `least ${min}`} ${unit}`;
}

export function resultOf(comparison: Comparison): string {
  if (comparison.values.length === 0) return 'not measured';
  if (targetOf(comparison) !== '–') return isMet(comparison) ? 'yes' : 'no';
  if (comparison.noise.length === 0) return '–';
  return isBeyondNoise(comparison) ? 'differs' : 'within the noise';
}

/**
 * Whether the median is above or below every value of a build against itself, whichever process
 * comes first.
 */
function isBeyondNoise({ values, noise }: Comparison): boolean {
  const itself = noise.flatMap((one) => one.values.flatMap((value) => [value, 1 / value]));
  const middle = median(values);
  return itself.every((value) => value < middle) || itself.every((value) => value > middle);
}

export const valuesOf = ({ values, unit }: Comparison): string => `${spread(values)} ${unit}`;

export const noiseOf = ({ noise }: Comparison): string =>
  noise
    .map((one) => `${noise.length === 1 ? '' : `${one.name}: `}${spread(one.values)}`)
    .join('; ') || '–';

export const COLUMNS: Row = [
  '',
  'requests/s',
  'server CPU, µs/request',
  'PostgreSQL CPU, µs/request',
  'median, ms',
  'p99, ms',
  'peak memory, MiB',
];

/** One row of a table of absolute figures. */
export function cellsOf({ name, measurements }: Figures): Row {
  const column = (pick: (measurement: Measurement) => number | null, digits: number) =>
    spread(
      measurements.map(pick).filter((value) => value !== null),
      digits,
    );
  const middle = (pick: (measurement: Measurement) => number | null) =>
    column(pick, 0).split(' ')[0] ?? '';
  const cpus = [middle(({ serverCpu }) => serverCpu), middle(({ databaseCpu }) => databaseCpu)];
  const latencies = [column(({ p50 }) => p50, 2), column(({ p99 }) => p99, 2)];
  return [name, column(({ rate }) => rate, 0), ...cpus, ...latencies, middle((one) => one.memory)];
}

export const tableOf = (heading: string, figures: readonly Figures[], caveat: string): Table => ({
  heading,
  rows: [COLUMNS, ...figures.map(cellsOf)],
  caveat,
});

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** `median (min to max)`, or the only value. */
export function spread(values: readonly number[], digits = 2): string {
  if (values.length === 0) return '–';
  const text = (value: number) => value.toFixed(digits);
  if (values.length === 1) return text(median(values));
  return `${text(median(values))} (${text(Math.min(...values))} to ${text(Math.max(...values))})`;
}
