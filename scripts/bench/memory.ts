/** What a load adds to the memory of the three services in one process, as Node is and with less room for young objects. */
import { setTimeout as sleep } from 'node:timers/promises';
import { prepareSessions } from './bearer.ts';
import { type Bench, type Figures, type Finding, type Report, takeTurn } from './compare.ts';
import { startServices } from './service.ts';
import { residentMiB } from './usage.ts';

const LESS = '--max-semi-space-size=8';

export async function memory(bench: Bench): Promise<Report> {
  const subjects = [{ name: 'gatehouse, three services', options: '' }, { name: `with ${LESS}`, options: LESS }].map(({ name, options }) => {
    const values: number[] = [];
    const figures: Figures = { name, turns: [], answers: 0 };
    return { name, options, values, figures };
  });
  for (let round = 1; round <= (bench.isQuick ? 1 : bench.rounds); round += 1) {
    for (const { name, options, values, figures } of subjects) {
      const ours = await startServices(['identity', 'secrets', 'webhook'], bench.postgres.url, options === '' ? {} : { NODE_OPTIONS: options });
      const replay = await prepareSessions(bench);
      await sleep(bench.isQuick ? 1_000 : 3_000);
      const idle = residentMiB(ours.processId);
      const { turn } = await takeTurn(bench, 64, 2 * bench.seconds, { name, service: ours, replay });
      figures.turns.push(turn);
      if (idle !== null && turn.memory !== null) values.push(turn.memory - idle);
      await ours.stop();
    }
  }
  const findings = subjects.map(({ options, values }): Finding => {
    return { question: `memory at 64 clients${options === '' ? '' : `, NODE_OPTIONS=${options}`}`, against: 'itself idle', values, unit: 'MiB more', most: 50 };
  });
  return { findings, figures: [['bearer check in a process that has just been started, 64 clients', subjects.map(({ figures }) => figures)]] };
}
