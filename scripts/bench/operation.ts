/** Measures one operation against the baselines or another build, by what is sent. */
import { compare, type Comparison, type Report, type Table, tableOf } from './compare.ts';
import type { Replay } from './load.ts';
import { type Bench, type Figures, measureLoad, openTargets } from './measure.ts';
import type { Operation, Target } from './measure.ts';

const CLIENTS = 64;

/** What is sent. */
export interface Variant {
  /** Such as the size of the body. Empty if there is one variant. */
  readonly name: string;
  /**
   * At CLIENTS: least ratio of the rate, highest of the CPU time of server and PostgreSQL together,
   * the same beside the floor, and highest of p99.
   */
  readonly targets?: Readonly<Partial<Record<'rate' | 'cpu' | 'cpuBesideFloor' | 'p99', number>>>;
  /** Fills the server's database. */
  prepare(bench: Bench, target: Target): Promise<Replay>;
}

export interface LoadCase extends Operation {
  readonly caveat: string;
  readonly variants: readonly Variant[];
  /** Whether the first variant is also measured with one client. */
  readonly hasSingle?: true;
}

export interface Answered {
  readonly target: Target;
  readonly requests: number;
}

/** @param check runs at the end, with the requests that each target has answered */
export async function measureCase(
  bench: Bench,
  one: LoadCase,
  check: (answered: readonly Answered[]) => Promise<void> = async () => {},
): Promise<Report> {
  const targets = await openTargets(bench, one);
  const comparisons: Comparison[] = [];
  const tables: Table[] = [];
  const all: Figures[] = [];
  const isAgainst = bench.builds.length > 1;
  const variants = bench.isQuick ? one.variants.slice(0, 1) : one.variants;
  for (const [index, variant] of variants.entries()) {
    const subjects = [];
    for (const target of targets) {
      subjects.push({ ...target, replay: await variant.prepare(bench, target) });
    }
    // The code is compiled after the first variant.
    const pace = { ...bench, warmUp: index === 0 ? bench.warmUp : 1 };
    const name = variant.name === '' ? one.name : `${one.name}, ${variant.name}`;
    const heading = `${name}, ${CLIENTS} clients`;
    const figures = await measureLoad(pace, CLIENTS, subjects);
    all.push(...figures);
    tables.push(tableOf(heading, figures, one.caveat));
    comparisons.push(...compareVariant(heading, figures, isAgainst ? null : variant));
    if (index > 0 || isAgainst || !one.hasSingle) continue;

    const single = await measureLoad({ ...bench, warmUp: 1 }, 1, subjects);
    all.push(...single);
    comparisons.push(...compare(`${name}, 1 client`, 'rate', single));
    const caveat =
      'With one request at a time, no statement is shared. Not measured: what the server can do.';
    tables.push(tableOf(`${name}, 1 client`, single, caveat));
  }
  const requestsOf = (target: Target) =>
    all.filter(({ name }) => name === target.name).reduce((sum, { requests }) => sum + requests, 0);
  await check(targets.map((target) => ({ target, requests: requestsOf(target) })));
  return { comparisons, tables };
}

/** @param variant null if two builds are compared */
function compareVariant(name: string, figures: readonly Figures[], variant: Variant | null) {
  const { rate, cpu, cpuBesideFloor, p99 } = variant?.targets ?? {};
  const comparisons = [
    ...compare(name, 'rate', figures, { min: rate }),
    ...compare(name, 'CPU', figures, { max: cpu }),
  ];
  if (cpuBesideFloor !== undefined)
    comparisons.push(...compare(name, 'CPU', figures, { max: cpuBesideFloor }, ['floor']));
  if (p99 !== undefined) comparisons.push(...compare(name, 'p99', figures, { max: p99 }));
  if (variant === null) {
    comparisons.push(...compare(name, 'server CPU', figures));
    comparisons.push(...compare(name, 'PostgreSQL CPU', figures));
  }
  return comparisons;
}
