/**
 * A discrete-event model of replicas that share one PostgreSQL. Clients wait for their reply before
 * they send again. A replica has one core. It gathers calls into shared statements, as
 * src/db/share-statement.ts does. PostgreSQL has several cores; commits share a flush to disk.
 */

/** Costs in microseconds of CPU time. */
export interface Costs {
  readonly name: string;
  /** Of a statement, whatever its size, and of each call in it. */
  readonly serverStatement: number;
  readonly serverCall: number;
  readonly databaseStatement: number;
  readonly databaseCall: number;
  /** Of the load generator, where it shares the cores. */
  readonly clientCall: number;
  readonly commits: boolean;
}

export interface Machines {
  readonly replicas: number;
  readonly clientsPerReplica: number;
  readonly databaseCores: number;
  /** Everything shares these cores, as on the machine of the benchmark. Null: nothing is shared. */
  readonly sharedCores: number | null;
  readonly roundTripMicros: number;
  readonly flushMicros: number;
  /** Shared statements of a replica at a time, and calls in each. */
  readonly statementsUnderWay: number;
  readonly callsPerStatement: number;
}

export interface Outcome {
  readonly rate: number;
  readonly p99Ms: number;
  readonly callsPerStatement: number;
  /** Busy share of the time. */
  readonly replicas: number;
  readonly database: number;
  readonly flush: number;
}

type Action = () => void;

/** A heap by time. Entries at one time keep their order. */
function createClock() {
  const heap: Array<{ time: number; order: number; action: Action }> = [];
  let now = 0;
  let count = 0;
  const isBefore = (one: number, other: number) => {
    const a = heap[one];
    const b = heap[other];
    return (
      a !== undefined &&
      b !== undefined &&
      (a.time < b.time || (a.time === b.time && a.order < b.order))
    );
  };
  const swap = (one: number, other: number) => {
    const a = heap[one];
    const b = heap[other];
    if (!a || !b) return;
    heap[one] = b;
    heap[other] = a;
  };
  return {
    now: () => now,
    at(delay: number, action: Action): void {
      count += 1;
      heap.push({ time: now + delay, order: count, action });
      for (let child = heap.length - 1; child > 0;) {
        const parent = (child - 1) >> 1;
        if (!isBefore(child, parent)) break;
        swap(child, parent);
        child = parent;
      }
    },
    /** Does what comes next. */
    step(): void {
      const first = heap[0];
      const last = heap.pop();
      if (!first || !last) throw new Error('nothing happens any more');
      if (heap.length > 0) heap[0] = last;
      for (let parent = 0; ;) {
        const left = 2 * parent + 1;
        const right = 2 * parent + 2;
        const child = isBefore(right, left) ? right : left;
        if (!isBefore(child, parent)) break;
        swap(child, parent);
        parent = child;
      }
      now = first.time;
      first.action();
    },
  };
}

type Clock = ReturnType<typeof createClock>;

/** Cores that take one piece of work after the other, in the order of arrival. */
function createCores(clock: Clock, cores: number) {
  const waiting: Array<readonly [micros: number, done: Action]> = [];
  let free = cores;
  let busyMicros = 0;
  function run(micros: number, done: Action): void {
    if (free === 0) {
      waiting.push([micros, done]);
      return;
    }
    free -= 1;
    busyMicros += micros;
    clock.at(micros, () => {
      free += 1;
      const next = waiting.shift();
      if (next) run(...next);
      done();
    });
  }
  return { run, busyMicros: () => busyMicros, cores };
}

/** A flush covers every commit that waits when it begins. */
function createDisk(clock: Clock, flushMicros: number) {
  let waiting: Action[] = [];
  let isBusy = false;
  let busyMicros = 0;
  function flush(): void {
    const covered = waiting;
    waiting = [];
    isBusy = covered.length > 0;
    if (!isBusy) return;
    busyMicros += flushMicros;
    clock.at(flushMicros, () => {
      for (const done of covered) done();
      flush();
    });
  }
  return {
    commit(done: Action): void {
      waiting.push(done);
      if (!isBusy) flush();
    },
    busyMicros: () => busyMicros,
  };
}

