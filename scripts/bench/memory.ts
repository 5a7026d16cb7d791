/**
 * Memory that load adds to the three services in one process, by default and with a smaller young
 * generation.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { prepareSessions } from './bearer.ts';
import { THIS } from './builds.ts';
import type { Comparison, Report } from './compare.ts';
import { type Bench, type Figures, measure, openDatabase } from './measure.ts';
import { startServices } from './service.ts';
import { idleMsOf } from './start.ts';
import { memoryMiB } from './usage.ts';

const SMALLER = '--max-semi-space-size=8';

export async function memory(bench: Bench): Promise<Report> {
  const isAgainst = bench.builds.length > 1;
  const variants = bench.builds.map((build) => ({
    build,
    name: `${build.name}, three services`,
    options: '',
  }));
  if (!isAgainst) variants.push({ build: THIS, name: `with ${SMALLER}`, options: SMALLER });
  const subjects = await Promise.all(
    variants.map(async (variant) => {
      const figures: Figures = { name: variant.name, role: 'ours', measurements: [], requests: 0 };
      const added: number[] = [];
      return { ...variant, ...(await openDatabase(bench)), figures, added };
    }),
  );
  for (let round = 1; round <= (bench.isQuick ? 1 : 3); round += 1) {
    for (const { build, name, options, url, sql, figures, added } of subjects) {
      const environment: Record<string, string> = options === '' ? {} : { NODE_OPTIONS: options };
      const service = await startServices(
        ['identity', 'secrets', 'webhook'],
        url,
        environment,
        build,
      );
      const replay = await prepareSessions(sql, bench.directory);
      await sleep(idleMsOf(bench));
      const idle = memoryMiB(service.processId);
      const { measurement } = await measure(bench, 64, 2 * bench.seconds, {
        name,
        service,
        replay,
      });
      figures.measurements.push(measurement);
      if (idle !== null && measurement.memory !== null) added.push(measurement.memory - idle);
      await service.stop();
    }
  }
  const comparisons = subjects.map(({ name, added }): Comparison => {
    const target = isAgainst ? {} : { max: 45 };
    return {
      name: `memory at 64 clients, ${name}`,
      comparedWith: 'the same process idle',
      values: added,
      unit: 'MiB more',
      noise: [],
      ...target,
    };
  });
  return {
    comparisons,
    tables: [
      {
        heading: 'bearer check in a newly started process, 64 clients',
        figures: subjects.map(({ figures }) => figures),
        caveat:
          'The first seconds of a process, before all of it is compiled. It does not say what the rate is later.',
      },
    ],
  };
}
