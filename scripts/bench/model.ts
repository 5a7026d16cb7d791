/**
 * A discrete-event model of replicas that share one PostgreSQL. Clients wait for their reply before they send again. A
 * replica has one core. It gathers calls into shared statements, as src/db/batch.ts does. PostgreSQL has several cores;
 * commits share a flush to disk.
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
  let [now, count] = [0, 0];
  const isBefore = (one: number, other: number) => {
    const [a, b] = [heap[one], heap[other]];
    return (
      a !== undefined &&
      b !== undefined &&
      (a.time < b.time || (a.time === b.time && a.order < b.order))
    );
  };
  const swap = (one: number, other: number) => {
    const [a, b] = [heap[one], heap[other]];
    if (a && b) [heap[one], heap[other]] = [b, a];
  };
  return {
    now: () => now,
    at(delay: number, action: Action): void {
      heap.push({ time: now + delay, order: (count += 1), action });
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
        const [left, right] = [2 * parent + 1, 2 * parent + 2];
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
  let [free, busyMicros] = [cores, 0];
  function run(micros: number, done: Action): void {
    if (free === 0) return void waiting.push([micros, done]);
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
  let [isBusy, busyMicros] = [false, 0];
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

/** Measures so many replies for each client, after half as many to warm up. */
export function simulate(costs: Costs, machines: Machines, repliesPerClient = 30): Outcome {
  const clock = createClock();
  const shared = machines.sharedCores === null ? null : createCores(clock, machines.sharedCores);
  const database = shared ?? createCores(clock, machines.databaseCores);
  const disk = createDisk(clock, machines.flushMicros);
  const servers = Array.from({ length: machines.replicas }, () => shared ?? createCores(clock, 1));
  let latencies: number[] = [];
  let [statements, calls] = [0, 0];
  const half = machines.roundTripMicros / 2;

  for (const server of servers) {
    let waiting: Action[] = [];
    let underWay = 0;
    const sendStatement = () => {
      if (underWay >= machines.statementsUnderWay || waiting.length === 0) return;
      underWay += 1;
      server.run(costs.serverStatement, () => {
        const taken = waiting.slice(0, machines.callsPerStatement);
        waiting = waiting.slice(machines.callsPerStatement);
        statements += 1;
        calls += taken.length;
        const answer = () =>
          clock.at(half, () => {
            underWay -= 1;
            for (const done of taken) done();
            sendStatement();
          });
        const micros = costs.databaseStatement + taken.length * costs.databaseCall;
        clock.at(half, () =>
          database.run(micros, () => (costs.commits ? disk.commit(answer) : answer())),
        );
      });
    };
    const call = () => {
      const sentAt = clock.now();
      const reply = () => {
        latencies.push(clock.now() - sentAt);
        call();
      };
      const arrive = () =>
        server.run(costs.serverCall, () => {
          waiting.push(reply);
          sendStatement();
        });
      if (shared) shared.run(costs.clientCall, arrive);
      else arrive();
    };
    for (let client = 0; client < machines.clientsPerReplica; client += 1) clock.at(client, call);
  }

  const used = () => ({
    servers: servers.reduce((sum, server) => sum + server.busyMicros(), 0),
    database: database.busyMicros(),
    disk: disk.busyMicros(),
  });
  const wanted = machines.replicas * machines.clientsPerReplica * repliesPerClient;
  while (latencies.length < wanted / 2) clock.step();
  latencies = [];
  [statements, calls] = [0, 0];
  const [before, startedAt] = [used(), clock.now()];
  while (latencies.length < wanted) clock.step();
  const [after, micros] = [used(), clock.now() - startedAt];
  // Work counts when it begins, so that the last of it may exceed the time.
  const share = (busy: number, cores: number) => Math.min(1, busy / micros / cores);
  const sorted = Float64Array.from(latencies).sort();
  return {
    rate: (sorted.length / micros) * 1_000_000,
    p99Ms: (sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN) / 1_000,
    callsPerStatement: calls / statements,
    replicas: share(after.servers - before.servers, machines.replicas),
    database: share(after.database - before.database, database.cores),
    flush: share(after.disk - before.disk, 1),
  };
}