/** What the replicas share, and what they have counted. */
interface Simulation {
  readonly costs: Costs;
  readonly machines: Machines;
  readonly clock: Clock;
  readonly database: ReturnType<typeof createCores>;
  readonly disk: ReturnType<typeof createDisk>;
  latencies: number[];
  statements: number;
  calls: number;
}

/** Sends the calls that wait to the database, a statement for several. @returns what adds a call */
function createSender(simulation: Simulation, server: ReturnType<typeof createCores>) {
  const { costs, machines, clock, database, disk } = simulation;
  const half = machines.roundTripMicros / 2;
  let waiting: Action[] = [];
  let underWay = 0;

  function execute(taken: readonly Action[]): void {
    const answer = () => {
      clock.at(half, () => {
        underWay -= 1;
        for (const done of taken) done();
        send();
      });
    };
    const finish = () => {
      if (costs.commits) disk.commit(answer);
      else answer();
    };
    const micros = costs.databaseStatement + taken.length * costs.databaseCall;
    clock.at(half, () => database.run(micros, finish));
  }

  function send(): void {
    if (underWay >= machines.statementsUnderWay || waiting.length === 0) return;
    underWay += 1;
    server.run(costs.serverStatement, () => {
      const taken = waiting.slice(0, machines.callsPerStatement);
      waiting = waiting.slice(machines.callsPerStatement);
      simulation.statements += 1;
      simulation.calls += taken.length;
      execute(taken);
    });
  }

  return (reply: Action): void => {
    waiting.push(reply);
    send();
  };
}

/** Clients that send the next call when the reply to the last one arrives. */
function startClients(
  simulation: Simulation,
  server: ReturnType<typeof createCores>,
  shared: ReturnType<typeof createCores> | null,
): void {
  const { costs, machines, clock } = simulation;
  const send = createSender(simulation, server);
  const call = () => {
    const sentAt = clock.now();
    const reply = () => {
      simulation.latencies.push(clock.now() - sentAt);
      call();
    };
    const arrive = () => server.run(costs.serverCall, () => send(reply));
    if (shared) shared.run(costs.clientCall, arrive);
    else arrive();
  };
  for (let client = 0; client < machines.clientsPerReplica; client += 1) clock.at(client, call);
}

/** Measures so many replies for each client, after half as many to warm up. */
export function simulate(costs: Costs, machines: Machines, repliesPerClient = 30): Outcome {
  const clock = createClock();
  const shared = machines.sharedCores === null ? null : createCores(clock, machines.sharedCores);
  const database = shared ?? createCores(clock, machines.databaseCores);
  const disk = createDisk(clock, machines.flushMicros);
  const servers = Array.from({ length: machines.replicas }, () => shared ?? createCores(clock, 1));
  const counted = { latencies: [], statements: 0, calls: 0 };
  const simulation: Simulation = { costs, machines, clock, database, disk, ...counted };
  for (const server of servers) startClients(simulation, server, shared);

  const used = () => ({
    servers: servers.reduce((sum, server) => sum + server.busyMicros(), 0),
    database: database.busyMicros(),
    disk: disk.busyMicros(),
  });
  const wanted = machines.replicas * machines.clientsPerReplica * repliesPerClient;
  while (simulation.latencies.length < wanted / 2) clock.step();
  simulation.latencies = [];
  simulation.statements = 0;
  simulation.calls = 0;
  const before = used();
  const startedAt = clock.now();
  while (simulation.latencies.length < wanted) clock.step();
  const after = used();
  const micros = clock.now() - startedAt;
  // Work counts when it begins, so that the last of it may exceed the time.
  const share = (busy: number, cores: number) => Math.min(1, busy / micros / cores);
  const sorted = Float64Array.from(simulation.latencies).sort();
  return {
    rate: (sorted.length / micros) * 1_000_000,
    p99Ms: (sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN) / 1_000,
    callsPerStatement: simulation.calls / simulation.statements,
    replicas: share(after.servers - before.servers, machines.replicas),
    database: share(after.database - before.database, database.cores),
    flush: share(after.disk - before.disk, 1),
  };
}
