/**
 * Startup time and idle memory of the three services in one process, compared with bare node:http.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { get } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Comparison, Report } from './compare.ts';
import { type Bench, openDatabase } from './measure.ts';
import { SETTINGS, spread } from './service.ts';

interface Figures {
  readonly startMs: number;
  readonly idleMiB: number;
}

interface Subject {
  readonly name: string;
  readonly script: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly port: number;
  /** The path that answers 200 when startup is complete; null if that is the first reply. */
  readonly readyPath: string | null;
}

/** Measures the time from spawn to the first reply, and the resident memory after an idle time. */
async function measure(
  { script, environment, port, readyPath }: Subject,
  idleMs: number,
): Promise<Figures> {
  const env = { PATH: process.env.PATH, ...environment };
  const startedAt = performance.now();
  const child = spawn(process.execPath, script, { env, stdio: ['ignore', 'ignore', 'inherit'] });
  try {
    while (!(await answers(port, '/livez'))) {
      if (child.exitCode !== null)
        throw new Error(`${script.join(' ')} exited with ${child.exitCode}`);
    }
    const startMs = performance.now() - startedAt;
    while (readyPath !== null && !(await answers(port, readyPath))) await sleep(20);
    await sleep(idleMs);
    const kibibytes = execFileSync('ps', ['-o', 'rss=', '-p', String(child.pid)], {
      encoding: 'utf8',
    });
    return { startMs, idleMiB: Number(kibibytes) / 1024 };
  } finally {
    child.kill('SIGINT');
    await once(child, 'exit');
  }
}

function answers(port: number, path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get({ host: '127.0.0.1', port, path, agent: false }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode === 200));
    });
    request.on('error', () => setTimeout(resolve, 1, false));
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Before idle memory is read. After 8 s without work, V8 collects the garbage of the start. */
export const idleMsOf = ({ isQuick }: Bench): number => (isQuick ? 1_000 : 15_000);

const bareNode = (port: number): Subject => ({
  name: 'bare node:http',
  script: [join(import.meta.dirname, 'bare.mjs')],
  environment: { PORT: `${port}` },
  port,
  readyPath: null,
});

async function threeServices(
  bench: Bench,
  { name, directory }: Bench['builds'][number],
  ports: Readonly<Record<'IDENTITY_PORT' | 'SECRETS_PORT' | 'WEBHOOK_PORT', string>>,
): Promise<Subject> {
  const { url } = await openDatabase(bench);
  return {
    name: `${name}, three services`,
    script: [join(directory, 'dist/cli.js'), 'serve'],
    environment: { DATABASE_URL: url, ...SETTINGS, ...ports },
    port: Number(ports.IDENTITY_PORT),
    readyPath: '/readyz',
  };
}

/** The order rotates: what runs after another program may start more slowly. */
async function measureInTurn(all: readonly Subject[], rounds: number, idleMs: number) {
  const found = all.map((): Figures[] => []);
  for (let round = 0; round < rounds; round += 1) {
    for (let position = 0; position < all.length; position += 1) {
      const index = (round + position) % all.length;
      const subject = all[index];
      if (subject) found[index]?.push(await measure(subject, idleMs));
    }
  }
  return found;
}

export async function start(bench: Bench): Promise<Report> {
  const rounds = bench.isQuick ? 3 : 7;
  const idleMs = idleMsOf(bench);
  const port = await freePort();
  const secretsPort = await freePort();
  const webhookPort = await freePort();
  const ports = {
    IDENTITY_PORT: `${port}`,
    SECRETS_PORT: `${secretsPort}`,
    WEBHOOK_PORT: `${webhookPort}`,
  };
  const bare = bareNode(port);
  const ours = await Promise.all(bench.builds.map((build) => threeServices(bench, build, ports)));
  // The first start is not counted: it migrates and creates the first administrator.
  for (const subject of ours) await measure(subject, 0);
  const all = [bare, ...ours, ...ours];
  const found = await measureInTurn(all, rounds, idleMs);
  const valuesOf = (index: number, key: keyof Figures) =>
    (found[index] ?? []).map((figures) => figures[key]);
  const divided = (one: number, other: number) =>
    valuesOf(one, 'startMs').map(
      (ms, round) => ms / (valuesOf(other, 'startMs')[round] ?? Number.NaN),
    );
  const added = (one: number, other: number) =>
    valuesOf(one, 'idleMiB').map(
      (mib, round) => mib - (valuesOf(other, 'idleMiB')[round] ?? Number.NaN),
    );
  const isAgainst = ours.length > 1;
  // Compared with bare Node, or with the other build; the second half of the list is the same
  // again.
  const other = isAgainst ? 2 : 0;
  const noiseOf = (itself: typeof divided) =>
    ours.map(({ name }, index) => ({ name, values: itself(1 + index, 1 + index + ours.length) }));
  const comparisons: Comparison[] = [
    {
      name: 'start to the first `/livez` reply, three services',
      comparedWith: all[other]?.name ?? '',
      values: divided(1, other),
      unit: 'times',
      noise: noiseOf(divided),
    },
    {
      name: 'idle memory, three services',
      comparedWith: all[other]?.name ?? '',
      values: added(1, other),
      unit: 'MiB more',
      noise: noiseOf(added),
      ...(isAgainst ? {} : { max: 12 }),
    },
  ];
  const remarks = [bare, ...ours].map(
    ({ name }, index) =>
      `start, ${name}: ${spread(valuesOf(index, 'startMs'))} ms to the first reply,` +
      ` ${spread(valuesOf(index, 'idleMiB'))} MiB idle`,
  );
  return { comparisons, tables: [], remarks };
}
