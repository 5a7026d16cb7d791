/**
 * Whether a process keeps its speed: the rate after 2,000,000 requests, compared with its first
 * minute.
 */
import { prepareSessions } from './bearer.ts';
import type { Report } from './compare.ts';
import { type Bench, type Figures, measure, type Measurement, openDatabase } from './measure.ts';
import { startServices } from './service.ts';

const REQUESTS = 2_000_000;
const NAME = 'bearer check after 2,000,000 requests';

export async function steady(bench: Bench): Promise<Report> {
  const { url, sql } = await openDatabase(bench);
  const service = await startServices(['identity'], url);
  const subject = {
    name: 'gatehouse',
    service,
    replay: await prepareSessions(sql, bench.directory),
  };
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
  const figures: Figures[] = [
    { name: 'the first minute', role: 'ours', measurements: first, requests: 0 },
    { name: `after ${REQUESTS} requests`, role: 'ours', measurements: last, requests: 0 },
  ];
  return {
    comparisons: [
      {
        name: NAME,
        comparedWith: 'its own first minute',
        values,
        unit: 'times',
        min: 0.95,
        noise: [],
      },
    ],
    tables: [
      {
        heading: 'bearer check over a long time, 64 clients, six measurements of 10 s each',
        figures,
        caveat: 'Two minutes apart, other load on the machine counts as much as the process.',
      },
    ],
  };
}
