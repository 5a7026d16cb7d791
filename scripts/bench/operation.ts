/**
 * Measures one operation against the baselines or another build, by size of the body and by number
 * of clients.
 */
import { compareCpu, compareP99, compareRates } from './compare.ts';
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
/**
 * Bytes of a body. The first one is warmed up, has the targets and is measured by the number of
 * clients.
 */
const SIZES = [1_024, 110, 16_384] as const;
/** Besides CLIENTS. */
const OTHER_CLIENTS = [1, 4, 16, 256];

export interface LoadCase extends Operation {
  /** Whether the request has a body of a chosen size. */
  readonly hasSizes: boolean;
  readonly caveat: string;
  /**
   * Least ratio of the rate and highest of p99 at CLIENTS, and least ratio of the rate with one
   * client.
   */
  readonly targets: { readonly rate: number; readonly p99?: number; readonly single?: number };
  /** Fills the server's database. @returns what is sent */
  prepare(bench: Bench, target: Target, bytes: number): Promise<Replay>;
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
  const sizes = one.hasSizes && !bench.isQuick ? SIZES : SIZES.slice(0, 1);
  for (const [index, bytes] of sizes.entries()) {
    const subjects = await prepareAll(bench, one, targets, bytes);
    const shownBytes = bytes < 1_024 ? `${bytes} bytes` : `${bytes / 1_024} KB`;
    const size = one.hasSizes ? `, ${shownBytes}` : '';
    // Every process is warm after the first size.
    const pace = index === 0 ? bench : { ...bench, rounds: Math.min(3, bench.rounds), warmUp: 0 };
    const name = `${one.name}${size}`;
    const figures = count(await measureRounds(pace, CLIENTS, subjects));
    const target = (limits: { min?: number; max?: number }) =>
      isAgainst || index > 0 ? {} : limits;
    comparisons.push(
      compareRates(`${name}, ${CLIENTS} clients`, figures, target({ min: one.targets.rate })),
    );
    if (index === 0 && one.targets.p99 !== undefined) {
      comparisons.push(
        compareP99(`${name}, ${CLIENTS} clients`, figures, target({ max: one.targets.p99 })),
      );
    }
    if (isAgainst) comparisons.push(...compareCpu(`${name}, ${CLIENTS} clients`, figures));
    tables.push({ heading: `${name}, ${CLIENTS} clients`, figures, caveat: one.caveat });
    if (index > 0 || isAgainst) continue;

    if (one.targets.single !== undefined) {
      const single = count(await measureRounds({ ...bench, warmUp: 0 }, 1, subjects));
      comparisons.push(compareRates(`${name}, 1 client`, single, { min: one.targets.single }));
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

async function prepareAll(bench: Bench, one: LoadCase, targets: readonly Target[], bytes: number) {
  const subjects = [];
  for (const target of targets) {
    subjects.push({ ...target, replay: await one.prepare(bench, target, bytes) });
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
