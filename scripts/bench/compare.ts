/** What all questions share: several programs under the same load in turn, and how the outcome is told. */
import { join } from 'node:path';
import type { Sql } from 'postgres';
import type { PostgresServer } from '../postgres.ts';
import { load, type Replay } from './load.ts';
import { median, type Service, spread, startProgram, TOKEN } from './service.ts';
import { cpuMicros, residentMiB } from './usage.ts';

/** What a question gets. */
export interface Bench {
  readonly directory: string;
  readonly postgres: PostgresServer;
  readonly sql: Sql;
  readonly rounds: number;
  /** Of one turn, and of the turn before the first that counts. */
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

export interface Turn {
  readonly rate: number;
  readonly p50: number;
  readonly p99: number;
  /** Microseconds of processor time for each request, and the most memory that was seen, in MiB; null where nobody tells. */
  readonly serverCpu: number | null;
  readonly databaseCpu: number | null;
  readonly memory: number | null;
}

export interface Figures {
  readonly name: string;
  readonly turns: Turn[];
  /** Of all turns, those that warmed up included. */
  answers: number;
}

/** One ratio or difference, a value for each round, and where its median should lie. */
export interface Finding {
  readonly question: string;
  readonly against: string;
  readonly values: readonly number[];
  readonly unit: 'times' | 'MiB more';
  readonly least?: number;
  readonly most?: number;
}

export interface Report {
  readonly findings: readonly Finding[];
  /** Absolute figures, under a heading each. */
  readonly figures: ReadonlyArray<readonly [heading: string, figures: readonly Figures[]]>;
  /** Absolute figures of another kind. */
  readonly remarks?: readonly string[];
}

/** Rounds of turns under the same load. The first round warms up and is not counted; each further one begins with another. */
export async function takeTurns(bench: Bench, clients: number, subjects: readonly Subject[]): Promise<Figures[]> {
  const figures = subjects.map(({ name }): Figures => ({ name, turns: [], answers: 0 }));
  for (let round = bench.warmUp > 0 ? 0 : 1; round <= bench.rounds; round += 1) {
    for (let place = 0; place < subjects.length; place += 1) {
      const index = (round + place) % subjects.length;
      const [subject, figure] = [subjects[index], figures[index]];
      if (!subject || !figure) throw new Error('every subject has its figures');
      const { answers, turn } = await takeTurn(bench, clients, round === 0 ? bench.warmUp : bench.seconds, subject);
      figure.answers += answers;
      if (round > 0) figure.turns.push(turn);
    }
  }
  return figures;
}

export async function takeTurn({ postgres, sql }: Bench, clients: number, seconds: number, { name, service, replay }: Subject): Promise<{ answers: number; turn: Turn }> {
  // So that nobody pays for what another one has left to be written.
  await sql`checkpoint`;
  const used = () => [cpuMicros(service.processId), cpuMicros(postgres.processId)] as const;
  let memory = residentMiB(service.processId);
  const sample = () => (memory = memory === null ? null : Math.max(memory, residentMiB(service.processId) ?? 0));
  const sampler = setInterval(sample, 100);
  const before = used();
  try {
    const measured = await load({ name, port: service.port, clients, seconds, replay });
    sample();
    const after = used();
    const each = (index: 0 | 1) => (after[index] === null || before[index] === null ? null : (after[index] - before[index]) / measured.answers);
    const { answers, p50, p99 } = measured;
    return { answers, turn: { rate: answers / measured.seconds, p50, p99, serverCpu: each(0), databaseCpu: each(1), memory } };
  } finally {
    clearInterval(sampler);
  }
}

/** The plain form in both its styles. */
export function startPlain({ postgres }: Bench, form: string): Promise<Array<Pick<Subject, 'name' | 'service'>>> {
  const styles = [['plain form, one connection', '1'], ['plain form, pool of ten', '10']] as const;
  const start = (connections: string) => startProgram([join(import.meta.dirname, 'plain.mjs'), form, connections], ['plain'], { DATABASE_URL: postgres.url, AUTH_TOKEN: TOKEN });
  return Promise.all(styles.map(async ([name, connections]) => ({ name, service: await start(connections) })));
}

/** Ours against the others, round by round, for each measure against the one whose median is the best. Ours comes last. */
export function rateAgainst(question: string, figures: readonly Figures[], least: number): Finding {
  return against(`${question}, rate`, figures, ({ rate }) => rate, (one, other) => one > other, { least });
}

export function slowestAgainst(question: string, figures: readonly Figures[], most: number): Finding {
  return against(`${question}, p99`, figures, ({ p99 }) => p99, (one, other) => one < other, { most });
}

type Bound = Pick<Finding, 'least' | 'most'>;

function against(question: string, figures: readonly Figures[], pick: (turn: Turn) => number, isBetter: (one: number, other: number) => boolean, bound: Bound): Finding {
  const typical = ({ turns }: Figures) => median(turns.map(pick));
  const ours = figures.at(-1);
  const others = figures.slice(0, -1);
  const best = others.find((one) => others.every((other) => one === other || !isBetter(typical(other), typical(one))));
  if (!ours || !best) throw new Error('there is something to compare with');
  const values = ours.turns.map((turn, round) => pick(turn) / (best.turns[round] ? pick(best.turns[round]) : Number.NaN));
  return { question, against: best.name, values, unit: 'times', ...bound };
}

export const isMet = ({ values, least = -Infinity, most = Infinity }: Finding): boolean => median(values) >= least && median(values) <= most;

export const boundOf = ({ least, most, unit }: Finding): string => `at ${least === undefined ? `most ${most}` : `least ${least}`} ${unit}`;

/** One row for a table of absolute figures; the same words serve the terminal. */
export function cellsOf({ name, turns }: Figures): string[] {
  const column = (pick: (turn: Turn) => number | null, digits: number) => spread(turns.map(pick).filter((value) => value !== null), digits);
  const middle = (pick: (turn: Turn) => number | null) => column(pick, 0).split(' ')[0] ?? '';
  const rates = column(({ rate }) => rate, turns.some(({ rate }) => rate < 100) ? 1 : 0);
  return [name, rates, column(({ p50 }) => p50, 2), column(({ p99 }) => p99, 2), middle(({ serverCpu }) => serverCpu), middle(({ databaseCpu }) => databaseCpu), middle(({ memory }) => memory)];
}

export const COLUMNS = ['', 'answers a second', 'median, ms', '99 of 100 within, ms', 'server CPU, µs each', 'PostgreSQL CPU, µs each', 'most memory, MiB'] as const;
