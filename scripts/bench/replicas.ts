/**
 * Replicas of identity on one PostgreSQL: the processor time that a bearer check costs PostgreSQL,
 * by the number of replicas among which the same clients are divided. What the primary carries
 * follows from it: a core of PostgreSQL has a million microseconds in a second.
 */
import { prepareSessions } from './bearer.ts';
import type { Report } from './compare.ts';
import { load, type Replay } from './load.ts';
import { type Bench, type Figures, type Measurement, openDatabase } from './measure.ts';
import { type Service, startServices } from './service.ts';
import { cpuMicros, ownCpuMicros } from './usage.ts';

const CLIENTS = 64;
const COUNTS = [1, 2, 4, 8];
const MOST = Math.max(...COUNTS);

export async function replicas(bench: Bench): Promise<Report> {
  const { url, sql } = await openDatabase(bench);
  const services: Service[] = [];
  while (services.length < MOST) services.push(await startServices(['identity'], url));
  const replay = await prepareSessions(sql, bench.directory);
  const figures = COUNTS.map((count): Figures => ({
    name: count === 1 ? 'one replica' : `${count} replicas`,
    role: 'ours',
    measurements: [],
    requests: 0,
  }));
  // The first round is a warm-up. The order rotates.
  for (let round = 0; round <= bench.rounds; round += 1) {
    for (const position of COUNTS.keys()) {
      const index = (round + position) % COUNTS.length;
      const used = services.slice(0, COUNTS[index]);
      const measurement = await measureTogether(bench, used, replay);
      if (round > 0) figures[index]?.measurements.push(measurement);
    }
  }
  const caveat =
    'All processes share the cores of one machine, so that the rate does not grow with the replicas. The processor time of PostgreSQL is that of a check.';
  return {
    comparisons: [],
    tables: [{ heading: `bearer check, ${CLIENTS} clients together`, figures, caveat }],
  };
}

/** Divides the clients among the services, and adds up what they do. */
async function measureTogether(
  { postgres, sql, seconds }: Bench,
  services: readonly Service[],
  replay: Replay,
): Promise<Measurement> {
  await sql`checkpoint`;
  const sum = (values: ReadonlyArray<number | null>) =>
    values.reduce<number>((total, value) => total + (value ?? 0), 0);
  const servers = () => sum(services.map(({ processId }) => cpuMicros(processId)));
  const cpu = () => [servers(), cpuMicros(postgres.processId), ownCpuMicros(process.pid)] as const;
  const before = cpu();
  const clients = CLIENTS / services.length;
  const results = await Promise.all(
    services.map(({ port }) => load({ name: 'identity', port, clients, seconds, replay })),
  );
  const after = cpu();
  const requests = sum(results.map((one) => one.requests));
  const perRequest = (index: 0 | 1 | 2) => (sum([after[index]]) - sum([before[index]])) / requests;
  return {
    rate: sum(results.map((one) => one.requests / one.seconds)),
    p50: Math.max(...results.map(({ p50 }) => p50)),
    p99: Math.max(...results.map(({ p99 }) => p99)),
    serverCpu: perRequest(0),
    databaseCpu: perRequest(1),
    clientCpu: perRequest(2),
    memory: null,
  };
}
