/**
 * The three services in one process below the kernel's memory limit of a container, under attacks,
 * with the health check of the image beside it. The process must live on and answer after each of
 * them. Needs cgroups of version 1 that this user may create.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ATTACKS, type Attack } from './attacks.ts';
import { root, THIS } from './builds.ts';
import type { Comparison, Report } from './compare.ts';
import { type Bench, openDatabase } from './measure.ts';
import { createClient, type Service, type ServiceName, startServices, stopAll } from './service.ts';

const CGROUPS = '/sys/fs/cgroup/memory';
const SERVICES: readonly ServiceName[] = ['identity', 'secrets', 'webhook'];
const MIB = 2 ** 20;

/** The settings below "For 80 MiB" in docs/operations.md. */
function documentedSettings(): Record<string, string> {
  const text = readFileSync(join(root, 'docs/operations.md'), 'utf8');
  const [, block = ''] = /For 80 MiB[^`]*```\n([^`]*)```/.exec(text) ?? [];
  const found = [...block.matchAll(/([A-Z_]+)=("([^"]*)"|\S+)/g)];
  if (found.length === 0) throw new Error('docs/operations.md has no settings for 80 MiB');
  return Object.fromEntries(
    found.map(([, name = '', bare = '', quoted]) => [name, quoted ?? bare]),
  );
}

/**
 * @returns the directory of a new group with this limit, which includes swap where the kernel
 * counts it
 */
function createGroup(mebibytes: number): string {
  const group = join(CGROUPS, `gatehouse-bench-${process.pid}-${mebibytes}`);
  mkdirSync(group);
  writeFileSync(join(group, 'memory.limit_in_bytes'), String(mebibytes * MIB));
  return group;
}

/**
 * Memory of the processes in MiB, without pages of files, which the kernel takes back when others
 * need them.
 */
function anonymousMiB(group: string): number {
  const text = readFileSync(join(group, 'memory.stat'), 'utf8');
  return Number(/^total_rss (\d+)$/m.exec(text)?.[1]) / MIB;
}

async function isAnswering(service: Service): Promise<boolean> {
  const { send, close } = createClient(service);
  const status = await send('GET', '/livez').then(
    (reply) => reply.status,
    () => 0,
  );
  close();
  return status === 200;
}

/** Processes of the group that the kernel has ended for lack of memory. */
const killedIn = (group: string): number =>
  Number(/^oom_kill (\d+)$/m.exec(readFileSync(join(group, 'memory.oom_control'), 'utf8'))?.[1]);

/** The words of HEALTHCHECK's CMD. A backslash at the end of a line joins it to the next. */
function healthCheckWords(): readonly string[] {
  const text = readFileSync(join(root, 'Dockerfile'), 'utf8').replace(/\\\n/g, '');
  const [, words] = /^HEALTHCHECK .*? CMD (\[.*\])$/m.exec(text) ?? [];
  if (words === undefined) throw new Error('Dockerfile has no HEALTHCHECK');
  return JSON.parse(words);
}

/** Runs the health check in the group, as Docker does, but again and again. */
async function checkHealth({ ports }: Service, group: string, stop: AbortSignal): Promise<void> {
  const [, ...script] = healthCheckWords();
  const env = { IDENTITY_PORT: String(ports[0]), SECRETS_PORT: '1', PORT: '1' };
  const join = 'echo $$ > "$0" && exec "$@"';
  const words = ['-c', join, `${group}/cgroup.procs`, process.execPath, ...script];
  while (!stop.aborted) {
    const child = spawn('sh', words, { env, stdio: 'ignore' });
    await once(child, 'exit');
    await sleep(500);
  }
}

/** @returns the most memory that was used */
async function run(attack: Attack, service: Service, group: string): Promise<number> {
  const { ports } = service;
  const sockets: Socket[] = [];
  const ended = new AbortController();
  const checking = checkHealth(service, group, ended.signal);
  let peak = 0;
  const sampler = setInterval(() => {
    peak = Math.max(peak, anonymousMiB(group));
  }, 50);
  try {
    const [identity = 0, secrets = 0, webhook = 0] = ports;
    await attack.run({ identity, secrets, webhook }, sockets);
  } finally {
    clearInterval(sampler);
    ended.abort();
    await checking;
    for (const socket of sockets) socket.destroy();
  }
  await sleep(1_000);
  return peak;
}

export async function containers(bench: Bench): Promise<Report> {
  try {
    accessSync(CGROUPS, constants.W_OK);
  } catch {
    const remark = `containers: not measured, because ${CGROUPS} (cgroups of version 1) cannot be written here`;
    return { comparisons: [], tables: [], remarks: [remark] };
  }
  const comparisons: Comparison[] = [];
  const remarks: string[] = [];
  const variants = [
    { limit: 80, settings: documentedSettings(), about: 'the settings for it' },
    { limit: 160, settings: {}, about: 'default settings' },
  ];
  for (const { limit, settings, about } of variants) {
    const container = `a container of ${limit} MiB with ${about}`;
    const { url } = await openDatabase(bench);
    const group = createGroup(limit);
    let survived = 0;
    try {
      const start = () => startServices(SERVICES, url, settings, THIS, group);
      let service = await start();
      // One after the other on one process, as an attacker would; a new process only where it has
      // ended.
      for (const attack of ATTACKS) {
        const peak = await run(attack, service, group);
        const isAlive = await isAnswering(service);
        const end = killedIn(group) > 0 ? 'ENDED by the kernel' : 'ENDED';
        remarks.push(
          `${container}, ${attack.name}: ${peak.toFixed(0)} MiB, ${isAlive ? 'answers afterwards' : end}`,
        );
        survived += isAlive ? 1 : 0;
        if (!isAlive) service = await start();
      }
    } finally {
      await stopAll();
      // The process may need a moment to leave.
      await sleep(200);
      rmdirSync(group);
    }
    comparisons.push({
      name: 'attacks survived',
      comparedWith: container,
      values: [survived],
      unit: 'attacks',
      min: ATTACKS.length,
      noise: [],
    });
  }
  return { comparisons, tables: [], remarks };
}
