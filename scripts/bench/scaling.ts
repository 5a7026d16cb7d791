/**
 * `make bench PART=scaling`: what one, ten and a hundred replicas reach on one PostgreSQL, from the
 * CPU times in `docs/benchmarks.json`. Writes a part of `docs/scaling.md`. `make bench` does the
 * same at its end.
 *
 * A statement that is shared by n calls costs a + b·n. Both follow from the cost of a call with one
 * client, where each has its own statement, and with many, where the model itself says how many
 * share one.
 */
import type { Curve, Point } from './compare.ts';
import { table, writeBlock } from './blocks.ts';
import { type Costs, type Machines, type Outcome, simulate } from './model.ts';
import { type Part, readResults } from './results.ts';

const MANY = 64;
/** As in src/db/share-statement.ts. */
const BATCH = { statementsUnderWay: 2, callsPerStatement: 32 } as const;
/** The machine of the benchmark. */
const ONE_MACHINE: Machines = {
  replicas: 1,
  clientsPerReplica: MANY,
  databaseCores: 2,
  sharedCores: 2,
  roundTripMicros: 0,
  flushMicros: 150,
  ...BATCH,
};
/** A database server in the same data center, with a disk that flushes in a millisecond. */
const DATA_CENTER: Machines = {
  replicas: 1,
  clientsPerReplica: 256,
  databaseCores: 16,
  sharedCores: null,
  roundTripMicros: 500,
  flushMicros: 1_000,
  ...BATCH,
};
/** With few clients each, statements are small, and PostgreSQL does more for each call. */
const FLEETS = [
  [1, 256],
  [10, 256],
  [100, 256],
  [100, 4],
] as const;
/** A process opens so many, by service; docs/scaling.md lists them. */
const connectionsOf = (name: string) => (name.includes('accept') ? 9 : 8);
const WRITES = /accept|encrypt|decrypt/;

interface Measured {
  readonly name: string;
  readonly one: Point;
  readonly many: Point;
}

function measuredOf({ name, lines }: Curve): Measured[] {
  const points = lines.find(({ role }) => role === 'ours')?.points ?? [];
  const at = (clients: number) => points.find((point) => point.clients === clients);
  const one = at(1);
  const many = at(MANY);
  return one && many && one.serverCpu > 0 ? [{ name, one, many }] : [];
}

/** Splits the cost of a call. @param share how many calls share a statement with many clients */
function costsOf({ name, one, many }: Measured, share: number): Costs {
  const split = (single: number, shared: number): readonly [statement: number, call: number] => {
    // Noise may make a shared call the dearer one. Then nothing is gained by sharing.
    const statement = Math.max(0, (single - shared) / (1 - 1 / share));
    return [statement, Math.max(0, shared - statement / share)];
  };
  const [serverStatement, serverCall] = split(one.serverCpu, many.serverCpu);
  const [databaseStatement, databaseCall] = split(one.databaseCpu, many.databaseCpu);
  const clientCall = many.clientCpu;
  return {
    name,
    serverStatement,
    serverCall,
    databaseStatement,
    databaseCall,
    clientCall,
    commits: WRITES.test(name),
  };
}

/** Finds the share of a statement that the model itself has at these costs. */
function fit(measured: Measured): Costs {
  let share = MANY / 2;
  for (let step = 0; step < 5; step += 1) {
    share = Math.max(2, simulate(costsOf(measured, share), ONE_MACHINE).callsPerStatement);
  }
  return costsOf(measured, share);
}

const whole = (value: number) => Math.round(value).toLocaleString('en-US');
const percent = (value: number) => `${Math.round(value * 100)} %`;

function limitOf({ replicas, database, flush }: Outcome): string {
  const cpus = [
    ['replica CPU', replicas],
    ['PostgreSQL CPU', database],
  ] as const;
  const [name, used] = cpus[replicas > database ? 0 : 1];
  if (used > 0.9) return name;
  // The latency of the few statements that a replica has under way bounds its rate. On a busy disk,
  // a commit waits for the flush before its own.
  return flush > 0.9 ? 'latency of the disk' : 'latency of the statements';
}

export function scalingOf(parts: readonly Part[]): string {
  const curves = parts.flatMap(({ report }) => report.curves ?? []);
  const measured = curves.flatMap(measuredOf);
  const costs = measured.map(fit);
  const costRows = measured.map(({ name, one, many }, index) => {
    const model = costs[index];
    if (!model) throw new Error('a cost for each');
    const predicted = simulate(model, ONE_MACHINE).rate;
    const cells = [many.serverCpu, many.databaseCpu, one.serverCpu, one.databaseCpu].map(whole);
    return [name, ...cells, whole(many.rate), `${(predicted / many.rate).toFixed(2)} times`];
  });
  const rows = costs.flatMap((model) =>
    FLEETS.map(([replicas, clientsPerReplica]) => {
      const outcome = simulate(model, { ...DATA_CENTER, replicas, clientsPerReplica });
      const cells = [outcome.replicas, outcome.database, outcome.flush].map(percent);
      const share = outcome.callsPerStatement.toFixed(0);
      return [
        model.name,
        whole(replicas),
        whole(clientsPerReplica),
        whole(outcome.rate),
        ...cells,
        share,
        outcome.p99Ms.toFixed(1),
        limitOf(outcome),
        whole(replicas * connectionsOf(model.name)),
      ];
    }),
  );
  const costHead = [
    'call',
    `server, µs, ${MANY} clients`,
    'PostgreSQL, µs',
    'server, µs, 1 client',
    'PostgreSQL, µs',
    `measured/s, ${MANY} clients`,
    'model compared with it',
  ];
  const head = [
    'call',
    'replicas',
    'clients each',
    'requests/s',
    'replica CPU',
    'PostgreSQL CPU',
    'disk',
    'calls per statement',
    'p99, ms',
    'what saturates first',
    'connections',
  ];
  const { databaseCores, roundTripMicros, flushMicros } = DATA_CENTER;
  const date = parts[0]?.date.slice(0, 10) ?? '';
  return `CPU time per request, as \`make bench\` measured it on ${date}:

${table([costHead, ...costRows])}
With one client, no statement is shared, and a process that waits between two requests costs more
when it wakes up. The last column is the check of the model: its rate on the two cores of that
machine, divided by the measured one. It is far above 1 if other programs used the machine.

The same calls on other machines: each replica has a core, PostgreSQL has ${databaseCores} cores and
is ${roundTripMicros / 1_000} ms away, and its disk flushes in ${flushMicros / 1_000} ms:

${table([head, ...rows])}`;
}

/** Rewrites the part of the document, if the results suffice. @returns whether they do */
export function writeScaling(): boolean {
  const parts = readResults();
  const isComplete = parts.some(({ report }) =>
    (report.curves ?? []).some((curve) => measuredOf(curve).length > 0),
  );
  if (isComplete) writeBlock('docs/scaling.md', 'scaling', scalingOf(parts));
  return isComplete;
}

if (process.argv[1] === import.meta.filename && !writeScaling()) {
  process.stderr.write(
    'docs/benchmarks.json has no CPU times with 1 and 64 clients. Run make bench on Linux first.\n',
  );
  process.exitCode = 1;
}
