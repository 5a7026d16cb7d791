/** A house of several processes, as its operator and the kernel see it. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { SERVICES, type ServiceName } from '../../src/config.ts';
import { type Running, startProgram } from './process.ts';
import { connectTo, headOf, type RawAnswer, type RawClient } from './socket.ts';
import { until } from './until.ts';

interface Owner {
  after(fn: () => Promise<void> | void): void;
}

export interface Workers extends Running {
  readonly services: Readonly<Record<ServiceName | 'metrics', string>>;
  /** The process ids of the workers that live, the oldest first. */
  workers(): number[];
  /** A connection that this worker has been given. */
  connect(service: ServiceName, pid: number): Promise<RawClient>;
  /** How often a line with this message was written. */
  count(message: string): number;
  /** Kills a worker and waits until another is ready in its place. */
  replace(pid: number): Promise<void>;
}

/** Background work begins at once, and not some time within its first turn. */
export const AT_ONCE = { NODE_OPTIONS: '--import=data:text/javascript,Math.random=()=>0' };
/** A group of processes of its own, as each command of a terminal has. */
export const OWN_GROUP = { input: '', detached: true };

export async function startWorkers(
  t: Owner,
  program: string,
  environment: Readonly<Record<string, string>>,
  services: readonly ServiceName[] = SERVICES,
  options: Parameters<typeof startProgram>[4] = {},
): Promise<Workers> {
  const running = startAny(t, program, ['serve', ...services], { METRICS_PORT: '0', ...environment }, options);
  await running.line(({ message }) => message === 'every worker is ready');
  const url = async (name: ServiceName | 'metrics') => (name === 'metrics' || services.includes(name) ? running.url(name) : '');
  const urls = { identity: await url('identity'), secrets: await url('secrets'), webhook: await url('webhook'), metrics: await url('metrics') };
  const workers = () => childrenOf(running.pid);
  const count = (message: string) => running.log().filter((line) => line.message === message).length;
  // The workers' own lines come by other pipes, and may come later.
  await until(() => count('ready') === Number(environment.WORKERS) * services.length, "every worker's own line is there");
  return {
    ...running,
    services: urls,
    workers,
    count,
    async connect(service, pid) {
      for (let tries = 0; tries < 100; tries += 1) {
        const client = await connectTo(urls[service]);
        t.after(() => client.leave());
        client.send(headOf(['GET /livez HTTP/1.1', 'Host: x']));
        assert.equal((await client.answer()).status, 200);
        if (holds(pid, client)) return client;
        client.leave();
      }
      return assert.fail(`none of 100 connections has come to ${pid}`);
    },
    async replace(pid) {
      const before = count('ready');
      process.kill(pid, 'SIGKILL');
      await until(() => count('ready') === before + services.length, 'another worker is ready');
    },
  };
}

/** `startProgram`, and whatever processes it leaves behind are ended with the test. */
export function startAny(t: Owner, ...[program, words, environment, options]: Parameters<typeof startProgram> extends [unknown, ...infer Rest] ? Rest : never): Running {
  const seen = new Set<number>();
  t.after(() => {
    for (const pid of [...seen, ...childrenOf(running.pid)]) if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  });
  const running = startProgram(t, program, words, environment, options);
  const look = setInterval(() => childrenOf(running.pid).forEach((pid) => seen.add(pid)), 50);
  look.unref();
  void running.ended.finally(() => clearInterval(look));
  return running;
}

/** State and parent, after the name in parentheses, which may hold anything (proc_pid_stat(5)). */
function statOf(pid: number): { readonly state: string; readonly parent: number } | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state = '', parent] = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { state, parent: Number(parent) };
  } catch {
    return null;
  }
}

/** One that has ended and that nobody has asked about yet does not count. */
export function isAlive(pid: number): boolean {
  const stat = statOf(pid);
  return stat !== null && stat.state !== 'Z' && stat.state !== 'X';
}

export function childrenOf(parent: number): number[] {
  const all = readdirSync('/proc').map(Number).filter(Number.isInteger);
  return all.filter((pid) => statOf(pid)?.parent === parent && isAlive(pid)).sort((one, other) => numberOf(one) - numberOf(other));
}

/** Node counts the workers that it starts. */
function numberOf(pid: number): number {
  try {
    return Number(/(?:^|\0)NODE_UNIQUE_ID=([0-9]+)\0/.exec(readFileSync(`/proc/${pid}/environ`, 'latin1'))?.[1] ?? Infinity);
  } catch {
    return Infinity;
  }
}

export const untilGone = (pids: readonly number[]) => until(() => !pids.some(isAlive), `the processes ${pids.join(', ')} have ended`);

/** Whether the other end of the connection is this process's (proc_net(5): ports in hexadecimal, the inode is the tenth). */
export function holds(pid: number, { socket }: RawClient): boolean {
  const port = (at: string = '') => Number.parseInt(at.split(':')[1] ?? '', 16);
  const rows = readFileSync('/proc/net/tcp', 'latin1').split('\n').map((line) => line.trim().split(/\s+/));
  const inode = rows.find((row) => port(row[1]) === socket.remotePort && port(row[2]) === socket.localPort)?.[9];
  assert.ok(inode !== undefined && inode !== '0', 'the connection is not open');
  return readdirSync(`/proc/${pid}/fd`).some((file) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${file}`) === `socket:[${inode}]`;
    } catch {
      return false;
    }
  });
}

export const get = (path: string, bearer = ''): string => headOf([`GET ${path} HTTP/1.1`, 'Host: x', ...(bearer === '' ? [] : [`Authorization: Bearer ${bearer}`])]);

/** One request on an open connection. */
export async function say(client: RawClient, ...parts: readonly string[]): Promise<RawAnswer> {
  client.send(...parts);
  return client.answer();
}

/** The requests of a route in a /metrics answer, by status; and what its histogram counted. */
export function requestsOf(text: string, route: string): { readonly total: number; readonly below: number; readonly observed: number } {
  const sum = (pattern: RegExp) => [...text.matchAll(pattern)].reduce((total, [, value]) => total + Number(value), 0);
  const name = route.replace(/[/{}]/g, '\\$&');
  return {
    total: sum(new RegExp(`^gatehouse_requests_total\\{[^}]*route="${name}"[^}]*\\} ([0-9]+)$`, 'gm')),
    below: sum(new RegExp(`^gatehouse_request_duration_seconds_bucket\\{[^}]*route="${name}",le="\\+Inf"\\} ([0-9]+)$`, 'gm')),
    observed: sum(new RegExp(`^gatehouse_request_duration_seconds_count\\{[^}]*route="${name}"\\} ([0-9]+)$`, 'gm')),
  };
}
