/** Memory that load adds to the three services in one process, by default and with a smaller young generation. */
import { setTimeout as sleep } from 'node:timers/promises';
import { prepareSessions } from './bearer.ts';
import { type Bench, type Comparison, type Figures, measure, type Report } from './compare.ts';
import { startServices } from './service.ts';
import { memoryMiB } from './usage.ts';

const SMALLER = '--max-semi-space-size=8';
const VARIANTS = [{ name: 'gatehouse, three services', options: '' }, { name: `with ${SMALLER}`, options: SMALLER }];

export async function memory(bench: Bench): Promise<Report> {
  const subjects = VARIANTS.map(({ name, options }) => {
    const figures: Figures = { name, measurements: [], requests: 0 };
    const added: number[] = [];
    return { name, options, figures, added };
  });
  for (let round = 1; round <= (bench.isQuick ? 1 : bench.rounds); round += 1) {
    for (const { name, options, figures, added } of subjects) {
      const environment: Record<string, string> = options === '' ? {} : { NODE_OPTIONS: options };
      const service = await startServices(['identity', 'secrets', 'webhook'], bench.postgres.url, environment);
      const replay = await prepareSessions(bench);
      await sleep(bench.isQuick ? 1_000 : 3_000);
      const idle = memoryMiB(service.processId);
      const { measurement } = await measure(bench, 64, 2 * bench.seconds, { name, service, replay });
      figures.measurements.push(measurement);
      if (idle !== null && measurement.memory !== null) added.push(measurement.memory - idle);
      await service.stop();
    }
  }
  const comparisons = subjects.map(({ options, added }): Comparison => {
    const name = `memory at 64 clients${options === '' ? '' : `, NODE_OPTIONS=${options}`}`;
    return { name, comparedWith: 'the same process idle', values: added, unit: 'MiB more', max: 50 };
  });
  return {
    comparisons,
    figures: [['bearer check in a newly started process, 64 clients', subjects.map(({ figures }) => figures)]],
  };
}
