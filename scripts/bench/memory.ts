/** What a load adds to the memory of the three services in one process. */
import { setTimeout as sleep } from 'node:timers/promises';
import { prepareSessions } from './bearer.ts';
import { type Bench, type Figures, type Report, takeTurn } from './compare.ts';
import { startServices } from './service.ts';
import { residentMiB } from './usage.ts';

export async function memory(bench: Bench): Promise<Report> {
  const values: number[] = [];
  const figures: Figures = { name: 'gatehouse, three services', turns: [], answers: 0 };
  for (let round = 1; round <= (bench.isQuick ? 1 : bench.rounds); round += 1) {
    const ours = await startServices(['identity', 'secrets', 'webhook'], bench.postgres.url);
    const replay = await prepareSessions(bench);
    await sleep(bench.isQuick ? 1_000 : 3_000);
    const idle = residentMiB(ours.processId);
    const { turn } = await takeTurn(bench, 64, 3 * bench.seconds, { name: figures.name, service: ours, replay });
    figures.turns.push(turn);
    if (idle !== null && turn.memory !== null) values.push(turn.memory - idle);
    await ours.stop();
  }
  return {
    findings: [{ question: 'memory at 64 clients', against: 'itself idle', values, unit: 'MiB more', most: 50 }],
    figures: [['bearer check in a process that has just been started, 64 clients', [figures]]],
  };
}
