/** Whether a process keeps its speed: the rate after 2,000,000 requests, compared with its first minute. */
import { prepareSessions } from './bearer.ts';
import { type Bench, measure, type Measurement, type Report } from './compare.ts';
import { startServices } from './service.ts';

const REQUESTS = 2_000_000;
const NAME = 'bearer check after 2,000,000 requests';

export async function steady(bench: Bench): Promise<Report> {
  if (!bench.isLong) return { comparisons: [], figures: [], remarks: [`${NAME}: not measured (needs --long)`] };
  const service = await startServices(['identity'], bench.postgres.url);
  const subject = { name: 'gatehouse', service, replay: await prepareSessions(bench) };
  let answered = 0;
  const measureTenSeconds = async (): Promise<Measurement> => {
    const { requests, measurement } = await measure(bench, 64, 10, subject);
    answered += requests;
    return measurement;
  };
  const measureMinute = async (): Promise<Measurement[]> => {
    const measurements: Measurement[] = [];
    for (let part = 0; part < 6; part += 1) measurements.push(await measureTenSeconds());
    return measurements;
  };
  // No warm-up: the first minute counts.
  const first = await measureMinute();
  while (answered < REQUESTS) await measureTenSeconds();
  const last = await measureMinute();
  const firstRate = first.reduce((sum, { rate }) => sum + rate, 0) / first.length;
  const values = last.map(({ rate }) => rate / firstRate);
  const figures = [
    { name: 'the first minute', measurements: first, requests: 0 },
    { name: `after ${REQUESTS} requests`, measurements: last, requests: 0 },
  ];
  return {
    comparisons: [{ name: NAME, comparedWith: 'its own first minute', values, unit: 'times', min: 0.95 }],
    figures: [['bearer check over a long time, 64 clients, six measurements of 10 s each', figures]],
  };
}
