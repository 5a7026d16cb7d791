/**
 * Memory of the three services in one process: idle, compared with node:http alone, and under load,
 * by default and with a smaller young generation.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { prepareSessions } from './bearer.ts';
import { THIS } from './builds.ts';
import { type Comparison, type Report, tableOf } from './compare.ts';
import { type Bench, type Figures, measure, openDatabase } from './measure.ts';
import { type Environment, type ServiceName, startProgram, startServices } from './service.ts';
import { memoryMiB } from './usage.ts';

const SERVICES: readonly ServiceName[] = ['identity', 'secrets', 'webhook'];
const SMALLER = '--max-semi-space-size=8';
const CLIENTS = 64;

/** After 8 s without work, V8 collects the garbage of the start. */
const idleMsOf = ({ isQuick }: Bench): number => (isQuick ? 1_000 : 15_000);

async function measureBare(bench: Bench): Promise<number | null> {
  const script = join(import.meta.dirname, 'receiver.mjs');
  const bare = await startProgram([script], ['receiver'], {});
  await sleep(idleMsOf(bench));
  const idle = memoryMiB(bare.processId);
  await bare.stop();
  return idle;
}

async function openSubjects(bench: Bench) {
  const none: Environment = {};
  const variants = bench.builds.map((build) => ({
    build,
    name: `${build.name}, three services`,
    environment: none,
  }));
  if (bench.builds.length === 1) {
    const environment: Environment = { NODE_OPTIONS: SMALLER };
    variants.push({ build: THIS, name: `with ${SMALLER}`, environment });
  }
  return Promise.all(
    variants.map(async (variant) => {
      const figures: Figures = { name: variant.name, role: 'ours', measurements: [], requests: 0 };
      const beyondBare: number[] = [];
      const beyondIdle: number[] = [];
      return { ...variant, ...(await openDatabase(bench)), figures, beyondBare, beyondIdle };
    }),
  );
}

type Subject = Awaited<ReturnType<typeof openSubjects>>[number];

/** Measures a new process. */
async function measureOnce(bench: Bench, subject: Subject): Promise<void> {
  const { build, name, environment, url, sql, figures } = subject;
  const bare = await measureBare(bench);
  const service = await startServices(SERVICES, url, environment, build);
  const replay = await prepareSessions(sql, bench.directory);
  await sleep(idleMsOf(bench));
  const idle = memoryMiB(service.processId);
  const seconds = 2 * bench.seconds;
  const { measurement } = await measure(bench, CLIENTS, seconds, { name, service, replay });
  await service.stop();
  figures.measurements.push(measurement);
  if (bare === null || idle === null || measurement.memory === null) return;
  subject.beyondBare.push(idle - bare);
  subject.beyondIdle.push(measurement.memory - idle);
}

export async function memory(bench: Bench): Promise<Report> {
  const isAgainst = bench.builds.length > 1;
  const subjects = await openSubjects(bench);
  for (let round = 1; round <= (bench.isQuick ? 1 : 3); round += 1) {
    for (const subject of subjects) await measureOnce(bench, subject);
  }
  const comparisons = subjects.flatMap(({ name, beyondBare, beyondIdle }): Comparison[] => [
    {
      name: `idle memory, ${name}`,
      comparedWith: 'bare node:http',
      values: beyondBare,
      unit: 'MiB more',
      noise: [],
      ...(isAgainst ? {} : { max: 12 }),
    },
    {
      name: `memory at ${CLIENTS} clients, ${name}`,
      comparedWith: 'the same process idle',
      values: beyondIdle,
      unit: 'MiB more',
      noise: [],
      ...(isAgainst ? {} : { max: 45 }),
    },
  ]);
  const table = tableOf(
    `bearer check in a newly started process, ${CLIENTS} clients`,
    subjects.map(({ figures }) => figures),
    'The first seconds of a process, before all of it is compiled. Not measured: the rate later.',
  );
  return { comparisons, tables: [table] };
}
