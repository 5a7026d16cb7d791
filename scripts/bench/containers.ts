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
import type { Comparison, Report, Row } from './compare.ts';
import { type Bench, openDatabase } from './measure.ts';
import {
  createClient,
  type Environment,
  type Service,
  type ServiceName,
  startServices,
  stopAll,
} from './service.ts';

const CGROUPS = '/sys/fs/cgroup/memory';
const SERVICES: readonly ServiceName[] = ['identity', 'secrets', 'webhook'];
const MIB = 2 ** 20;

/** A memory limit that docs/containers.md promises, with the settings for it. */
export interface Container {
  readonly mebibytes: number;
  readonly settings: Environment;
  readonly about: string;
}

export const CONTAINERS: readonly Container[] = [
  { mebibytes: 64, settings: documentedSettings(), about: 'the settings for it' },
  { mebibytes: 128, settings: {}, about: 'default settings' },
];

/** The settings below "For 64 MiB" in docs/containers.md. */
function documentedSettings(): Environment {
  const text = readFileSync(join(root, 'docs/containers.md'), 'utf8');
  const [, block = ''] = /For 64 MiB[^`]*```\n([^`]*)```/.exec(text) ?? [];
  const found = assignments(block);
  if (Object.keys(found).length === 0)
    throw new Error('docs/containers.md has no settings for 64 MiB');
  return found;
}

function assignments(text: string): Environment {
  const found = [...text.matchAll(/([A-Z_]+)=("([^"]*)"|\S+)/g)];
  return Object.fromEntries(
    found.map(([, name = '', bare = '', quoted]) => [name, quoted ?? bare]),
  );
}

const dockerfile = () => readFileSync(join(root, 'Dockerfile'), 'utf8');

/** What the image sets. */
function imageEnvironment(): Environment {
  const [, words = ''] = /^ENV (.*)$/m.exec(dockerfile()) ?? [];
  return assignments(words);
}

let groups = 0;

/**
 * @returns the directory of a new group with this limit, which includes swap where the kernel
 * counts it
 */
function createGroup(mebibytes: number): string {
  groups += 1;
  const group = join(CGROUPS, `gatehouse-bench-${process.pid}-${groups}`);
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
  const text = dockerfile().replace(/\\\n/g, '');
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

export function canLimitMemory(): boolean {
  try {
    accessSync(CGROUPS, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

export interface Survival {
  readonly attack: string;
  /** The most memory that was used, in MiB. */
  readonly peak: number;
  /** Processes that the kernel has ended, those of the health check included. */
  readonly killed: number;
  readonly isAlive: boolean;
}

/**
 * Makes all attacks, one after the other on one process, as an attacker would; on a new process
 * only where it has ended. Stops everything that the benchmark has started.
 */
export async function attackContainer(
  { mebibytes, settings }: Container,
  databaseUrl: string,
): Promise<readonly Survival[]> {
  const group = createGroup(mebibytes);
  const environment = { ...imageEnvironment(), SHARE_PAGES: 'on', ...settings };
  const survivals: Survival[] = [];
  try {
    const start = () => startServices(SERVICES, databaseUrl, environment, THIS, [], group);
    let service = await start();
    for (const attack of ATTACKS) {
      const before = killedIn(group);
      const peak = await run(attack, service, group);
      const isAlive = await isAnswering(service);
      survivals.push({ attack: attack.name, peak, killed: killedIn(group) - before, isAlive });
      if (!isAlive) service = await start();
    }
    return survivals;
  } finally {
    await stopAll();
    // The process may need a moment to leave.
    await sleep(200);
    rmdirSync(group);
  }
}

export async function containers(bench: Bench): Promise<Report> {
  const heading = 'memory under attacks';
  if (!canLimitMemory()) {
    const caveat = `Not measured: ${CGROUPS} (cgroups of version 1) cannot be written here.`;
    return { comparisons: [], tables: [{ heading, rows: [], caveat }] };
  }
  const comparisons: Comparison[] = [];
  const columns: Row[] = [['attack', ...ATTACKS.map(({ name }) => name)]];
  for (const container of CONTAINERS) {
    const comparedWith = `a container of ${container.mebibytes} MiB with ${container.about}`;
    const { url } = await openDatabase(bench);
    const survivals = await attackContainer(container, url);
    columns.push([`${container.mebibytes} MiB with ${container.about}`, ...survivals.map(cellOf)]);
    comparisons.push({
      name: 'attacks survived',
      comparedWith,
      values: [survivals.filter(isSurvived).length],
      unit: 'attacks',
      min: ATTACKS.length,
      noise: [],
    });
  }
  const rows = (columns[0] ?? []).map((_, row) => columns.map((cells) => cells[row] ?? ''));
  const caveat =
    'The most memory of all processes, without pages of files and what the kernel takes.';
  return { comparisons, tables: [{ heading, rows, caveat }] };
}

const isSurvived = ({ killed, isAlive }: Survival): boolean => killed === 0 && isAlive;

function cellOf(survival: Survival): string {
  const memory = `${survival.peak.toFixed(0)} MiB`;
  return isSurvived(survival) ? memory : `${memory}, ENDED BY THE KERNEL`;
}
