/**
 * `make bench PART=flood`: latency of `GET /api/test/` while 64 clients try wrong passwords, in
 * alternation with the same without them. The clients run in a child process, so that they do not
 * delay the measuring client, but all share the processors.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../postgres.ts';
import { withPostgres } from './database.ts';
import type { FloodOptions, Rates } from './flood-clients.ts';
import {
  type Client,
  createClient,
  median,
  PASSWORD,
  percentile,
  spread,
  startServices,
  stopAll,
} from './service.ts';
import { memoryMiB } from './usage.ts';

const ROUNDS = 5;
const SECONDS = 6;
const CLIENTS = 64;

const FLOODS: ReadonlyArray<{ readonly name: string; readonly names: FloodOptions['names'] }> = [
  { name: 'one account', names: 'one' },
  { name: 'new names', names: 'new' },
];

interface Figures {
  readonly medians: number[];
  readonly p99s: number[];
  /** Median during the flood divided by the median before it. */
  readonly ratios: number[];
  readonly rates: Rates[];
  peakMiB: number;
}

const createFigures = (): Figures => ({ medians: [], p99s: [], ratios: [], rates: [], peakMiB: 0 });
const summaryOf = ({ medians, p99s, peakMiB }: Figures) =>
  `median ${spread(medians)} ms, p99 ${spread(p99s)} ms, peak memory ${peakMiB.toFixed(0)} MiB`;

/** Sends one request after the other. @returns their latencies in milliseconds */
async function measureLatencies(client: Client, token: string, seconds: number): Promise<number[]> {
  const times: number[] = [];
  for (const end = performance.now() + seconds * 1_000; performance.now() < end;) {
    const { status, text, ms } = await client.send('GET', '/api/test/', {
      authorization: `Bearer ${token}`,
    });
    if (status !== 200 || JSON.parse(text).data?.user?.username !== 'admin')
      throw new Error(`${status}: ${text}`);
    times.push(ms);
  }
  return times;
}

/** Starts a flood, and runs some work one second later. */
async function duringFlood(options: FloodOptions, work: () => Promise<void>): Promise<Rates> {
  const clients = fork(join(import.meta.dirname, 'flood-clients.ts'), {
    execArgv: ['--import', 'tsx'],
  });
  const ended = once(clients, 'exit');
  try {
    clients.send(options);
    await once(clients, 'message');
    await sleep(1_000);
    await work();
    clients.send('stop');
    const [rates]: Rates[] = await once(clients, 'message');
    await ended;
    return rates ?? {};
  } finally {
    clients.kill();
  }
}

await withPostgres(async (postgres) => {
  const sql = connect(postgres.url);
  try {
    const service = await startServices(['identity'], postgres.url);
    const client = createClient(service);
    const credentials = JSON.stringify({ username: 'admin', password: PASSWORD });
    const login = await client.send('POST', '/api/auth/login', {}, credentials);
    const token: string = JSON.parse(login.text).data.session;
    await measureLatencies(client, token, 3);

    const measure = async (figures: Figures): Promise<void> => {
      const sample = () => {
        figures.peakMiB = Math.max(figures.peakMiB, memoryMiB(service.processId) ?? Number.NaN);
      };
      const sampler = setInterval(sample, 50);
      const times = await measureLatencies(client, token, SECONDS).finally(() =>
        clearInterval(sampler),
      );
      figures.medians.push(median(times));
      figures.p99s.push(percentile(times, 0.99));
    };
    const quiet = createFigures();
    const floods = FLOODS.map((flood) => ({ ...flood, figures: createFigures() }));
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const { names, figures } of floods) {
        await measure(quiet);
        // Each flood starts unthrottled: the load is highest while passwords are hashed.
        await sql`delete from identity.throttles`;
        const options = { port: service.port, clients: CLIENTS, names };
        figures.rates.push(await duringFlood(options, () => measure(figures)));
        figures.ratios.push(
          (figures.medians.at(-1) ?? Number.NaN) / (quiet.medians.at(-1) ?? Number.NaN),
        );
        // Hashes that are still queued must not disturb the next measurement.
        await sleep(3_000);
      }
    }
    const machine = `Node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} processors`;
    console.log(
      `${machine}, ${CLIENTS} clients, ${ROUNDS} rounds in alternation; median (min to max)`,
    );
    for (const { name, figures } of floods) {
      console.log(`median of GET /api/test/, ${name} / quiet: ${spread(figures.ratios)} times`);
    }
    const peak = memoryMiB(service.processId, 'VmHWM') ?? Number.NaN;
    console.log(`peak memory of the service since its start: ${peak.toFixed(0)} MiB`);
    console.log(`quiet: ${summaryOf(quiet)}`);
    for (const { name, figures } of floods) {
      const statuses = [...new Set(figures.rates.flatMap((rates) => Object.keys(rates)))].sort();
      const rates = statuses.map(
        (status) => `${status}: ${spread(figures.rates.map((one) => one[status] ?? 0))}`,
      );
      console.log(`${name}: ${summaryOf(figures)}; replies/s ${rates.join(', ')}`);
    }
    client.close();
  } finally {
    await stopAll();
    await sql.end();
  }
});
