/**
 * `make bench-flood`: what `GET /api/test/` takes while 64 clients try wrong passwords, in turn with the same in quiet,
 * on this machine, now. Ratios first, because absolute figures are the machine's. The clients run in a process of their
 * own, so that they do not hold up the one who measures, though all share the processors.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, startPostgres } from '../postgres.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import type { Orders, Rates } from './flood-clients.ts';
import { createClient, median, type Service, spread, startIdentity } from './service.ts';

const ROUNDS = 5;
const SECONDS = 6;
const CLIENTS = 64;
const PASSWORD = 'for measuring only';

const FLOODS: ReadonlyArray<{ readonly name: string; readonly names: Orders['names'] }> = [
  { name: 'one account', names: 'one' },
  { name: 'ever new names', names: 'new' },
];

interface Figures {
  readonly ms: number[];
  readonly slowMs: number[];
  readonly ratio: number[];
  readonly perSecond: Rates[];
  mostMiB: number;
}

/** Memory of the service in MiB, now (VmRSS) or the most there ever was (VmHWM). Linux tells it in /proc. */
function residentMiB({ processId }: Service, which: 'VmRSS' | 'VmHWM'): number {
  const status = readFileSync(`/proc/${processId}/status`, 'utf8');
  return Number(status.split('\n').find((line) => line.startsWith(which))?.match(/\d+/)?.[0]) / 1024;
}

/** One client, one request after the other, for a while. @returns how long each took */
async function measure(client: ReturnType<typeof createClient>, token: string, seconds: number): Promise<number[]> {
  const times: number[] = [];
  for (const end = performance.now() + seconds * 1_000; performance.now() < end; ) {
    const { status, text, ms } = await client.ask('GET', '/api/test/', { authorization: `Bearer ${token}` });
    if (status !== 200 || JSON.parse(text).data?.user?.username !== 'admin') throw new Error(`${status}: ${text}`);
    times.push(ms);
  }
  return times;
}

/** Runs some work during a flood that has been on for a second. @returns how often each status came, per second */
async function during(orders: Orders, work: () => Promise<void>): Promise<Rates> {
  const clients = fork(join(import.meta.dirname, 'flood-clients.ts'), { execArgv: ['--import', 'tsx'] });
  const ended = once(clients, 'exit');
  try {
    clients.send(orders);
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

async function sampled<T>(service: Service, figures: Figures, work: () => Promise<T>): Promise<T> {
  const timer = setInterval(() => (figures.mostMiB = Math.max(figures.mostMiB, residentMiB(service, 'VmRSS'))), 50);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

const directory = makeTemporary(tmpdir(), 'gatehouse-bench');
const postgres = await startPostgres({ directory: join(directory, 'state'), durable: true });
const sql = connect(postgres.url);
let service: Service | undefined;
try {
  const identity = (service = await startIdentity(postgres.url, { ADMIN_PASSWORD: PASSWORD }));
  const client = createClient(identity);
  const login = await client.ask('POST', '/api/auth/login', {}, JSON.stringify({ username: 'admin', password: PASSWORD }));
  const token: string = JSON.parse(login.text).data.session;
  await measure(client, token, 3);

  const create = (): Figures => ({ ms: [], slowMs: [], ratio: [], perSecond: [], mostMiB: 0 });
  const quiet = create();
  const floods = FLOODS.map((flood) => ({ ...flood, figures: create() }));
  const note = (figures: Figures, times: number[]) => {
    figures.ms.push(median(times));
    figures.slowMs.push([...times].sort((one, other) => one - other)[Math.floor(times.length * 0.99)] ?? Number.NaN);
  };
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const { names, figures } of floods) {
      await sampled(identity, quiet, async () => note(quiet, await measure(client, token, SECONDS)));
      // Each flood begins with nothing counted against it: while passwords are hashed, it costs the most.
      await sql`delete from identity.throttles`;
      const perSecond = await during({ port: identity.port, clients: CLIENTS, names }, () =>
        sampled(identity, figures, async () => note(figures, await measure(client, token, SECONDS))),
      );
      figures.perSecond.push(perSecond);
      figures.ratio.push((figures.ms.at(-1) ?? Number.NaN) / (quiet.ms.at(-1) ?? Number.NaN));
      // What the flood has left to be hashed shall not disturb the quiet.
      await sleep(3_000);
    }
  }
  console.log(`Node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} processors, ${CLIENTS} clients, ${ROUNDS} rounds in turn; median (least to most)`);
  for (const { name, figures } of floods) console.log(`median of GET /api/test/, ${name} / quiet: ${spread(figures.ratio)} times`);
  console.log(`most memory of the service since its start: ${residentMiB(identity, 'VmHWM').toFixed(0)} MiB`);
  console.log(`quiet: median ${spread(quiet.ms)} ms, 99 of 100 within ${spread(quiet.slowMs)} ms; most memory ${quiet.mostMiB.toFixed(0)} MiB`);
  for (const { name, figures } of floods) {
    const statuses = [...new Set(figures.perSecond.flatMap((rates) => Object.keys(rates)))].sort();
    const rates = statuses.map((status) => `${status}: ${spread(figures.perSecond.map((rates) => rates[status] ?? 0))}`);
    console.log(`${name}: median ${spread(figures.ms)} ms, 99 of 100 within ${spread(figures.slowMs)} ms; most memory ${figures.mostMiB.toFixed(0)} MiB; answers a second ${rates.join(', ')}`);
  }
  client.close();
} finally {
  await service?.stop();
  await sql.end();
  await postgres.stop();
  removeTemporary(directory);
}
