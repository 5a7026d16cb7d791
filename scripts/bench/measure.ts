/** Shared by the benchmarks: measures several programs under the same load in alternation. */
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { connect } from '../postgres.ts';
import type { Build } from './builds.ts';
import { createDatabase, dropDatabase, type Server } from './database.ts';
import { load, type Replay } from './load.ts';
import { atEnd, startProgram, startServices, TOKEN } from './service.ts';
import type { Environment, Service, ServiceName } from './service.ts';
import { cpuMicros, memoryMiB } from './usage.ts';

export interface Bench {
  readonly directory: string;
  readonly postgres: Server;
  readonly sql: Sql;
  /** This build, and the one that it is compared with, if any. */
  readonly builds: readonly Build[];
  readonly rounds: number;
  /** Length of one measurement, and of the first one, which is not counted. */
  readonly seconds: number;
  readonly warmUp: number;
  readonly isQuick: boolean;
}

/**
 * `floor`: the least that we could write for the same work. `again`: a second process of the same
 * build. What differs between the two is noise.
 */
export type Role = 'floor' | 'baseline' | 'ours' | 'ours again' | 'other' | 'other again';

/** A running server, before it is known what is sent to it. */
export interface Target {
  readonly name: string;
  readonly role: Role;
  readonly service: Service;
  /**
   * The database of the server. Each process of Gatehouse has its own: two commits may need
   * different schemas.
   */
  readonly sql: Sql;
  readonly databaseUrl: string;
  /** The build whose commands know the schema of that database. */
  readonly build: Build;
}

export interface Subject extends Target {
  readonly replay: Replay;
}

export interface Measurement {
  /** Requests per second. */
  readonly rate: number;
  /** Latencies in milliseconds. Null if nobody waits. */
  readonly p50: number | null;
  readonly p99: number | null;
  /** Processor time per request in microseconds. Null outside Linux. */
  readonly serverCpu: number | null;
  readonly databaseCpu: number | null;
  /** The highest resident memory seen, in MiB. Null outside Linux. */
  readonly memory: number | null;
}

export interface Figures {
  readonly name: string;
  readonly role: Role;
  readonly measurements: Measurement[];
  /** Requests answered in all measurements, including the warm-up. */
  requests: number;
}

export interface Operation {
  readonly name: string;
  readonly service: ServiceName;
  readonly settings?: Environment;
  /** The route of baseline.mjs that does the same. */
  readonly baseline?: string;
  /** Whether that route also knows how to share statements. */
  readonly hasFloor?: boolean;
}

let databases = 0;

/** A database that is removed when the part of the benchmark ends. */
export async function openDatabase({
  postgres,
}: Pick<Bench, 'postgres'>): Promise<{ url: string; sql: Sql }> {
  databases += 1;
  const name = `bench_${databases}`;
  const url = await createDatabase(postgres.url, name);
  const sql = connect(url);
  atEnd(async () => {
    await sql.end();
    await dropDatabase(postgres.url, name);
  });
  return { url, sql };
}

/**
 * Starts each build twice, and the baselines unless two builds are compared. Gatehouse comes last.
 */
export async function openTargets(bench: Bench, operation: Operation): Promise<Target[]> {
  const ours: Target[] = [];
  for (const [index, build] of bench.builds.entries()) {
    for (const again of ['', ' again'] as const) {
      const { url, sql } = await openDatabase(bench);
      const service = await startServices([operation.service], url, operation.settings, build);
      const role: Role = `${index === 0 ? 'ours' : 'other'}${again}`;
      const name = `${build.name}${again && ', again'}`;
      ours.push({ name, role, service, sql, databaseUrl: url, build });
    }
  }
  const [first] = ours;
  if (!first) throw new Error('no build');
  if (operation.baseline === undefined || bench.builds.length > 1) return ours;
  return [...(await startBaselines(first, operation)), ...ours];
}

const BASELINES = [
  ['baseline, one connection', 'baseline', '1'],
  ['baseline, pool of ten', 'baseline', '10'],
] as const;
const FLOOR = ['floor', 'floor', 'shared'] as const;

function startBaselines(
  { databaseUrl, sql, build }: Target,
  { baseline = '', hasFloor = false }: Operation,
): Promise<Target[]> {
  const variants = hasFloor ? [...BASELINES, FLOOR] : BASELINES;
  const environment = { DATABASE_URL: databaseUrl, AUTH_TOKEN: TOKEN };
  const script = join(import.meta.dirname, 'baseline.mjs');
  return Promise.all(
    variants.map(async ([name, role, connections]): Promise<Target> => {
      const program = [script, baseline, connections];
      const service = await startProgram(program, ['baseline'], environment);
      return { name, role, service, sql, databaseUrl, build };
    }),
  );
}

interface Measured {
  readonly requests: number;
  readonly measurement: Measurement;
}

/**
 * Measures each target once per round. The first round is a warm-up. The order rotates every round.
 * @param one measures a target
 */
export async function measureInTurn<T extends Target>(
  rounds: number,
  targets: readonly T[],
  one: (target: T, isWarmUp: boolean) => Promise<Measured>,
): Promise<Figures[]> {
  const figures = targets.map(({ name, role }): Figures => ({
    name,
    role,
    measurements: [],
    requests: 0,
  }));
  for (let round = 0; round <= rounds; round += 1) {
    for (let position = 0; position < targets.length; position += 1) {
      const index = (round + position) % targets.length;
      const target = targets[index];
      const figure = figures[index];
      if (!target || !figure) throw new Error('no such target');
      const { requests, measurement } = await one(target, round === 0);
      figure.requests += requests;
      if (round > 0) figure.measurements.push(measurement);
    }
  }
  return figures;
}

export const measureLoad = (
  bench: Bench,
  clients: number,
  subjects: readonly Subject[],
): Promise<Figures[]> =>
  measureInTurn(bench.rounds, subjects, (subject, isWarmUp) =>
    measure(bench, clients, isWarmUp ? bench.warmUp : bench.seconds, subject),
  );

export async function measure(
  bench: Bench,
  clients: number,
  seconds: number,
  { name, service, replay }: Pick<Subject, 'name' | 'service' | 'replay'>,
): Promise<Measured> {
  const processor = await startProcessorTime(bench, service);
  let memory = memoryMiB(service.processId);
  const sample = () => {
    memory = memory === null ? null : Math.max(memory, memoryMiB(service.processId) ?? 0);
  };
  const sampler = setInterval(sample, 100);
  try {
    const result = await load({ name, port: service.port, clients, seconds, replay });
    sample();
    const { requests, p50, p99 } = result;
    const rate = requests / result.seconds;
    return { requests, measurement: { rate, p50, p99, ...processor(requests), memory } };
  } finally {
    clearInterval(sampler);
  }
}

/** @returns gives the processor time since now, for each of so many requests */
export async function startProcessorTime({ postgres, sql }: Bench, { processId }: Service) {
  // No subject pays for what another one has left to be written.
  await sql`checkpoint`;
  const server = cpuMicros(processId);
  const database = cpuMicros(postgres.processId);
  return (requests: number): Pick<Measurement, 'serverCpu' | 'databaseCpu'> => {
    const since = (before: number | null, after: number | null) =>
      after === null || before === null ? null : (after - before) / requests;
    return {
      serverCpu: since(server, cpuMicros(processId)),
      databaseCpu: since(database, cpuMicros(postgres.processId)),
    };
  };
}
