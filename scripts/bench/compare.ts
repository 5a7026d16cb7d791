/** Shared by the benchmarks: measures several programs under the same load in alternation, and compares them. */
import { join } from 'node:path';
import type { Sql } from 'postgres';
import type { PostgresServer } from '../postgres.ts';
import { load, type Replay } from './load.ts';
import { median, type Service, spread, startProgram, TOKEN } from './service.ts';
import { cpuMicros, memoryMiB } from './usage.ts';

export interface Bench {
  readonly directory: string;
  readonly postgres: PostgresServer;
  readonly sql: Sql;
  readonly rounds: number;
  /** Length of one measurement, and of the first one, which is not counted. */
  readonly seconds: number;
  readonly warmUp: number;
  readonly isQuick: boolean;
  readonly isLong: boolean;
}

export interface Subject {
  readonly name: string;
  readonly service: Service;
  readonly replay: Replay;
}

export interface Measurement {
  /** Requests per second. */
  readonly rate: number;
  /** Latencies in milliseconds. */
  readonly p50: number;
  readonly p99: number;
  /** Processor time per request in microseconds. Null outside Linux. */
  readonly serverCpu: number | null;
  readonly databaseCpu: number | null;
  /** The highest resident memory seen, in MiB. Null outside Linux. */
  readonly memory: number | null;
}

export interface Figures {
  readonly name: string;
  readonly measurements: Measurement[];
  /** Requests answered in all measurements, including the warm-up. */
  requests: number;
}

/** A ratio or difference with one value for each round, and the target for its median. */
export interface Comparison {
  readonly name: string;
  readonly comparedWith: string;
  readonly values: readonly number[];
  readonly unit: 'times' | 'MiB more';
  readonly min?: number;
  readonly max?: number;
}

export interface Report {
  readonly comparisons: readonly Comparison[];
  /** Tables of absolute figures. */
  readonly figures: ReadonlyArray<readonly [heading: string, figures: readonly Figures[]]>;
  /** Absolute figures in a sentence each. */
  readonly remarks?: readonly string[];
}

/** Measures each subject once per round. The first round is a warm-up. The order rotates every round. */
export async function measureRounds(bench: Bench, clients: number, subjects: readonly Subject[]): Promise<Figures[]> {
  const figures = subjects.map(({ name }): Figures => ({ name, measurements: [], requests: 0 }));
  for (let round = bench.warmUp > 0 ? 0 : 1; round <= bench.rounds; round += 1) {
    for (let position = 0; position < subjects.length; position += 1) {
      const index = (round + position) % subjects.length;
      const [subject, figure] = [subjects[index], figures[index]];
      if (!subject || !figure) throw new Error('no such subject');
      const seconds = round === 0 ? bench.warmUp : bench.seconds;
      const { requests, measurement } = await measure(bench, clients, seconds, subject);
      figure.requests += requests;
      if (round > 0) figure.measurements.push(measurement);
    }
  }
  return figures;
}

export async function measure(
  { postgres, sql }: Bench, clients: number, seconds: number, { name, service, replay }: Subject,
): Promise<{ requests: number; measurement: Measurement }> {
  // No subject pays for what another one has left to be written.
  await sql`checkpoint`;
  const cpu = () => [cpuMicros(service.processId), cpuMicros(postgres.processId)] as const;
  let memory = memoryMiB(service.processId);
  const sample = () => (memory = memory === null ? null : Math.max(memory, memoryMiB(service.processId) ?? 0));
  const sampler = setInterval(sample, 100);
  const before = cpu();
  try {
    const { requests, p50, p99, seconds: elapsed } = await load({ name, port: service.port, clients, seconds, replay });
    sample();
    const after = cpu();
    const perRequest = (index: 0 | 1) =>
      after[index] === null || before[index] === null ? null : (after[index] - before[index]) / requests;
    const [serverCpu, databaseCpu] = [perRequest(0), perRequest(1)];
    return { requests, measurement: { rate: requests / elapsed, p50, p99, serverCpu, databaseCpu, memory } };
  } finally {
    clearInterval(sampler);
  }
}

/** Starts the baseline twice: with one pipelined connection and with a pool of ten. */
export function startBaselines(
  { postgres }: Bench, route: string,
): Promise<Array<Pick<Subject, 'name' | 'service'>>> {
  const variants = [['baseline, one connection', '1'], ['baseline, pool of ten', '10']] as const;
  const environment = { DATABASE_URL: postgres.url, AUTH_TOKEN: TOKEN };
  const script = join(import.meta.dirname, 'baseline.mjs');
  return Promise.all(variants.map(async ([name, connections]) => {
    return { name, service: await startProgram([script, route, connections], ['baseline'], environment) };
  }));
}

type Target = Pick<Comparison, 'min' | 'max'>;

/** Divides Gatehouse's rate by that of the other subject with the best median, in each round. Gatehouse comes last. */
export function compareRates(name: string, figures: readonly Figures[], min: number): Comparison {
  return compare(`${name}, rate`, figures, ({ rate }) => rate, (one, other) => one > other, { min });
}

/** The same for the 99th percentile of the latency. */
export function compareP99(name: string, figures: readonly Figures[], max: number): Comparison {
  return compare(`${name}, p99`, figures, ({ p99 }) => p99, (one, other) => one < other, { max });
}

function compare(
  name: string, figures: readonly Figures[], pick: (measurement: Measurement) => number,
  isBetter: (one: number, other: number) => boolean, target: Target,
): Comparison {
  const typical = ({ measurements }: Figures) => median(measurements.map(pick));
  const ours = figures.at(-1);
  const others = figures.slice(0, -1);
  const best = others.find((one) => others.every((other) => one === other || !isBetter(typical(other), typical(one))));
  if (!ours || !best) throw new Error('a comparison needs two subjects');
  const values = ours.measurements.map((measurement, round) => {
    const other = best.measurements[round];
    return pick(measurement) / (other ? pick(other) : Number.NaN);
  });
  return { name, comparedWith: best.name, values, unit: 'times', ...target };
}

export const isMet = ({ values, min = -Infinity, max = Infinity }: Comparison): boolean =>
  median(values) >= min && median(values) <= max;

export const targetOf = ({ min, max, unit }: Comparison): string =>
  `at ${min === undefined ? `most ${max}` : `least ${min}`} ${unit}`;

export const COLUMNS = [
  '', 'requests/s', 'median, ms', 'p99, ms', 'server CPU, µs/request', 'PostgreSQL CPU, µs/request',
  'peak memory, MiB',
] as const;

/** One row of a table of absolute figures, for the terminal and for the document. */
export function cellsOf({ name, measurements }: Figures): string[] {
  const column = (pick: (measurement: Measurement) => number | null, digits: number) =>
    spread(measurements.map(pick).filter((value) => value !== null), digits);
  const middle = (pick: (measurement: Measurement) => number | null) => column(pick, 0).split(' ')[0] ?? '';
  const rates = column(({ rate }) => rate, measurements.some(({ rate }) => rate < 100) ? 1 : 0);
  const latencies = [column(({ p50 }) => p50, 2), column(({ p99 }) => p99, 2)];
  const cpus = [middle(({ serverCpu }) => serverCpu), middle(({ databaseCpu }) => databaseCpu)];
  return [name, rates, ...latencies, ...cpus, middle(({ memory }) => memory)];
}
