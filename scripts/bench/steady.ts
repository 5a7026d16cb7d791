/** Whether a process stays as fast as it was: its rate after 2,000,000 requests against its first minute. Takes minutes. */
import { prepareSessions } from './bearer.ts';
import { type Bench, type Report, takeTurn, type Turn } from './compare.ts';
import { startServices } from './service.ts';

const REQUESTS = 2_000_000;
const QUESTION = 'bearer check after 2,000,000 requests';

export async function steady(bench: Bench): Promise<Report> {
  if (!bench.isLong) return { findings: [], figures: [], remarks: [`${QUESTION}: takes minutes, so it is asked with --long only, and was not asked here`] };
  const ours = await startServices(['identity'], bench.postgres.url);
  const subject = { name: 'gatehouse', service: ours, replay: await prepareSessions(bench) };
  let answered = 0;
  const minute = async (): Promise<Turn[]> => {
    const turns: Turn[] = [];
    for (let part = 0; part < 6; part += 1) {
      const { answers, turn } = await takeTurn(bench, 64, 10, subject);
      answered += answers;
      turns.push(turn);
    }
    return turns;
  };
  // Nothing warms up: the first minute is the first.
  const first = await minute();
  while (answered < REQUESTS) answered += (await takeTurn(bench, 64, 10, subject)).answers;
  const last = await minute();
  const rate = first.reduce((sum, turn) => sum + turn.rate, 0) / first.length;
  return {
    findings: [{ question: QUESTION, against: 'its own first minute', values: last.map((turn) => turn.rate / rate), unit: 'times', least: 0.95 }],
    figures: [['bearer check for a long time, 64 clients, six turns of 10 s each', [{ name: 'the first minute', turns: first, answers: 0 }, { name: `after ${REQUESTS} requests`, turns: last, answers: 0 }]]],
  };
}
