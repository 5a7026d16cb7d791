/**
 * `make bench-start`: start-up time and idle memory of the three services in one process, in turn with a bare
 * node:http process, on this machine, now. Ratios and differences first, because absolute figures are the machine's.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { get } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startPostgres } from '../postgres.ts';

const ROUNDS = 9;
const IDLE_MS = 3_000;
const root = dirname(dirname(import.meta.dirname));

interface Figures {
  readonly startMs: number;
  readonly idleMiB: number;
}

interface Subject {
  readonly name: string;
  readonly script: string[];
  readonly environment: Record<string, string>;
  readonly port: number;
}

/** From spawn to the first answer; then, left alone for a while, its resident memory. */
async function measure({ script, environment, port }: Subject, readyPath: string | null): Promise<Figures> {
  const startedAt = performance.now();
  const child = spawn(process.execPath, script, { env: { PATH: process.env.PATH, ...environment }, stdio: ['ignore', 'ignore', 'inherit'] });
  try {
    while (!(await answers(port, '/livez'))) if (child.exitCode !== null) throw new Error(`${script.join(' ')} ended with ${child.exitCode}`);
    const startMs = performance.now() - startedAt;
    while (readyPath !== null && !(await answers(port, readyPath))) await sleep(20);
    await sleep(IDLE_MS);
    return { startMs, idleMiB: Number(execFileSync('ps', ['-o', 'rss=', '-p', String(child.pid)], { encoding: 'utf8' })) / 1024 };
  } finally {
    child.kill('SIGTERM');
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

const middle = (values: readonly number[]) => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? Number.NaN;
const spread = (values: readonly number[]) =>
  `${middle(values).toFixed(2)} (${Math.min(...values).toFixed(2)} to ${Math.max(...values).toFixed(2)})`;

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-bench-'));
const postgres = await startPostgres({ directory: join(directory, 'state'), durable: true });
try {
  const port = await freePort();
  const bare: Subject = { name: 'bare node:http', script: [join(root, 'scripts/bench/bare.mjs')], environment: { PORT: String(port) }, port };
  const ours: Subject = {
    name: 'gatehouse, three services',
    script: [join(root, 'dist/cli.js'), 'serve'],
    environment: {
      DATABASE_URL: postgres.url,
      IDENTITY_PORT: String(port),
      SECRETS_PORT: String(await freePort()),
      WEBHOOK_PORT: String(await freePort()),
      SERVER_SECRET: 'for-measuring-only-0123456789abcdefghij',
      AUTH_TOKEN: 'for-measuring-only-0123456789abcdefghij',
      ADMIN_PASSWORD: 'for measuring only',
      WEBHOOK_TOKEN: 'for-measuring-only-0123456789abcdefghij',
    },
    port,
  };
  // The first start migrates and makes the first administrator; it is not counted.
  await measure(ours, '/readyz');
  const pairs: Array<{ bare: Figures; ours: Figures }> = [];
  for (let round = 0; round < ROUNDS; round += 1) pairs.push({ bare: await measure(bare, null), ours: await measure(ours, '/readyz') });

  console.log(`Node ${process.version}, ${process.platform} ${process.arch}, ${ROUNDS} rounds in turn; median (least to most)`);
  console.log(`start to the first /livez answer, ours / bare: ${spread(pairs.map((pair) => pair.ours.startMs / pair.bare.startMs))} times`);
  console.log(`idle memory, ours - bare: ${spread(pairs.map((pair) => pair.ours.idleMiB - pair.bare.idleMiB))} MiB`);
  for (const [subject, pick] of [[bare, 'bare'], [ours, 'ours']] as const) {
    console.log(`${subject.name}: ${spread(pairs.map((pair) => pair[pick].startMs))} ms, ${spread(pairs.map((pair) => pair[pick].idleMiB))} MiB`);
  }
} finally {
  await postgres.stop();
  rmSync(directory, { recursive: true, force: true });
}
