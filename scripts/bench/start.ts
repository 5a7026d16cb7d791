/** Startup time and idle memory of the three services in one process, compared with bare node:http. */
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
  /** The path that answers 200 when startup is complete; null if that is the first reply. */
  readonly readyPath: string | null;
}

/** Measures the time from spawn to the first reply, and the resident memory after an idle time. */
async function measure({ script, environment, port, readyPath }: Subject, idleMs: number): Promise<Figures> {
  const env = { PATH: process.env.PATH, ...environment };
  const startedAt = performance.now();
  const child = spawn(process.execPath, script, { env, stdio: ['ignore', 'ignore', 'inherit'] });
  try {
    while (!(await answers(port, '/livez'))) {
      if (child.exitCode !== null) throw new Error(`${script.join(' ')} exited with ${child.exitCode}`);
    }
    const startMs = performance.now() - startedAt;
    while (readyPath !== null && !(await answers(port, readyPath))) await sleep(20);
    await sleep(idleMs);
    const kibibytes = execFileSync('ps', ['-o', 'rss=', '-p', String(child.pid)], { encoding: 'utf8' });
    return { startMs, idleMiB: Number(kibibytes) / 1024 };
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
  const [port, secretsPort, webhookPort] = [await freePort(), await freePort(), await freePort()];
  const bareScript = join(import.meta.dirname, 'bare.mjs');
  const bare: Subject = { script: [bareScript], environment: { PORT: `${port}` }, port, readyPath: null };
  const ports = { IDENTITY_PORT: `${port}`, SECRETS_PORT: `${secretsPort}`, WEBHOOK_PORT: `${webhookPort}` };
  const environment = { DATABASE_URL: postgres.url, ...SETTINGS, ...ports };
  const ours: Subject = { script: [join(root, 'dist/cli.js'), 'serve'], environment, port, readyPath: '/readyz' };
  // The first start is not counted: it migrates and creates the first administrator.
  await measure(ours, 0);
  const pairs: Array<{ bare: Figures; ours: Figures }> = [];
  for (let round = 0; round < rounds; round += 1) {
    pairs.push({ bare: await measure(bare, idleMs), ours: await measure(ours, idleMs) });
  }
  const remark = (name: string, subject: 'bare' | 'ours') => {
    const [startMs, idleMiB] = [pairs.map((pair) => pair[subject].startMs), pairs.map((pair) => pair[subject].idleMiB)];
    return `start, ${name}: ${spread(startMs)} ms to the first reply, ${spread(idleMiB)} MiB idle`;
  };
  return {
    comparisons: [{
      name: 'start to the first `/livez` reply, three services', comparedWith: 'bare node:http',
      values: pairs.map((pair) => pair.ours.startMs / pair.bare.startMs), unit: 'times', max: 1.8,
    }, {
      name: 'idle memory, three services', comparedWith: 'bare node:http',
      values: pairs.map((pair) => pair.ours.idleMiB - pair.bare.idleMiB), unit: 'MiB more', max: 15,
    }],
    figures: [],
    remarks: [remark('bare node:http', 'bare'), remark('gatehouse, three services', 'ours')],
  };
}
