/**
 * Ratios between subjects of the same rounds, with the noise beside each: the same build against
 * itself.
 */
import type { Figures, Measurement, Role } from './measure.ts';
import { median, spread } from './service.ts';

/** A ratio or difference with one value for each round, and the target for its median. */
export interface Comparison {
  readonly name: string;
  readonly comparedWith: string;
  readonly values: readonly number[];
  readonly unit: 'times' | 'MiB more' | 'attacks';
  readonly min?: number | undefined;
  readonly max?: number | undefined;
  /** The same ratio between two processes of one build, which would be 1 without noise. */
  readonly noise: ReadonlyArray<{ readonly name: string; readonly values: readonly number[] }>;
}

/** Absolute figures in one table. */
export interface Table {
  readonly heading: string;
  readonly figures: readonly Figures[];
  /** What the figures do not say, in a sentence. */
  readonly caveat: string;
}

/** Medians. CPU times are per request, and 0 outside Linux. */
export interface Point {
  readonly clients: number;
  readonly rate: number;
  readonly p99: number;
  readonly serverCpu: number;
  readonly databaseCpu: number;
  readonly clientCpu: number;
}

/** Rate and latency of each subject by the number of clients. */
export interface Curve {
  readonly name: string;
  readonly lines: ReadonlyArray<{
    readonly name: string;
    readonly role: Role;
    readonly points: readonly Point[];
  }>;
}

/** The first row is that of the headings. */
export interface ProfileTable {
  readonly heading: string;
  readonly rows: ReadonlyArray<readonly string[]>;
  readonly caveat: string;
}

export interface Report {
  readonly comparisons: readonly Comparison[];
  readonly tables: readonly Table[];
  readonly profiles?: readonly ProfileTable[];
  readonly curves?: readonly Curve[];
  /** Absolute figures in a sentence each. */
  readonly remarks?: readonly string[];
}

type Pick = (measurement: Measurement) => number;
type Target = { readonly min?: number | undefined; readonly max?: number | undefined };

/** Divides the rate by that of the better baseline, or of the other build, in each round. */
export const compareRates = (
  name: string,
  figures: readonly Figures[],
  target: Target = {},
): Comparison =>
  compare(
    `${name}, rate`,
    figures,
    ({ rate }) => rate,
    (one, other) => one > other,
    target,
  );

/** The same for the 99th percentile of the latency. */
export const compareP99 = (
  name: string,
  figures: readonly Figures[],
  target: Target = {},
): Comparison =>
  compare(
    `${name}, p99`,
    figures,
    ({ p99 }) => p99,
    (one, other) => one < other,
    target,
  );

const serverCpu: Pick = (one) => one.serverCpu ?? 0;
const databaseCpu: Pick = (one) => one.databaseCpu ?? 0;
const isLess = (one: number, other: number) => one < other;

/**
 * Processor time per request of server and PostgreSQL together: less noisy than the rate, because
 * other programs take none of it.
 */
export const compareTotalCpu = (
  name: string,
  figures: readonly Figures[],
  target: Target = {},
): Comparison[] => {
  const pick: Pick = (one) => serverCpu(one) + databaseCpu(one);
  if (!isMeasured(figures, pick)) return [];
  return [compare(`${name}, CPU`, figures, pick, isLess, target)];
};

/** The same for each of the two, of two builds. */
export function compareCpu(name: string, figures: readonly Figures[]): Comparison[] {
  const picks: ReadonlyArray<readonly [string, Pick]> = [
    ['server CPU', serverCpu],
    ['PostgreSQL CPU', databaseCpu],
  ];
  return picks.flatMap(([what, pick]) =>
    isMeasured(figures, pick) ? [compare(`${name}, ${what}`, figures, pick, isLess, {})] : [],
  );
}

/** Outside Linux, processor time is not measured. */
const isMeasured = (figures: readonly Figures[], pick: Pick) =>
  figures.every(({ measurements }) => measurements.every((one) => pick(one) >= 1));

type IsBetter = (one: number, other: number) => boolean;

function compare(
  name: string,
  figures: readonly Figures[],
  pick: Pick,
  isBetter: IsBetter,
  target: Target,
): Comparison {
  const typical = ({ measurements }: Figures) => median(measurements.map(pick));
  const find = (role: Role) => figures.find((one) => one.role === role);
  const others = figures.filter(({ role }) => role === 'baseline' || role === 'other');
  const best = others.find((one) =>
    others.every((other) => one === other || !isBetter(typical(other), typical(one))),
  );
  const ours = find('ours');
  const oursAgain = find('ours again');
  const otherAgain = find('other again');
  if (!ours || !best) throw new Error(`${name}: a comparison needs two subjects`);
  const valuesOf = ({ measurements }: Figures) => measurements.map(pick);
  const noise = [
    [ours, oursAgain],
    [best, otherAgain],
  ].flatMap(([one, again]) => {
    return one && again ? [{ name: one.name, values: divide(valuesOf(one), valuesOf(again)) }] : [];
  });
  // Two builds are compared by both processes of each.
  const added = (one: Figures, again: Figures) =>
    valuesOf(one).map((value, round) => value + (valuesOf(again)[round] ?? Number.NaN));
  const values =
    oursAgain && otherAgain
      ? divide(added(ours, oursAgain), added(best, otherAgain))
      : divide(valuesOf(ours), valuesOf(best));
  return { name, comparedWith: best.name, values, unit: 'times', noise, ...target };
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
  if (targetOf(comparison) === '–' && comparison.noise.length === 0) return '–';
  if (targetOf(comparison) === '–')
    return isBeyondNoise(comparison) ? 'differs' : 'within the noise';
  return isMet(comparison) ? 'yes' : 'no';
}

/**
 * Whether the median is above or below every value of a build against itself, whichever process
 * comes first.
 */
function isBeyondNoise({ values, noise, unit }: Comparison): boolean {
  const swapped = (value: number) => (unit === 'times' ? 1 / value : -value);
  const itself = noise.flatMap((one) => one.values.flatMap((value) => [value, swapped(value)]));
  const middle = median(values);
  return (
    itself.length > 0 &&
    itself.every((value) => value < middle) !== itself.every((value) => value > middle)
  );
}

export const valuesOf = ({ values, unit }: Comparison): string => `${spread(values)} ${unit}`;

export const noiseOf = ({ noise }: Comparison): string =>
  noise
    .map((one) => `${noise.length === 1 ? '' : `${one.name}: `}${spread(one.values)}`)
    .join('; ') || '–';

export const COLUMNS = [
  '',
  'requests/s',
  'server CPU, µs/request',
  'PostgreSQL CPU, µs/request',
  'median, ms',
  'p99, ms',
  'peak memory, MiB',
] as const;

/** One row of a table of absolute figures, for the terminal and for the document. */
export function cellsOf({ name, measurements }: Figures): string[] {
  const column = (pick: (measurement: Measurement) => number | null, digits: number) =>
    spread(
      measurements.map(pick).filter((value) => value !== null),
      digits,
    );
  const middle = (pick: (measurement: Measurement) => number | null) =>
    column(pick, 0).split(' ')[0] ?? '';
  const rates = column(({ rate }) => rate, measurements.some(({ rate }) => rate < 100) ? 1 : 0);
  const cpus = [middle(({ serverCpu }) => serverCpu), middle(({ databaseCpu }) => databaseCpu)];
  const latencies = [column(({ p50 }) => p50, 2), column(({ p99 }) => p99, 2)];
  return [name, rates, ...cpus, ...latencies, middle(({ memory }) => memory)];
}
