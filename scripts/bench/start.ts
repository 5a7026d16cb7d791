/** Start-up time and idle memory of the three services in one process, in turn with a bare node:http process. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { get } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench, Report } from './compare.ts';
import { root, SETTINGS, spread } from './service.ts';

interface Figures {
  readonly startMs: number;
  readonly idleMiB: number;
}

interface Subject {
  readonly script: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly port: number;
}

/** From spawn to the first answer; then, left alone for a while, its resident memory. */
async function measure({ script, environment, port }: Subject, readyPath: string | null, idleMs: number): Promise<Figures> {
  const startedAt = performance.now();
  const child = spawn(process.execPath, script, { env: { PATH: process.env.PATH, ...environment }, stdio: ['ignore', 'ignore', 'inherit'] });
  try {
    while (!(await answers(port, '/livez'))) if (child.exitCode !== null) throw new Error(`${script.join(' ')} ended with ${child.exitCode}`);
    const startMs = performance.now() - startedAt;
    while (readyPath !== null && !(await answers(port, readyPath))) await sleep(20);
    await sleep(idleMs);
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

export async function start({ postgres, isQuick }: Bench): Promise<Report> {
  const [rounds, idleMs] = isQuick ? [3, 1_000] : [9, 3_000];
  const port = await freePort();
  const bare: Subject = { script: [join(import.meta.dirname, 'bare.mjs')], environment: { PORT: String(port) }, port };
  const ports = { IDENTITY_PORT: String(port), SECRETS_PORT: String(await freePort()), WEBHOOK_PORT: String(await freePort()) };
  const ours: Subject = { script: [join(root, 'dist/cli.js'), 'serve'], environment: { DATABASE_URL: postgres.url, ...SETTINGS, ...ports }, port };
  // The first start migrates and makes the first administrator; it is not counted.
  await measure(ours, '/readyz', 0);
  const pairs: Array<{ bare: Figures; ours: Figures }> = [];
  for (let round = 0; round < rounds; round += 1) pairs.push({ bare: await measure(bare, null, idleMs), ours: await measure(ours, '/readyz', idleMs) });
  const remark = (name: string, pick: 'bare' | 'ours') =>
    `start, ${name}: ${spread(pairs.map((pair) => pair[pick].startMs))} ms to the first answer, ${spread(pairs.map((pair) => pair[pick].idleMiB))} MiB idle`;
  return {
    findings: [
      { question: 'start to the first `/livez` answer, three services', against: 'bare node:http', values: pairs.map((pair) => pair.ours.startMs / pair.bare.startMs), unit: 'times', most: 1.8 },
      { question: 'idle memory, three services', against: 'bare node:http', values: pairs.map((pair) => pair.ours.idleMiB - pair.bare.idleMiB), unit: 'MiB more', most: 15 },
    ],
    figures: [],
    remarks: [remark('bare node:http', 'bare'), remark('gatehouse, three services', 'ours')],
  };
}
