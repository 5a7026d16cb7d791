/**
 * Measures one operation against the baselines or another build, by what is sent and by number of
 * clients.
 */
import { compareCpu, compareP99, compareRates, compareTotalCpu } from './compare.ts';
import type { Comparison, Curve, Report, Table } from './compare.ts';
import type { Replay } from './load.ts';
import {
  type Bench,
  type Figures,
  type Measurement,
  measureRounds,
  openTargets,
} from './measure.ts';
import type { Operation, Target } from './measure.ts';
import { median } from './service.ts';

export const CLIENTS = 64;
/** Besides CLIENTS. */
const OTHER_CLIENTS = [1, 4, 16, 256];

/** What is sent. */
export interface Variant {
  /** Such as the size of the body. Empty if there is one variant. */
  readonly name: string;
  /**
   * At CLIENTS: least ratio of the rate, highest of the CPU time of server and PostgreSQL together,
   * and highest of p99.
   */
  readonly targets?: { readonly rate?: number; readonly cpu?: number; readonly p99?: number };
  /** Fills the server's database. */
  prepare(bench: Bench, target: Target): Promise<Replay>;
}

export interface LoadCase extends Operation {
  readonly caveat: string;
  /** The first one is warmed up and measured by the number of clients. */
  readonly variants: readonly [Variant, ...Variant[]];
  /** Whether the first one is also measured with one client. */
  readonly hasSingle?: true;
}

/** @param check runs at the end, with the requests that each target has answered */
export async function measureCase(
  bench: Bench,
  one: LoadCase,
  check: (
    answered: ReadonlyArray<{ target: Target; requests: number }>,
  ) => Promise<readonly string[]> = async () => [],
): Promise<Report> {
  const targets = await openTargets(bench, one);
  const answered = targets.map((target) => ({ target, requests: 0 }));
  const count = (figures: readonly Figures[]) => {
    for (const entry of answered) {
      const own = figures.filter(({ name }) => name === entry.target.name);
      entry.requests += own.reduce((sum, { requests }) => sum + requests, 0);
    }
    return figures;
  };
  const comparisons: Comparison[] = [];
  const tables: Table[] = [];
  const curves: Curve[] = [];
  const isAgainst = bench.builds.length > 1;
  const variants = bench.isQuick ? one.variants.slice(0, 1) : one.variants;
  for (const [index, variant] of variants.entries()) {
    const subjects = await prepareAll(bench, variant, targets);
    // The code is compiled after the first variant.
    const warmUp = index === 0 ? bench.warmUp : Math.min(1, bench.warmUp);
    const name = variant.name === '' ? one.name : `${one.name}, ${variant.name}`;
    const heading = `${name}, ${CLIENTS} clients`;
    const figures = count(await measureRounds({ ...bench, warmUp }, CLIENTS, subjects));
    const { rate, cpu, p99 } = (isAgainst ? null : variant.targets) ?? {};
    comparisons.push(compareRates(heading, figures, { min: rate }));
    comparisons.push(...compareTotalCpu(heading, figures, { max: cpu }));
    if (p99 !== undefined) comparisons.push(compareP99(heading, figures, { max: p99 }));
    if (isAgainst) comparisons.push(...compareCpu(heading, figures));
    tables.push({ heading, figures, caveat: one.caveat });
    if (index > 0 || isAgainst) continue;

    if (one.hasSingle) {
      const single = count(await measureRounds({ ...bench, warmUp: 0 }, 1, subjects));
      comparisons.push(compareRates(`${name}, 1 client`, single));
      const caveat =
        'With one request at a time, no statement is shared. It does not say what the server can do.';
      tables.push({ heading: `${name}, 1 client`, figures: single, caveat });
    }
    const shown = subjects.filter(({ role }) => role !== 'ours again');
    const byClients = new Map([[CLIENTS, figures]]);
    for (const [clients, measured] of await measureOtherClients(bench, shown)) {
      byClients.set(clients, count(measured));
    }
    curves.push(curveOf(name, shown, byClients));
  }
  return { comparisons, tables, curves, remarks: await check(answered) };
}

async function prepareAll(bench: Bench, variant: Variant, targets: readonly Target[]) {
  const subjects = [];
  for (const target of targets) {
    subjects.push({ ...target, replay: await variant.prepare(bench, target) });
  }
  return subjects;
}

/** Shorter rounds with other numbers of clients, for the curves. */
async function measureOtherClients(bench: Bench, shown: Parameters<typeof measureRounds>[2]) {
  const rounds = bench.isQuick ? 1 : 2;
  const pace = { ...bench, rounds, seconds: Math.min(2, bench.seconds), warmUp: 0 };
  const found: Array<[clients: number, figures: readonly Figures[]]> = [];
  for (const clients of bench.isQuick ? [1] : OTHER_CLIENTS) {
    found.push([clients, await measureRounds(pace, clients, shown)]);
  }
  return found;
}

function curveOf(
  name: string,
  shown: readonly Target[],
  byClients: ReadonlyMap<number, readonly Figures[]>,
): Curve {
  const counts = [...byClients.keys()].sort((one, other) => one - other);
  const lines = shown.map((target) => {
    const points = counts.map((clients) => {
      const measurements =
        byClients.get(clients)?.find((figures) => figures.name === target.name)?.measurements ?? [];
      const middle = (pick: (measurement: Measurement) => number | null) =>
        median(measurements.map((one) => pick(one) ?? 0));
      return {
        clients,
        rate: middle(({ rate }) => rate),
        p99: middle(({ p99 }) => p99),
        serverCpu: middle(({ serverCpu }) => serverCpu),
        databaseCpu: middle(({ databaseCpu }) => databaseCpu),
        clientCpu: middle(({ clientCpu }) => clientCpu),
      };
    });
    return { name: target.name, role: target.role, points };
  });
  return { name, lines };
}
